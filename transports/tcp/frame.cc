#include "transports/tcp/frame.h"

#include <fmt/format.h>

namespace aiacc::tcp {
namespace {

static_assert(offsetof(Frame, kind) == 2 && offsetof(Frame, traffic) == 3 && offsetof(Frame, reserved) == 4 &&
              offsetof(Frame, number) == 8 && offsetof(Frame, offset) == 16 && offsetof(Frame, length) == 24);

[[noreturn]] void refuse_frame(const char* what, std::uint64_t value) {
  throw Error(Code::kProtocol, fmt::format("a frame came with {} {}", what, value));
}

}  // namespace

void check_frame(const Frame& frame) {
  const auto kind = static_cast<std::uint64_t>(frame.kind);
  if (frame.version != kFrameVersion) refuse_frame("version", frame.version);
  if (frame.kind < FrameKind::kMessage || frame.kind > FrameKind::kFarewell) refuse_frame("kind", kind);
  if (frame.traffic > TrafficClass::kBackground)
    refuse_frame("traffic class", static_cast<std::uint64_t>(frame.traffic));
  const bool named = frame.kind <= FrameKind::kChunkArrived;  // has a class and a number
  const bool has_offset = named && frame.kind != FrameKind::kMessage;
  const bool has_length = named && frame.kind != FrameKind::kArrived;
  if (frame.reserved != 0 || (!named && (frame.traffic != TrafficClass::kControl || frame.number != 0)) ||
      (!has_offset && frame.offset != 0) || (!has_length && frame.length != 0)) {
    refuse_frame("something in the unused fields of kind", kind);
  }
  if (has_length && frame.number == 0) refuse_frame("no number and kind", kind);
}

}  // namespace aiacc::tcp
