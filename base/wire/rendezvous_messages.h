// The messages of a rendezvous without an agent: rank 0 listens, the others dial it. Each of these connections begins
// with the handshake of purpose kControl, is encrypted (base/wire/secure_channel.h), and exists as long as the rank
// takes part:
//
//   rank   Arrive → Waiting* → (Roster, ReconnectPort | JoinRefused) → LocalPeers → (HostMap | JoinRefused)
//          → RankLost* → (Leave | Gone)
//   both   RankLost: rank 0 tells all ranks, and a rank reports to rank 0 that a process on its own host has ended
//   rank 0 (Arrive) → wait until every rank has come → Roster, ReconnectPort → (LocalPeers) → wait for all of them → HostMap
//
// Roster, ReconnectPort, HostMap, RankLost and Gone go to all ranks in one order. A rank whose connection breaks after
// ReconnectPort dials that port, says how many of these messages it has (Resume), and receives the rest.
//
// Between Roster and LocalPeers each rank finds the lowest rank whose local socket it reaches, which is on its host.
// The lowest rank of a host creates the segment and passes it to the others over these local connections, which begin
// with the handshake of purpose kLocalPeer. RankLost, Leave, Gone and Refused are in base/wire/agent_messages.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/wire/hidden.h"
#include "base/wire/port_address.h"

namespace aiacc::wire {

inline constexpr std::uint16_t kRendezvousProtocol = 2;  // version 1 had TCP ports only

// Rank → rank 0. Every version begins with `protocol` and `version`, so that a difference can be reported.
struct Arrive {
  static constexpr std::uint16_t kType = 301;
  std::uint16_t protocol = kRendezvousProtocol;
  std::string version;  // of libaiacc
  std::string job;      // the user's name for the job, often empty
  std::int32_t rank = -1;
  std::int32_t size = -1;
  std::string host_name;               // for messages to the user
  std::vector<std::string> addresses;  // numeric, the most likely first, never loopback
  RankPorts ports;
  std::string local_name;  // of its abstract local socket; empty: it shares memory with no rank
  // Its connections that ended before both ends had proved themselves, which rank 0 has counted as unauthenticated
  // peers.
  std::uint32_t dropped = 0;
  std::string process;  // its process's name on its host (base/io/processes.h); empty: unknown
  auto fields() {
    return std::tie(protocol, version, job, rank, size, host_name, addresses, ports, local_name, dropped, process);
  }
};

// Rank 0 → rank, every second: the text for the error if the deadline passes.
struct Waiting {
  static constexpr std::uint16_t kType = 302;
  std::string sentence;
  auto fields() { return std::tie(sentence); }
};

// Rank 0 → rank: the rank cannot take part, or the job has failed. Then rank 0 closes the connection.
struct JoinRefused {
  static constexpr std::uint16_t kType = 303;
  std::int32_t code = 0;  // aiacc::Code
  std::string sentence;
  auto fields() { return std::tie(code, sentence); }
};

struct RosterEntry {
  std::string host_name;
  std::vector<std::string> addresses;  // the address from which rank 0 saw it connect comes first
  RankPorts ports;
  std::string local_name;
  bool near = false;  // it reached rank 0 over loopback, so both are on one machine
  std::string process;
  auto fields() { return std::tie(host_name, addresses, ports, local_name, near, process); }
};

// Rank 0 → rank, when all ranks have arrived.
struct Roster {
  static constexpr std::uint16_t kType = 304;
  std::uint64_t job = 0;  // random
  HiddenText secret;      // the secret of this job's connections, 32 bytes
  std::vector<RosterEntry> ranks;
  auto fields() { return std::tie(job, secret, ranks); }
};

// Rank 0 → rank, after the roster: the port for reconnecting. Handshakes there use the roster's job and secret.
struct ReconnectPort {
  static constexpr std::uint16_t kType = 307;
  std::uint16_t port = 0;
  auto fields() { return std::tie(port); }
};

// Rank → rank 0: the first message on a connection that replaces a broken one.
struct Resume {
  static constexpr std::uint16_t kType = 308;
  std::uint32_t received = 0;  // how many messages to all ranks it has, the roster included
  auto fields() { return std::tie(received); }
};

// Rank → rank 0: the lowest rank of its host, which may be itself.
struct LocalPeers {
  static constexpr std::uint16_t kType = 305;
  std::int32_t first = 0;
  auto fields() { return std::tie(first); }
};

// Rank 0 → rank: which ranks share a host: the LocalPeers of all ranks.
struct HostMap {
  static constexpr std::uint16_t kType = 306;
  std::vector<std::int32_t> firsts;  // by rank: the lowest rank of its host
  auto fields() { return std::tie(firsts); }
};

// First rank of a host → another rank there, over the local connection; the segment's descriptor is sent with its first
// byte. Or Refused.
struct ShareSegment {
  static constexpr std::uint16_t kType = 310;
  std::uint64_t nonce = 0;  // stored in the segment's first page
  auto fields() { return std::tie(nonce); }
};

// The value that rank 0 puts into the caller's store, without a frame. Every version begins with `protocol`.
using SecretBytes = std::array<std::byte, 32>;
struct StoredRendezvous {
  std::uint16_t protocol = kRendezvousProtocol;
  SecretBytes secret{};
  std::uint16_t port = 0;
  std::vector<std::string> addresses;  // where rank 0 listens; its own loopback addresses last
  auto fields() { return std::tie(protocol, secret, port, addresses); }
};

}  // namespace aiacc::wire
