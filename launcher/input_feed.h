// InputFeed: what aiaccrun sends of its standard input, into the pipe of the rank that reads it. aiaccrun sends against credit,
// which comes back as the pipe takes the bytes: a rank that does not read costs its agent one window.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/io/net.h"
#include "launcher/frames.h"

namespace aiacc::launcher {

class InputFeed {
 public:
  static constexpr std::uint64_t kWindow = 256u << 10;

  InputFeed(Loop& loop, std::unique_ptr<io::Stream> to, FrameSender& head)
      : to_(std::move(to)), head_(head), changed_(loop) {}
  InputFeed(const InputFeed&) = delete;
  InputFeed& operator=(const InputFeed&) = delete;

  // From aiaccrun; empty: the end. Throws kProtocol if it is more than was asked for.
  void add(const std::string& bytes);
  // The rank has ended.
  void close() noexcept;

  // Asks for the first bytes, and writes until the end, or until nobody reads; then aiaccrun has been told.
  Task<void> run(Stop& stop);

 private:
  Task<void> write(Stop& stop);
  void took(std::size_t bytes);

  std::unique_ptr<io::Stream> to_;
  FrameSender& head_;
  Event changed_;
  std::string waiting_;
  std::uint64_t credit_ = 0;  // that aiaccrun has
  std::uint64_t owed_ = 0;    // that it was not told of yet
  Stop* writing_ = nullptr;   // while run() does
  bool at_end_ = false;
  bool closed_ = false;
};

}  // namespace aiacc::launcher
