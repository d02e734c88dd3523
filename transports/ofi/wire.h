// What two modules aiacc-ofi.so send each other, each in one message of libfabric: a WireHeader, and after it what its kind says.
//
//   sender                         receiver
//   kEager  header, payload   -->              a short payload
//   kOffer  header, address,  -->              a long one, which stays where it is, and is read from there by RMA
//           where it is                        where the provider can; else
//                             <--  kGrant      so many of its bytes may come; granted on while they do
//   kChunk  bytes             -->              ... until all have come
//                             <--  kEnd        they have, or the receiver does not want it
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace aiacc::active {

enum class WireKind : std::uint8_t { kEager = 1, kOffer = 2, kGrant = 3, kEnd = 4, kChunk = 5 };

inline constexpr std::uint16_t kWireVersion = 2;

// Little-endian.
struct WireHeader {
  std::uint16_t version = kWireVersion;
  WireKind kind = WireKind::kEager;
  std::uint8_t exposed = 0;         // of kOffer: how many Exposed follow the address; 0: the payload comes in chunks
  std::uint16_t header_bytes = 0;   // of kEager and kOffer: the header that the caller of send() gave
  std::uint16_t address_bytes = 0;  // of kOffer: where the answers go
  std::uint64_t send = 0;           // the sender's number of an offer; not of kEager and kChunk
  std::uint64_t fetch = 0;          // the receiver's number, of kGrant and kChunk
  std::uint64_t bytes = 0;          // kOffer: of the payload; kGrant: how many of it may be sent in all
  std::uint64_t offset = 0;         // of kChunk: in the payload
};
static_assert(sizeof(WireHeader) == 40 && std::is_trivially_copyable_v<WireHeader>);

// A piece of a payload that the receiver may read.
struct Exposed {
  std::uint64_t address = 0;  // for fi_read()
  std::uint64_t key = 0;
  std::uint64_t bytes = 0;
};
inline constexpr std::size_t kMostExposed = 8;  // of one payload; in more pieces it comes in chunks

// No message is longer. With the caller's header it holds every payload that is sent eagerly.
inline constexpr std::size_t kWireBytes = 64 << 10;
inline constexpr std::size_t kChunkBytes = kWireBytes - sizeof(WireHeader);
// Of one payload, granted and not yet come. More than the delay of a network takes, little enough for many senders at once.
inline constexpr std::size_t kGrantBytes = 16 * kChunkBytes;

}  // namespace aiacc::active
