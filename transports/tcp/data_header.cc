#include "transports/tcp/data_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace aiacc::tcp {
namespace {

// The structure is the layout, on a machine of the same byte order.
static_assert(std::has_unique_object_representations_v<MessageHeader>);
static_assert(offsetof(MessageHeader, step) == 4 && offsetof(MessageHeader, group) == 16 &&
              offsetof(MessageHeader, flags) == 28 && offsetof(MessageHeader, algorithm) == 30 &&
              offsetof(MessageHeader, sequence) == 32 && offsetof(MessageHeader, offset) == 56 &&
              offsetof(MessageHeader, sent_ns) == 88);

template <class T>
void swap_bytes(T& value) noexcept {
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  std::reverse(bytes, bytes + sizeof value);
}

// From this machine's byte order to the wire's, or back.
void reorder([[maybe_unused]] MessageHeader& header) noexcept {
  if constexpr (std::endian::native == std::endian::big) {
    const auto swap_all = [](auto&... fields) { (swap_bytes(fields), ...); };
    swap_all(header.version, header.step, header.member, header.incarnation, header.group, header.epoch, header.flags,
             header.algorithm, header.sequence, header.fingerprint, header.schedule, header.offset, header.length,
             header.total, header.credit_limit, header.sent_ns);
  }
}

[[noreturn]] void refuse(const char* what, std::uint64_t value) {
  throw Error(Code::kProtocol, fmt::format("a message header came with {} {}", what, value));
}

}  // namespace

MessageHeader ack_header(std::uint64_t received, std::uint32_t flags) noexcept {
  MessageHeader header;
  header.kind = MessageKind::kAck;
  header.traffic = TrafficClass::kControl;
  header.flags = static_cast<std::uint16_t>(flags);
  header.sequence = received;
  return header;
}

void encode_header(const MessageHeader& header, std::span<std::byte, kHeaderBytes> into) noexcept {
  MessageHeader ordered = header;
  reorder(ordered);
  std::memcpy(into.data(), &ordered, sizeof ordered);
}

MessageHeader decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  MessageHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  reorder(header);
  if (header.version != kMessageVersion) refuse("version", header.version);
  if (header.kind < MessageKind::kEager || header.kind > MessageKind::kService) {
    refuse("kind", static_cast<std::uint64_t>(header.kind));
  }
  if (header.traffic > TrafficClass::kBulk) refuse("traffic class", static_cast<std::uint64_t>(header.traffic));
  if (header.kind == MessageKind::kAck) {
    if (header.flags > (kAckAsks | kAckLeaves)) refuse("flags", header.flags);
    const MessageHeader clean = ack_header(header.sequence, header.flags);
    if (std::memcmp(&clean, &header, sizeof header) != 0) refuse("something in the unused fields of kind", 5);
  }
  return header;
}

}  // namespace aiacc::tcp
