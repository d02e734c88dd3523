#include "transports/tcp/frame.h"

#include <fmt/format.h>

#include <cstring>

#include "transports/tcp/byte_order.h"

namespace aiacc::tcp {
namespace {

static_assert(offsetof(Frame, kind) == 2 && offsetof(Frame, traffic) == 3 && offsetof(Frame, reserved) == 4 &&
              offsetof(Frame, number) == 8 && offsetof(Frame, offset) == 16 && offsetof(Frame, length) == 24);

void reorder(Frame& frame) noexcept {
  to_wire_order(frame.version, frame.reserved, frame.number, frame.offset, frame.length);
}

[[noreturn]] void refuse(const char* what, std::uint64_t value) {
  throw Error(Code::kProtocol, fmt::format("a frame came with {} {}", what, value));
}

}  // namespace

void encode_frame(const Frame& frame, std::span<std::byte, kFrameBytes> into) noexcept {
  Frame ordered = frame;
  reorder(ordered);
  std::memcpy(into.data(), &ordered, sizeof ordered);
}

Frame decode_frame(std::span<const std::byte, kFrameBytes> bytes) {
  Frame frame;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  reorder(frame);
  const auto kind = static_cast<std::uint64_t>(frame.kind);
  if (frame.version != kFrameVersion) refuse("version", frame.version);
  if (frame.kind < FrameKind::kMessage || frame.kind > FrameKind::kFarewell) refuse("kind", kind);
  if (frame.traffic > TrafficClass::kBulk) refuse("traffic class", static_cast<std::uint64_t>(frame.traffic));
  const bool named = frame.kind <= FrameKind::kChunkArrived;  // has a class and a number
  const bool has_offset = named && frame.kind != FrameKind::kMessage;
  const bool has_length = named && frame.kind != FrameKind::kArrived;
  if (frame.reserved != 0 || (!named && (frame.traffic != TrafficClass::kControl || frame.number != 0)) ||
      (!has_offset && frame.offset != 0) || (!has_length && frame.length != 0)) {
    refuse("something in the unused fields of kind", kind);
  }
  if (has_length && frame.number == 0) refuse("no number and kind", kind);
  return frame;
}

}  // namespace aiacc::tcp
