// Frames (base/wire) over a stream that has another owner, or is two streams: FrameReader reads them; FrameSender takes
// those of many coroutines without keeping any of them waiting, and writes them in order.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/fd.h"
#include "base/io/net.h"
#include "base/wire/frame.h"

namespace aiacc::launcher {

class FrameReader {
 public:
  explicit FrameReader(io::Stream& from, std::uint32_t limit = wire::kMaxFrameBytes) : from_(from), buffer_(limit) {}
  // The next; nullopt if the other end closed in order. Throws kProtocol for what is no frame, or an end in the middle of one.
  Task<std::optional<wire::Frame>> next(Stop& stop);
  // Bytes that were read from the stream by somebody else.
  void feed(std::span<const std::byte> bytes);

 private:
  io::Stream& from_;
  wire::FrameBuffer buffer_;
};

class FrameSender {
 public:
  FrameSender(Loop& loop, io::Stream& to) : to_(to), changed_(loop), idle_(loop) { idle_.set(); }
  FrameSender(const FrameSender&) = delete;
  FrameSender& operator=(const FrameSender&) = delete;

  template <wire::Message T>
  void send(const T& message) {
    enqueue(wire::encode_frame(message), nullptr);
  }
  // `descriptor` rides with the frame's first byte.
  template <wire::Message T>
  void send(const T& message, std::shared_ptr<const Fd> descriptor) {
    enqueue(wire::encode_frame(message), std::move(descriptor));
  }

  // Bytes that are no frame.
  void send_text(std::string_view text);

  // What is queued is still written, then run() ends.
  void close() noexcept {
    closing_ = true;
    changed_.set();
  }
  // The other end is gone: forget what is queued and whatever comes.
  void discard() noexcept;

  // Writes; one coroutine, until close(). Errors of the stream end it quietly: whoever reads from the peer notices.
  Task<void> run(Stop& stop);
  // Until nothing is queued.
  Event::Await flushed(Stop& stop) noexcept { return idle_.wait(stop); }

 private:
  struct Item {
    wire::Bytes bytes;
    std::shared_ptr<const Fd> descriptor;
  };
  void enqueue(wire::Bytes bytes, std::shared_ptr<const Fd> descriptor);

  io::Stream& to_;
  std::deque<Item> queue_;
  Event changed_;
  Event idle_;
  bool closing_ = false;
  bool broken_ = false;
};

}  // namespace aiacc::launcher
