// Frames: how messages stand one behind the other on a stream. A 32-bit little-endian length of what follows, a 16-bit
// message type, the message's fields.
#pragma once

#include <optional>
#include <string>

#include "base/io/net.h"
#include "base/wire/codec.h"

namespace aiacc::wire {

// Of what follows the length. Receivers say what they take: this much, unless the message is known to be larger.
inline constexpr std::uint32_t kMaxFrameBytes = 1u << 20;
inline constexpr std::uint32_t kLargestFrameBytes = 64u << 20;  // no sender makes a longer one
inline constexpr std::size_t kFrameHeaderBytes = sizeof(std::uint32_t) + sizeof(std::uint16_t);

struct Frame {
  std::uint16_t type = 0;
  Bytes body;

  // The message in it; kProtocol if it is of another type or its bytes are wrong.
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

// The next frame of a stream that nothing else reads from; nullopt if it ended before one. Memory grows with what came, not
// with what was announced. A stop in the middle loses the place: where reading goes on after a stop, use a Channel.
Task<std::optional<Frame>> read_frame(io::Stream& stream, std::uint32_t limit, Stop& stop);

// Fills in the header at the beginning of `bytes`. Throws kInvalidArgument if they are more than any frame may be.
void finish_frame(Bytes& bytes, std::uint16_t type);

// `message` as it goes out.
template <Message T>
Bytes encode_frame(const T& message) {
  Bytes bytes(kFrameHeaderBytes);
  Writer(bytes).put(message);
  finish_frame(bytes, T::kType);
  return bytes;
}
// Cuts a stream of bytes into frames. Its memory is bounded by the bytes that really came and by the limit.
class FrameBuffer {
 public:
  // `limit` is kMaxFrameBytes for peers that are known, less for strangers.
  explicit FrameBuffer(std::uint32_t limit = kMaxFrameBytes) noexcept : limit_(limit) {}

  // Room for the next bytes to be read into; commit() says how many of it were.
  std::span<std::byte> space();
  void commit(std::size_t bytes) noexcept { end_ += bytes; }

  // The first whole frame, taken out. Throws kProtocol as soon as a length is out of bounds.
  std::optional<Frame> next();
  // Bytes of a frame that is not whole.
  std::size_t pending() const noexcept { return end_ - begin_; }

 private:
  static constexpr std::size_t kReadBytes = 4096;
  std::uint32_t limit_;
  Bytes storage_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace aiacc::wire
