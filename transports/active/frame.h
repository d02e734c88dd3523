// The header of an active message between two ActivePorts: a frame, and after it the message's header, or what the frame says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "transports/message.h"

namespace aiacc::active {

inline constexpr std::size_t kClasses = kTrafficClasses;
inline constexpr std::uint16_t kFrameVersion = 5;  // with it kAddressVersion in active_port_factory.cc

enum class FrameKind : std::uint8_t {
  kMessage = 1,    // a MessageHeader follows; the payload is the message's
  kWithdrawn = 2,  // the sender does not want `number` to be delivered any more; it need not succeed
  kFarewell = 3,   // Counts follow: all messages that the sender has sent; it leaves
  kReceived = 4,   // the answer: all these have come
  kPart =
      5,  // as kMessage, and an offset follows: the payload is that part of the message's, and perhaps all; the receiver says kCame
  kCame = 6,  // the receiver has the part `number`, or holds or drops it
  kCounts =
      7  // Counts follow: all messages that the sender has sent so far. Comes behind them, as only one worker sends
};

// What the job's ranks alone can know: a digest of its secret. It distinguishes jobs, and is no protection from who can read it
// on the network.
using Token = std::array<std::uint8_t, 12>;

// Little-endian on the wire.
struct Frame {
  std::uint16_t version = kFrameVersion;
  FrameKind kind = FrameKind::kMessage;
  TrafficClass traffic = TrafficClass::kControl;  // of a message and of what is said about one: travels_with()
  std::uint32_t from = 0;                         // rank
  std::uint32_t epoch = 0;                        // MessagePort::renew()
  Token token{};
  std::uint64_t number = 0;  // of the message or part in its class, from 0
};
static_assert(sizeof(Frame) == 32 && std::is_trivially_copyable_v<Frame>);

// The class by whose endpoint a frame goes. An acknowledgement does not wait behind what its sender sends of that class.
inline TrafficClass travels_with(const Frame& frame) noexcept {
  return frame.kind == FrameKind::kCame ? TrafficClass::kControl : frame.traffic;
}

using Counts = std::array<std::uint64_t, kClasses>;

// The longest: a message's, or with the offset that of a part of one. The parts of a message have successive numbers, so they come one
// after the other, from its beginning; the first of another message comes instead of those that are missing when it is withdrawn.
struct FramedMessage {
  Frame frame;
  MessageHeader header;
  std::uint64_t offset = 0;
};
inline constexpr std::size_t kMessageBytes = sizeof(Frame) + sizeof(MessageHeader);
static_assert(offsetof(FramedMessage, offset) == kMessageBytes &&
              sizeof(FramedMessage) == kMessageBytes + sizeof(std::uint64_t));

// A longer message goes whole, so that a receiver keeps no more than that of each class.
inline constexpr std::uint64_t kMostDivided = 4 << 20;

struct FramedCounts {
  Frame frame;
  Counts counts{};
};

}  // namespace aiacc::active
