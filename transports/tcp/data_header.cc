#include "transports/tcp/data_header.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>

#include "transports/tcp/byte_order.h"

namespace aiacc::tcp {
namespace {

// The structure is the layout, on a machine of the same byte order.
static_assert(std::has_unique_object_representations_v<MessageHeader>);
static_assert(offsetof(MessageHeader, step) == 4 && offsetof(MessageHeader, group) == 16 &&
              offsetof(MessageHeader, flags) == 28 && offsetof(MessageHeader, algorithm) == 30 &&
              offsetof(MessageHeader, sequence) == 32 && offsetof(MessageHeader, offset) == 56 &&
              offsetof(MessageHeader, sent_ns) == 88);

void reorder(MessageHeader& header) noexcept {
  to_wire_order(header.version, header.step, header.member, header.incarnation, header.group, header.epoch,
                header.flags, header.algorithm, header.sequence, header.fingerprint, header.schedule, header.offset,
                header.length, header.total, header.credit_limit, header.sent_ns);
}

[[noreturn]] void refuse_header(const char* what, std::uint64_t value) {
  throw Error(Code::kProtocol, fmt::format("a message header came with {} {}", what, value));
}

}  // namespace

void encode_header(const MessageHeader& header, std::span<std::byte, kHeaderBytes> into) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(into.data(), &header, sizeof header);
    return;
  }
  MessageHeader ordered = header;
  reorder(ordered);
  std::memcpy(into.data(), &ordered, sizeof ordered);
}

void decode_header(std::span<const std::byte, kHeaderBytes> bytes, MessageHeader& header) {
  std::memcpy(&header, bytes.data(), sizeof header);
  reorder(header);
  if (header.version != kMessageVersion) refuse_header("version", header.version);
  if (!is_kind(header.kind)) refuse_header("kind", static_cast<std::uint64_t>(header.kind));
  if (header.traffic > TrafficClass::kBackground)
    refuse_header("traffic class", static_cast<std::uint64_t>(header.traffic));
}

}  // namespace aiacc::tcp
