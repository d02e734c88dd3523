// The frames of a data connection: 32 bytes, little-endian, as docs/wire-protocol.md lays them out. A frame that carries
// bytes of a message names them by the message's number and the offset, so any connection of the pair may carry them, and
// what has arrived is acknowledged by the same names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transports/message.h"
#include "transports/tcp/byte_order.h"

namespace aiacc::tcp {

inline constexpr std::uint16_t kFrameVersion = 5;
inline constexpr std::size_t kClasses = kTrafficClasses;
inline constexpr unsigned kAllClasses = (1U << kClasses) - 1;

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

inline void encode_frame(const Frame& frame, std::span<std::byte, kFrameBytes> into) noexcept {
  Frame ordered = frame;
  to_wire_order(ordered.version, ordered.reserved, ordered.number, ordered.offset, ordered.length);
  std::memcpy(into.data(), &ordered, sizeof ordered);
}

void check_frame(const Frame& frame);  // throws kProtocol for a frame that no port sends

inline Frame decode_frame(std::span<const std::byte, kFrameBytes> bytes) {
  Frame frame;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  to_wire_order(frame.version, frame.reserved, frame.number, frame.offset, frame.length);
  const bool usual = frame.version == kFrameVersion && frame.kind == FrameKind::kMessage &&
                     frame.traffic <= TrafficClass::kBackground && frame.reserved == 0 && frame.number != 0 &&
                     frame.offset == 0;
  if (!usual) check_frame(frame);
  return frame;
}

}  // namespace aiacc::tcp
