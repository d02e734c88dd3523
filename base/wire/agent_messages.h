// The messages between a rank and its host's agent over the agent's local socket (AIACC_AGENT=local:NAME).
//
// Framing: base/wire/frame.h. base/wire/codec.h derives encoder, decoder and limits from each message's `fields`.
// State machine of a rank:
//
//   connect → Hello → Missing* → (Welcome + the segment's descriptor | RankLost? → Refused)
//           → (RankLost | HostsUpdated | PeerLost | PathLost)* → Leave → Gone
//
// The agent identifies a peer by SO_PEERCRED: its user, and its process, which must descend from a rank that the agent
// started.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/wire/hidden.h"
#include "base/wire/port_address.h"

namespace aiacc::wire {

// Version 1 had TCP ports only, version 2 no HostsUpdated, version 3 no RankLost before Refused.
inline constexpr std::uint16_t kAgentProtocol = 4;

// Rank → agent: the first message of a connection.
struct Hello {
  static constexpr std::uint16_t kType = 1;
  std::uint16_t protocol = kAgentProtocol;
  std::string library_version;  // of libaiacc, e.g. "0.1.0"; all ranks of a job must agree
  std::int32_t rank = -1;       // AIACC_RANK of the caller; the agent checks it against the caller's ancestry
  std::int32_t size = -1;       // AIACC_SIZE of the caller, or an explicit argument of the program
  RankPorts ports;              // for ranks of other hosts
  auto fields() { return std::tie(protocol, library_version, rank, size, ports); }
};

// How other hosts reach a host of the job. Addresses are numeric (IPv4 or IPv6), the most likely first, never loopback.
struct HostEntry {
  std::string name;
  std::vector<std::string> addresses;
  auto fields() { return std::tie(name, addresses); }
};

// Agent → rank, when every rank of the job has said hello (the start barrier). The segment's descriptor is sent with
// its first byte.
struct Welcome {
  static constexpr std::uint16_t kType = 2;
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::int32_t local_rank = 0;
  std::int32_t local_size = 1;
  std::uint64_t job = 0;  // random
  // Stored in the segment's first page: proves that the rank has mapped the agent's segment.
  std::uint64_t segment_nonce = 0;
  std::string host_name;
  std::vector<std::uint32_t> hosts_of_ranks;  // host index of each rank
  std::vector<HostEntry> hosts;               // in the order of their indices
  std::vector<RankPorts> ports;               // of each rank
  HiddenText secret;                          // the job's, 32 bytes; empty in a job of one host
  auto fields() {
    return std::tie(rank, size, local_rank, local_size, job, segment_nonce, host_name, hosts_of_ranks, hosts, ports,
                    secret);
  }
};

// Agent → rank: the sentence says why (versions or sizes disagree, a second process claims a live rank …). Then the
// agent closes the connection.
struct Refused {
  static constexpr std::uint16_t kType = 3;
  std::int32_t code = 0;  // aiacc::Code
  std::string sentence;
  auto fields() { return std::tie(code, sentence); }
};

// Agent → rank that waits for others: which ranks have said hello and which have not. The rank reports it if its wait
// times out.
struct Missing {
  static constexpr std::uint16_t kType = 8;
  std::string sentence;
  auto fields() { return std::tie(sentence); }
};

// Agent → rank: that rank ended without leaving in order. It is reported once. Before Refused: that rank is the reason.
struct RankLost {
  static constexpr std::uint16_t kType = 4;
  std::int32_t rank = 0;
  std::string sentence;  // "rank 3 on host a was killed by signal 9"
  auto fields() { return std::tie(rank, sentence); }
};

// Agent → rank of an elastic job: the next world has other ranks than this one, and the rank may leave for it.
struct HostsUpdated {
  static constexpr std::uint16_t kType = 10;
  std::uint8_t what = 0;  // kRanksRemoved, kRanksAdded or both
  auto fields() { return std::tie(what); }
};
inline constexpr std::uint8_t kRanksRemoved = 1;
inline constexpr std::uint8_t kRanksAdded = 2;

// Rank → agent: a group of the sender ended because that rank is lost. If the sender exits now, that is a consequence,
// and the other rank's end is the job's first failure.
struct PeerLost {
  static constexpr std::uint16_t kType = 7;
  std::int32_t rank = 0;
  // Peers that this rank has refused so far; sent now because Leave may never follow.
  std::uint64_t unauthenticated = 0;
  auto fields() { return std::tie(rank, unauthenticated); }
};

// Rank → agent: a group of the sender ended because the network between two ranks was broken for too long. No earlier
// failure of a rank is known.
struct PathLost {
  static constexpr std::uint16_t kType = 9;
  std::string sentence;
  std::uint64_t unauthenticated = 0;  // as in PeerLost
  auto fields() { return std::tie(sentence, unauthenticated); }
};

// Rank → agent: the rank finalizes. The agent answers with Gone; then the connection closes.
struct Leave {
  static constexpr std::uint16_t kType = 5;
  std::uint64_t unauthenticated = 0;  // peers that this rank has refused
  auto fields() { return std::tie(unauthenticated); }
};
struct Gone {
  static constexpr std::uint16_t kType = 6;
  auto fields() { return std::tie(); }
};

}  // namespace aiacc::wire
