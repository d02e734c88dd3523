// OutputPump: forwards one stream of one rank from its pipe to aiaccrun: reads it, cuts it into pieces (lines.h) and
// sends these against credit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/io/net.h"
#include "launcher/channel/frames.h"
#include "launcher/stdio/credit_gate.h"
#include "launcher/stdio/lines.h"

namespace aiacc::launcher {

class OutputPump {
 public:
  // `dropped` counts the bytes that had no reader.
  OutputPump(Loop& loop, int rank, std::uint8_t stream, std::string tag, std::unique_ptr<io::Stream> from,
             CreditGate& gate, FrameSender& to, std::uint64_t& dropped);
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  // Runs until the end of the stream. Then everything that was read was sent or counted as dropped.
  Task<void> run(Stop& stop);
  // The stream has not ended, and there is nothing to read.
  bool waits_for_data() const noexcept { return waits_for_data_; }
  bool finished() const noexcept { return finished_; }

 private:
  // The buffer is small until the rank writes much, so that many idle ranks cost little memory.
  static constexpr std::size_t kSmallRead = 4 * 1024;
  static constexpr std::size_t kLargeRead = 64 * 1024;

  // Sends an unfinished line that has been idle, as soon as there is credit.
  struct IdleFlush final : Timer, CreditGate::Waiter {
    explicit IdleFlush(OutputPump& pump) : owner(pump) {}
    void expired() noexcept override { owner.flush_idle(); }
    void credit_available() noexcept override { owner.flush_idle(); }
    OutputPump& owner;
  };

  void flush_idle() noexcept;
  void send_ready();

  Loop& loop_;
  int rank_;
  std::uint8_t stream_;
  LineAssembler lines_;
  std::unique_ptr<io::Stream> from_;
  CreditGate& gate_;
  FrameSender& to_;
  std::uint64_t& dropped_;
  std::vector<std::byte> buffer_;
  bool waits_for_data_ = false;
  bool finished_ = false;
  IdleFlush idle_{*this};
};

}  // namespace aiacc::launcher
