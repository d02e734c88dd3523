// The header of a message on a connection: 96 bytes, little-endian, as docs/wire-protocol.md lays them out.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "transports/message.h"

namespace aiacc::tcp {

inline constexpr std::size_t kHeaderBytes = sizeof(MessageHeader);

void encode_header(const MessageHeader& header, std::span<std::byte, kHeaderBytes> into) noexcept;
// Throws kProtocol for a header that no port sends.
void decode_header(std::span<const std::byte, kHeaderBytes> bytes, MessageHeader& header);
inline MessageHeader decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  MessageHeader header;
  decode_header(bytes, header);
  return header;
}

}  // namespace aiacc::tcp
