// InputFeed: writes the standard input that aiaccrun sends into the pipe of the rank that reads it. aiaccrun sends
// against credit, which is returned as the pipe accepts the bytes, so a rank that does not read costs its agent at most
// one window of memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/io/net.h"
#include "launcher/channel/frames.h"

namespace aiacc::launcher {

class InputFeed {
 public:
  static constexpr std::uint64_t kWindow = 256u << 10;

  InputFeed(Loop& loop, std::unique_ptr<io::Stream> to, FrameSender& head)
      : to_(std::move(to)), head_(head), changed_(loop) {}
  InputFeed(const InputFeed&) = delete;
  InputFeed& operator=(const InputFeed&) = delete;

  // Bytes from aiaccrun; empty: the end. Throws kProtocol if they exceed the credit.
  void add(const std::string& bytes);
  // The rank has ended.
  void close() noexcept;

  // Grants the first credit, and writes until the end, or until the rank reads no more, which it reports to aiaccrun.
  Task<void> run(Stop& stop);

 private:
  Task<void> write(Stop& stop);
  void return_credit(std::size_t bytes);

  std::unique_ptr<io::Stream> to_;
  FrameSender& head_;
  Event changed_;
  std::string waiting_;
  std::uint64_t credit_ = 0;             // that aiaccrun has
  std::uint64_t unreturned_credit_ = 0;  // not yet returned to it
  Stop* writing_ = nullptr;              // set while run() writes
  bool at_end_ = false;
  bool closed_ = false;
};

}  // namespace aiacc::launcher
