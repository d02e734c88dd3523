// The header of a message on a connection: 96 bytes, little-endian, as docs/wire-protocol.md lays them out.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "transports/message.h"

namespace aiacc::tcp {

inline constexpr std::size_t kHeaderBytes = sizeof(MessageHeader);

// A header of kind kAck belongs to the port and is not a message: it says that `sequence` messages of the other
// direction have arrived. These are its flags; its other fields are zero.
inline constexpr std::uint32_t kAckAsks = 1;  // asks for an acknowledgement at once
// the farewell of a rank that leaves in order: its end of stream follows
inline constexpr std::uint32_t kAckLeaves = 2;
MessageHeader ack_header(std::uint64_t received, std::uint32_t flags) noexcept;

void encode_header(const MessageHeader& header, std::span<std::byte, kHeaderBytes> into) noexcept;
// Throws kProtocol for a header that no port sends.
MessageHeader decode_header(std::span<const std::byte, kHeaderBytes> bytes);

}  // namespace aiacc::tcp
