// Frames: how messages follow each other on a stream: a 32-bit little-endian length of the rest, a 16-bit message type,
// the message's fields.
#pragma once

#include <optional>
#include <string>

#include "base/io/net.h"
#include "base/wire/codec.h"

namespace aiacc::wire {

// The limit of the part behind the length. A receiver that expects larger messages gives its own limit.
inline constexpr std::uint32_t kMaxFrameBytes = 1u << 20;
inline constexpr std::uint32_t kLargestFrameBytes = 64u << 20;  // no sender may exceed it
inline constexpr std::size_t kFrameHeaderBytes = sizeof(std::uint32_t) + sizeof(std::uint16_t);

struct Frame {
  std::uint16_t type = 0;
  Bytes body;

  // Decodes the message. Throws kProtocol if the type differs or the bytes are invalid.
  template <Message T>
  T as() const {
    if (type != T::kType) refuse_type(T::kType);
    return decode<T>(body, name());
  }

 private:
  std::string name() const;
  [[noreturn]] void refuse_type(std::uint16_t expected) const;
};

template <Message T>
T decode(const Frame& frame) {
  return frame.as<T>();
}

// Reads the next frame of a stream that has no other reader; nullopt if the stream ended before it. Memory grows with
// the bytes received, not with the announced length. A stop inside a frame loses its bytes; use a Channel where reading
// continues after a stop.
Task<std::optional<Frame>> read_frame(io::Stream& stream, std::uint32_t limit, Stop& stop);

// Fills in the header at the beginning of `bytes`. Throws kInvalidArgument if they exceed the longest frame.
void finish_frame(Bytes& bytes, std::uint16_t type);

// Encodes `message` with its header.
template <Message T>
Bytes encode_frame(const T& message) {
  Bytes bytes(kFrameHeaderBytes);
  Writer(bytes).put(message);
  finish_frame(bytes, T::kType);
  return bytes;
}
// Cuts a stream of bytes into frames. Its memory is bounded by the bytes received and by the limit.
class FrameBuffer {
 public:
  // `limit` is kMaxFrameBytes for authenticated peers, less for unauthenticated ones.
  explicit FrameBuffer(std::uint32_t limit = kMaxFrameBytes) noexcept : limit_(limit) {}

  // Space to read the next bytes into; pass the number of bytes read to commit().
  std::span<std::byte> space();
  void commit(std::size_t bytes) noexcept { end_ += bytes; }

  // Takes out the first whole frame. Throws kProtocol as soon as a length is out of bounds.
  std::optional<Frame> next();
  // The number of bytes of an incomplete frame.
  std::size_t pending() const noexcept { return end_ - begin_; }

 private:
  static constexpr std::size_t kReadBytes = 4096;
  std::uint32_t limit_;
  Bytes storage_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace aiacc::wire
