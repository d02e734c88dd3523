// Channel: messages over a Stream. Any number of coroutines may send at the same time: frames are sent whole, in the
// order of the calls. One coroutine at a time may receive. A stop that ends a send or a receive breaks no frame: the
// next sender finishes a frame that was begun, and the next receive gets the bytes that have arrived.
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
  // `limit`: the longest frame that is accepted from the other end.
  Channel(Loop& loop, std::unique_ptr<io::Stream> stream, std::uint32_t limit = kMaxFrameBytes);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  io::Stream& stream() noexcept { return *stream_; }

  // Returns when the stream has taken the whole message, not when the other end has read it.
  template <Message T>
  Task<void> send(const T& message, Stop& stop) {
    return send_frame(encode_frame(message), Fd(), stop);
  }
  // The same with a copy of `descriptor` on the first byte (base/io/descriptor_passing.h).
  template <Message T>
  Task<void> send(const T& message, int descriptor, Stop& stop) {
    return send_frame(encode_frame(message), copy_of(descriptor), stop);
  }

  // The next message; nullopt if the other end closed in order. Throws kProtocol for an invalid frame and for an end of
  // stream inside one.
  Task<std::optional<Frame>> receive(Stop& stop);

 private:
  struct Outgoing {
    Bytes bytes;
    std::size_t sent = 0;
    Fd descriptor;  // an own copy: the sender's may be closed before the frame is sent
  };
  class WriterRole;

  static Fd copy_of(int descriptor);
  Task<void> send_frame(Bytes frame, Fd descriptor, Stop& stop);
  Task<void> write_front(Stop& stop);

  std::unique_ptr<io::Stream> stream_;
  FrameBuffer incoming_;
  std::deque<Outgoing> outgoing_;    // the front one may be partly sent
  std::uint64_t queued_frames_ = 0;  // in total
  std::uint64_t sent_frames_ = 0;
  bool writing_ = false;  // a coroutine is in write_front()
  Event writer_left_;
};

}  // namespace aiacc::wire
