// OutputPump: one stream of one rank, from its pipe to aiaccrun: read, cut into pieces (lines.h), sent against credit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/io/net.h"
#include "launcher/credit_gate.h"
#include "launcher/frames.h"
#include "launcher/lines.h"

namespace aiacc::launcher {

class OutputPump {
 public:
  // `dropped` is where bytes are counted that had no reader.
  OutputPump(Loop& loop, int rank, std::uint8_t stream, std::string tag, std::unique_ptr<io::Stream> from,
             CreditGate& gate, FrameSender& to, std::uint64_t& dropped);
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  // Until the end of the stream. Everything that was read has been sent then, or counted as dropped.
  Task<void> run(Stop& stop);
  // The stream is neither at its end nor has it anything to read.
  bool waits_for_data() const noexcept { return waits_for_data_; }
  bool finished() const noexcept { return finished_; }

 private:
  // A small buffer until the rank proves to write much: 64 idle ranks shall cost little.
  static constexpr std::size_t kSmallRead = 4 * 1024;
  static constexpr std::size_t kLargeRead = 64 * 1024;

  // A line without an end, when it has been idle: sent as soon as there is credit.
  struct IdleFlush final : Timer, CreditGate::Waiter {
    explicit IdleFlush(OutputPump& pump) : owner(pump) {}
    void expired() noexcept override { owner.flush_idle(); }
    void credit_came() noexcept override { owner.flush_idle(); }
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
