// launcher/channel: the transport between agent and aiaccrun over one pair of streams: frames, the marker that precedes
// them, and the lease that detects silence. Not here: the messages themselves (base/wire/launch_messages.h).
//
// Frames (base/wire) over a stream that the caller owns, or over two streams: FrameReader reads them; FrameSender
// queues frames from many coroutines without blocking them, and writes them in order.
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
  // The next frame; nullopt if the other end closed in order. Throws kProtocol for an invalid frame, or an end of
  // stream inside one.
  Task<std::optional<wire::Frame>> next(Stop& stop);
  // Adds bytes that another reader has already read from the stream.
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
  // `descriptor` is sent with the frame's first byte.
  template <wire::Message T>
  void send(const T& message, std::shared_ptr<const Fd> descriptor) {
    enqueue(wire::encode_frame(message), std::move(descriptor));
  }

  // Bytes outside any frame.
  void send_text(std::string_view text);

  // run() writes what is queued and then ends.
  void close() noexcept {
    closing_ = true;
    changed_.set();
  }
  // The other end is gone: drops what is queued and what is sent later.
  void discard() noexcept;

  // Writes; one coroutine, until close(). Errors of the stream end it without an exception; the coroutine that reads
  // from the peer notices them.
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
