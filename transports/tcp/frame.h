// The frames of a data connection: 32 bytes, little-endian, as docs/wire-protocol.md lays them out. A frame that carries
// bytes of a message names them by the message's number and the offset, so any connection of the pair may carry them, and
// what has arrived is acknowledged by the same names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/message.h"

namespace aiacc::tcp {

inline constexpr std::uint16_t kFrameVersion = 3;
inline constexpr std::size_t kClasses = 3;

enum class FrameKind : std::uint8_t {
  kMessage = 1,       // a message's header follows, and then the first `length` bytes of its payload
  kChunk = 2,         // `length` bytes of the payload follow, which begin at `offset`
  kArrived = 3,       // the headers of all messages up to `offset` and all bytes of those up to `number` have arrived
  kChunkArrived = 4,  // these bytes of this message have arrived
  kAsk = 5,           // asks for an acknowledgement at once
  kFarewell = 6,      // the sender leaves in order: its end of stream follows
};

struct Frame {
  std::uint16_t version = kFrameVersion;
  FrameKind kind = FrameKind::kMessage;
  TrafficClass traffic = TrafficClass::kControl;
  std::uint32_t reserved = 0;
  std::uint64_t number = 0;  // of the message among those of its class, from 1
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
inline constexpr std::size_t kFrameBytes = sizeof(Frame);
static_assert(kFrameBytes == 32 && std::has_unique_object_representations_v<Frame>);

void encode_frame(const Frame& frame, std::span<std::byte, kFrameBytes> into) noexcept;
// Throws kProtocol for a frame that no port sends.
Frame decode_frame(std::span<const std::byte, kFrameBytes> bytes);

}  // namespace aiacc::tcp
