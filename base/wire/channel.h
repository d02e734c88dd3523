// Channel: messages over a Stream. Any number of coroutines may send at the same time: frames leave whole, in the order of
// the calls. One receives at a time. A stop that ends a send or a receive breaks no frame: what was begun is finished by
// whoever sends next, and what came is there for the next receive.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "base/io/net.h"
#include "base/wire/frame.h"

namespace aiacc::wire {

class Channel {
 public:
  // `limit`: the longest frame that is taken from the other end.
  Channel(Loop& loop, std::unique_ptr<io::Stream> stream, std::uint32_t limit = kMaxFrameBytes);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  io::Stream& stream() noexcept { return *stream_; }

  // Returns when the stream has taken the whole message (not: when the other end has read it).
  template <Message T>
  Task<void> send(const T& message, Stop& stop) {
    return send_frame(encode_frame(message), Fd(), stop);
  }
  // The same with a copy of `descriptor` on the first byte (base/io/descriptor_passing.h).
  template <Message T>
  Task<void> send(const T& message, int descriptor, Stop& stop) {
    return send_frame(encode_frame(message), copy_of(descriptor), stop);
  }

  // The next message; nullopt if the other end closed in order. Throws kProtocol for what is no frame, and for an end in the
  // middle of one.
  Task<std::optional<Frame>> receive(Stop& stop);

 private:
  struct Outgoing {
    Bytes bytes;
    std::size_t sent = 0;
    Fd descriptor;  // ours: the sender may be gone when the frame leaves
  };
  class WriterRole;

  static Fd copy_of(int descriptor);
  Task<void> send_frame(Bytes frame, Fd descriptor, Stop& stop);
  Task<void> write_front(Stop& stop);

  std::unique_ptr<io::Stream> stream_;
  FrameBuffer incoming_;
  std::deque<Outgoing> outgoing_;    // the front one may be partly sent
  std::uint64_t queued_frames_ = 0;  // ever
  std::uint64_t sent_frames_ = 0;
  bool writing_ = false;  // somebody is in write_front()
  Event writer_left_;
};

}  // namespace aiacc::wire
