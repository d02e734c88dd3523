// What a rank and its host's agent say to each other over the agent's local socket (AIACC_AGENT=local:NAME).
//
// Framing is base/wire/frame.h's; base/wire/codec.h makes encoder, decoder and limits from each message's `fields`. State machine of a rank:
//
//   connect → Hello → Missing* → (Welcome + the segment's descriptor | Refused) → (RankLost | PeerLost)* → Leave → Gone
//
// The agent knows who is calling by SO_PEERCRED: the caller's user, and that its process descends from a rank it started.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/wire/hidden.h"

namespace aiacc::wire {

inline constexpr std::uint16_t kAgentProtocol = 1;

// Rank → agent. First message of a connection.
struct Hello {
  static constexpr std::uint16_t kType = 1;
  std::uint16_t protocol = kAgentProtocol;
  std::string library_version;  // of libaiacc, e.g. "0.1.0"; all ranks of a job must agree
  std::int32_t rank = -1;       // AIACC_RANK of the caller; the agent checks it against the caller's ancestry
  std::int32_t size = -1;       // AIACC_SIZE of the caller, or what the program gave explicitly
  std::uint16_t data_port = 0;  // TCP port for ranks of other hosts; 0 in a job of one host
  auto fields() { return std::tie(protocol, library_version, rank, size, data_port); }
};

// A host of the job as other hosts reach it. Addresses are numeric (IPv4 or IPv6), the likeliest first, never loopback.
struct HostEntry {
  std::string name;
  std::vector<std::string> addresses;
  auto fields() { return std::tie(name, addresses); }
};

// Agent → rank, when every rank of the job has said hello (the fence). The segment's descriptor rides with its first byte.
struct Welcome {
  static constexpr std::uint16_t kType = 2;
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::int32_t local_rank = 0;
  std::int32_t local_size = 1;
  std::uint64_t job = 0;            // random
  std::uint64_t segment_nonce = 0;  // stands in the segment's first page: proves that the mapping is the agent's
  std::string host_name;
  std::vector<std::uint32_t> hosts_of_ranks;  // host index of each rank
  std::vector<HostEntry> hosts;               // in the order of their indices
  std::vector<std::uint16_t> data_ports;      // of each rank; all 0 in a job of one host
  HiddenText secret;                          // the job's, 32 bytes; empty in a job of one host
  auto fields() {
    return std::tie(rank, size, local_rank, local_size, job, segment_nonce, host_name, hosts_of_ranks, hosts,
                    data_ports, secret);
  }
};

// Agent → rank: the sentence says why (versions or sizes disagree, a second process claims a live rank …). Then it closes.
struct Refused {
  static constexpr std::uint16_t kType = 3;
  std::int32_t code = 0;  // aiacc::Code
  std::string sentence;
  auto fields() { return std::tie(code, sentence); }
};

// Agent → rank that waits for others: who has come so far, and who has not. The rank says it if its time ends.
struct Missing {
  static constexpr std::uint16_t kType = 8;
  std::string sentence;
  auto fields() { return std::tie(sentence); }
};

// Agent → rank: that rank is gone without leaving; no more is heard of it.
struct RankLost {
  static constexpr std::uint16_t kType = 4;
  std::int32_t rank = 0;
  std::string sentence;  // "rank 3 on host a was killed by signal 9"
  auto fields() { return std::tie(rank, sentence); }
};

// Rank → agent: a group of mine has ended because that rank is gone. If this rank fails now it is for that reason, and the
// other one's end is the job's first failure.
struct PeerLost {
  static constexpr std::uint16_t kType = 7;
  std::int32_t rank = 0;
  std::uint64_t strangers = 0;  // that this rank has turned away so far: it may never come to Leave
  auto fields() { return std::tie(rank, strangers); }
};

// Rank → agent: I finalize. Answered by Gone; the connection then closes.
struct Leave {
  static constexpr std::uint16_t kType = 5;
  std::uint64_t strangers = 0;  // that this rank has turned away
  auto fields() { return std::tie(strangers); }
};
struct Gone {
  static constexpr std::uint16_t kType = 6;
  auto fields() { return std::tie(); }
};

}  // namespace aiacc::wire
