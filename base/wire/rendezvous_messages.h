// How ranks that no agent brings together meet: rank 0 listens, the others call it. Each of these connections begins with the
// handshake of purpose kControl and is encrypted (base/wire/secure_channel.h), and stays for life:
//
//   rank   Arrive → Waiting* → (Roster, ReturnTo | TurnedAway) → Neighbours → (Settled | TurnedAway)
//          → RankLost* → (Leave | Gone)
//   both   RankLost: rank 0 tells all, and a rank tells rank 0 whose process on its own host has ended
//   rank 0 (Arrive) → wait until every rank has come → Roster, ReturnTo → (Neighbours) → wait for all of them → Settled
//
// Roster, ReturnTo, Settled, RankLost and Gone are said to all, in one order. A rank whose connection breaks once it has ReturnTo
// makes another one, to that port, and says how many of them it has (Return): it hears the rest.
//
// Between Roster and Neighbours each rank looks for the lowest rank whose local socket it reaches: that one shares its host. It
// makes the segment and hands it out over these local connections, which begin with the handshake of purpose kNeighbour.
// RankLost, Leave, Gone and Refused are base/wire/agent_messages.h's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/wire/hidden.h"

namespace aiacc::wire {

inline constexpr std::uint16_t kRendezvousProtocol = 1;

// Rank → rank 0. `protocol` and `version` stand first in every version, so that either can be named.
struct Arrive {
  static constexpr std::uint16_t kType = 301;
  std::uint16_t protocol = kRendezvousProtocol;
  std::string version;  // of libaiacc
  std::string job;      // as the user calls it, often empty
  std::int32_t rank = -1;
  std::int32_t size = -1;
  std::string host_name;               // for sentences
  std::vector<std::string> addresses;  // numeric, the likeliest first, never loopback
  std::uint16_t data_port = 0;
  std::string local_name;  // of an abstract local socket; empty: it shares memory with nobody
  // Its connections that ended before both ends had proved themselves: rank 0 takes them for strangers.
  std::uint32_t dropped = 0;
  std::string process;  // what the system of its host calls it (base/io/processes.h); empty: not known
  auto fields() {
    return std::tie(protocol, version, job, rank, size, host_name, addresses, data_port, local_name, dropped, process);
  }
};

// Rank 0 → rank, every second: what the deadline's sentence will say.
struct Waiting {
  static constexpr std::uint16_t kType = 302;
  std::string sentence;
  auto fields() { return std::tie(sentence); }
};

// Rank 0 → rank: it cannot take part, or there is no job. Then the connection ends.
struct TurnedAway {
  static constexpr std::uint16_t kType = 303;
  std::int32_t code = 0;  // aiacc::Code
  std::string sentence;
  auto fields() { return std::tie(code, sentence); }
};

struct RosterEntry {
  std::string host_name;
  std::vector<std::string> addresses;  // the one that rank 0 saw first
  std::uint16_t data_port = 0;
  std::string local_name;
  bool near = false;  // its connection to rank 0 is a loopback one: both are on one machine
  std::string process;
  auto fields() { return std::tie(host_name, addresses, data_port, local_name, near, process); }
};

// Rank 0 → rank, when all have come.
struct Roster {
  static constexpr std::uint16_t kType = 304;
  std::uint64_t job = 0;  // random
  HiddenText secret;      // of this job's connections, 32 bytes
  std::vector<RosterEntry> ranks;
  auto fields() { return std::tie(job, secret, ranks); }
};

// Rank 0 → rank, behind the roster: on which port it is found from now on. Handshakes there have the roster's job and secret.
struct ReturnTo {
  static constexpr std::uint16_t kType = 307;
  std::uint16_t port = 0;
  auto fields() { return std::tie(port); }
};

// Rank → rank 0, first on a connection that takes the place of a broken one.
struct Return {
  static constexpr std::uint16_t kType = 308;
  std::uint32_t heard = 0;  // of what is said to all, the roster first
  auto fields() { return std::tie(heard); }
};

// Rank → rank 0: the lowest rank of its host, perhaps itself.
struct Neighbours {
  static constexpr std::uint16_t kType = 305;
  std::int32_t first = 0;
  auto fields() { return std::tie(first); }
};

// Rank 0 → rank: what all of them said.
struct Settled {
  static constexpr std::uint16_t kType = 306;
  std::vector<std::int32_t> firsts;  // by rank
  auto fields() { return std::tie(firsts); }
};

// First rank of a host → another one there, over the local connection, with the segment's descriptor on its first byte; or
// Refused.
struct ShareSegment {
  static constexpr std::uint16_t kType = 310;
  std::uint64_t nonce = 0;  // stands in the segment's first page
  auto fields() { return std::tie(nonce); }
};

// What rank 0 puts into the caller's store, without a frame around it. `protocol` stands first in every version.
using SecretBytes = std::array<std::byte, 32>;
struct StoredMeeting {
  std::uint16_t protocol = kRendezvousProtocol;
  SecretBytes secret{};
  std::uint16_t port = 0;
  std::vector<std::string> addresses;  // where rank 0 listens; its own loopback addresses last
  auto fields() { return std::tie(protocol, secret, port, addresses); }
};

}  // namespace aiacc::wire
