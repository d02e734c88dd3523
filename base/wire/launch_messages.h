// The messages between aiaccrun and the agent of a host, over the agent's standard input and output: two pipes on this
// host, the streams of ssh or another starter to other hosts. Frames (base/wire/frame.h) may have up to
// kLargestFrameBytes, because a StartJob carries environments.
//
//   aiaccrun → agent    Greeting → FindSameHost? → StartJob → StartRanks
//                       → (SignalRanks | EndRanks | Credit | Input | OpenWorld | RefuseWorld | LoseRank | QueryExits
//                          | RanksMissing | SettleRank | AddRanks | DismissRank
//                          | UpdateHosts)* → DropOutput? → end of stream
//   agent → aiaccrun    the answer to the marker, which is not a frame → AgentUp → SameHostFound? → (Prepared | NotStarted)
//                       → (Started | NotStarted)
//                       → (Output | InputCredit | InputClosed | RankChanged | RankStopped | Notice | HostReady
//                          | LoseRank | ExitsReported)* → JobEnded
//   both, at any time   Beat
//
// StartRanks is sent when every host is prepared, so a host that refuses its part does so before any rank runs. A login
// may print text before the agent answers; aiaccrun skips it up to the answer (launcher/channel/marker.h). FindSameHost is
// sent if several hosts describe their machine in the same way. If some of them turn out to be one machine, all agents
// are dismissed without a job, and the job is planned again. HostReady, OpenWorld, RefuseWorld and LoseRank are for
// jobs of several hosts, where each agent's start barrier is a part of aiaccrun's. In a job of one host the agent holds
// the start barrier alone. An elastic job (--max-np) has them on one host too: it is a sequence of worlds, and aiaccrun
// decides who is in the next one. There each exit of a rank is answered with SettleRank, and `rank` always means the number
// under which aiaccrun started the process; OpenWorld gives the numbers in the world.
//
// If the stream ends, or is silent for the lease of Greeting, before the agent has sent JobEnded, the agent ends all
// processes that it started (TERM and CONT, KILL 2 s later). Output is sent against credit, separately for each stream,
// and so is input in the other direction. No other message waits for output or input, so signals, time-outs and losses
// are not delayed by a full terminal or a rank that does not read. Frames of one agent have the order of the events on
// its host.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/wire/agent_messages.h"

namespace aiacc::wire {

// Version 1 had no standard input, version 2 TCP ports only, version 3 one world for the whole job, version 4 a fixed number of
// ranks.
inline constexpr std::uint16_t kLaunchProtocol = 5;

// The first message to an agent. Every version begins with `protocol` and `version`, so that either end can report a
// difference.
struct Greeting {
  static constexpr std::uint16_t kType = 100;
  std::uint16_t protocol = kLaunchProtocol;
  std::string version;        // of aiaccrun
  std::string marker;         // random; launcher/channel/marker.h describes the answer
  std::int64_t lease_ms = 0;  // how long either end may be silent; 0: forever (the channel cannot break unnoticed)
  auto fields() { return std::tie(protocol, version, marker, lease_ms); }
};

// A heartbeat.
struct Beat {
  static constexpr std::uint16_t kType = 140;
  auto fields() { return std::tie(); }
};

struct AgentUp {
  static constexpr std::uint16_t kType = 120;
  std::uint16_t protocol = kLaunchProtocol;
  std::string version;                 // of the aiaccrun there
  std::vector<std::string> addresses;  // of its host, for other hosts: numeric, the most likely first, never loopback
  std::uint16_t master_port = 0;       // kept bound, not listening
  std::string machine;                 // its description of its machine (base/io/machine_mark.h); empty: none
  std::string same_host_socket;        // the socket that sends its token (launcher/agent/same_host_socket.h)
  std::string token;
  auto fields() { return std::tie(protocol, version, addresses, master_port, machine, same_host_socket, token); }
};

// Asks which of these sockets of other agents are on the agent's machine. Answered by SameHostFound.
struct FindSameHost {
  static constexpr std::uint16_t kType = 111;
  std::vector<std::string> same_host_sockets;
  auto fields() { return std::tie(same_host_sockets); }
};

// The tokens received from these sockets, in the order of FindSameHost; empty where no process of this user answered.
struct SameHostFound {
  static constexpr std::uint16_t kType = 132;
  std::vector<std::string> tokens;
  auto fields() { return std::tie(tokens); }
};

// One rank of StartJob. Its environment is added to the common one.
struct StartRank {
  std::int32_t rank = 0;
  std::int32_t local_rank = 0;
  std::vector<std::string> environment;
  auto fields() { return std::tie(rank, local_rank, environment); }
};

struct StartJob {
  static constexpr std::uint16_t kType = 101;
  std::string version;  // of aiaccrun; the agent's must be the same
  std::string host_name;
  std::int32_t host = 0;
  std::vector<std::uint32_t> hosts_of_ranks;  // host index of each rank of the job
  std::vector<std::string> argv;
  std::string cwd;
  std::vector<std::string> environment;
  bool over_own = false;         // add `environment` to the agent's own
  std::vector<StartRank> ranks;  // of this host, ascending
  std::uint8_t map_by = 0;       // launcher::MapBy
  std::uint8_t bind_to = 0;      // launcher::BindTo
  bool bind_asked = false;
  bool oversubscribe = false;
  std::string master_address;
  std::uint16_t master_port = 0;
  bool tag_output = false;
  bool report_bindings = false;
  std::uint64_t credit = 0;          // initial credit for output in bytes, for each stream
  std::uint64_t job = 0;             // random, the same on every host
  HiddenText secret;                 // 32 random bytes, sent only here and in Welcome; empty in a job of one host
  std::int32_t input_rank = -1;      // the rank of the job that reads Input; -1: none
  std::vector<std::string> provide;  // Python packages of aiacc's that go in front of PYTHONPATH
  bool elastic = false;              // exits are answered with SettleRank, and worlds follow each other
  auto fields() {
    return std::tie(version, host_name, host, hosts_of_ranks, argv, cwd, environment, over_own, ranks, map_by, bind_to,
                    bind_asked, oversubscribe, master_address, master_port, tag_output, report_bindings, credit, job,
                    secret, input_rank, provide, elastic);
  }
};

// Every host is prepared.
struct StartRanks {
  static constexpr std::uint16_t kType = 109;
  auto fields() { return std::tie(); }
};

// All ranks of all hosts have said hello: how to reach each of them. Answers the last HostReady.
struct OpenWorld {
  static constexpr std::uint16_t kType = 106;
  std::vector<HostEntry> hosts;  // in the order of their indices
  std::vector<RankPorts> ports;  // of each rank of the world
  // In an elastic job: the number of the HostReady that this answers, the process of each rank of the world, by the number
  // under which aiaccrun started it, and its index in `hosts`.
  std::uint32_t answers = 0;
  std::vector<std::int32_t> ranks;
  std::vector<std::uint32_t> hosts_of_ranks;
  auto fields() { return std::tie(hosts, ports, answers, ranks, hosts_of_ranks); }
};

// Answers the exit of a rank in an elastic job.
struct SettleRank {
  static constexpr std::uint16_t kType = 114;
  std::int32_t rank = 0;
  bool replace = false;  // start the program anew in its place; else the next world, if there is one, has a rank fewer
  auto fields() { return std::tie(rank, replace); }
};

// Starts further ranks of an elastic job on a host that has ranks already. Answered by Started, which is about these alone.
struct AddRanks {
  static constexpr std::uint16_t kType = 115;
  std::vector<StartRank> ranks;  // with numbers above those of all ranks so far
  auto fields() { return std::tie(ranks); }
};

// No further world of an elastic job has this rank, which is alive: its next Hello is refused, and its exit counts nothing.
struct DismissRank {
  static constexpr std::uint16_t kType = 116;
  std::int32_t rank = 0;
  bool now = false;      // end it: TERM and CONT, KILL 2 s later
  std::string sentence;  // why, for its Refused
  auto fields() { return std::tie(rank, now, sentence); }
};

// Ranks wait for the next world of an elastic job, or some are not in it. Agents tell the ranks that are in a world (HostsUpdated).
struct UpdateHosts {
  static constexpr std::uint16_t kType = 117;
  std::uint8_t what = 0;  // as in HostsUpdated
  auto fields() { return std::tie(what); }
};

// The ranks of different hosts do not match: each gets this as its Refused.
struct RefuseWorld {
  static constexpr std::uint16_t kType = 107;
  std::int32_t code = 0;  // aiacc::Code
  std::string sentence;
  auto fields() { return std::tie(code, sentence); }
};

// A rank ended without leaving in order. An agent reports its own ranks; aiaccrun forwards it to the other hosts, whose
// agents tell their ranks (RankLost).
struct LoseRank {
  static constexpr std::uint16_t kType = 108;
  std::int32_t rank = 0;
  std::string sentence;
  auto fields() { return std::tie(rank, sentence); }
};

// A rank failed because it had lost another one, whose exit was not reported yet. Asks every agent to report the exits
// on its host. Answered by ExitsReported.
struct QueryExits {
  static constexpr std::uint16_t kType = 110;
  auto fields() { return std::tie(); }
};

// Some ranks have said hello, others have not, and none did for a while. Agents forward it to the waiting ranks
// (Missing).
struct RanksMissing {
  static constexpr std::uint16_t kType = 112;
  std::string sentence;
  auto fields() { return std::tie(sentence); }
};

// To the process group of every rank.
struct SignalRanks {
  static constexpr std::uint16_t kType = 102;
  std::int32_t number = 0;
  auto fields() { return std::tie(number); }
};

// Ends the ranks: `signals` now, KILL after `kill_after_ms` (negative: leave the time that was set before). A later
// EndRanks may only shorten it. `everyone`: signals go to all descendants, not only to the ranks' groups.
struct EndRanks {
  static constexpr std::uint16_t kType = 103;
  std::vector<std::int32_t> signals;
  std::int64_t kill_after_ms = -1;
  bool everyone = false;
  auto fields() { return std::tie(signals, kill_after_ms, everyone); }
};

// This many more bytes of `stream` (1 or 2) may be sent.
struct Credit {
  static constexpr std::uint16_t kType = 104;
  std::uint8_t stream = 1;
  std::uint64_t bytes = 0;
  auto fields() { return std::tie(stream, bytes); }
};

// Bytes of aiaccrun's standard input for StartJob's `input_rank`, sent against InputCredit. The last message is empty:
// the end.
struct Input {
  static constexpr std::uint16_t kType = 113;
  std::string bytes;
  auto fields() { return std::tie(bytes); }
};

// Nobody reads the output any more: the agent counts and drops the rest.
struct DropOutput {
  static constexpr std::uint16_t kType = 105;
  auto fields() { return std::tie(); }
};

// Directory, program and memory for the ranks exist; none runs yet.
struct Prepared {
  static constexpr std::uint16_t kType = 130;
  auto fields() { return std::tie(); }
};

struct Started {
  static constexpr std::uint16_t kType = 121;
  std::vector<std::int32_t> processes;  // of the ranks, in the order of StartJob
  std::vector<std::string> bindings;    // as the kernel reports them, as text; empty unless requested
  auto fields() { return std::tie(processes, bindings); }
};

// No rank runs: none was started, or those that were have been ended. JobEnded does not follow.
struct NotStarted {
  static constexpr std::uint16_t kType = 122;
  std::int32_t exit_code = 0;
  std::uint8_t message = 0;  // launcher::MessageId
  std::string sentence;
  auto fields() { return std::tie(exit_code, message, sentence); }
};

// Whole lines, or a part of a line, of one rank (launcher/stdio/lines.h); with tags if these were requested.
struct Output {
  static constexpr std::uint16_t kType = 123;
  std::int32_t rank = 0;
  std::uint8_t stream = 1;
  bool continues = false;
  bool ends_line = true;
  std::string bytes;
  auto fields() { return std::tie(rank, stream, continues, ends_line, bytes); }
};

// This many more bytes of input may be sent. The agent sends the first when the rank runs; aiaccrun reads nothing
// before it.
struct InputCredit {
  static constexpr std::uint16_t kType = 133;
  std::uint64_t bytes = 0;
  auto fields() { return std::tie(bytes); }
};

// The rank has ended or closed its standard input, so no more is needed. Bytes in transit are dropped.
struct InputClosed {
  static constexpr std::uint16_t kType = 134;
  auto fields() { return std::tie(); }
};

// `phase` is launcher::RankPhase; the rest is set when it exited.
struct RankChanged {
  static constexpr std::uint16_t kType = 124;
  std::int32_t rank = 0;
  std::uint8_t phase = 0;
  std::int32_t code = 0;
  std::int32_t signal = 0;
  bool by_memory = false;
  std::int64_t after_ns = 0;    // since the ranks were started
  std::int32_t lost_peer = -1;  // the peer whose loss it reported before it exited
  std::string lost_path;        // the broken path that it reported before it exited
  auto fields() { return std::tie(rank, phase, code, signal, by_memory, after_ns, lost_peer, lost_path); }
};

// The rank's process is in state T.
struct RankStopped {
  static constexpr std::uint16_t kType = 125;
  std::int32_t rank = 0;
  std::int32_t process = 0;
  std::int32_t signal = 0;
  auto fields() { return std::tie(rank, process, signal); }
};

// A line for the user; the job goes on (or other messages end it).
struct Notice {
  static constexpr std::uint16_t kType = 126;
  std::uint8_t message = 0;  // launcher::MessageId
  std::string sentence;
  auto fields() { return std::tie(message, sentence); }
};

// The keeper died. The agent reports this first and then ends the job as if aiaccrun were lost.
struct KeeperLost {
  static constexpr std::uint16_t kType = 127;
  auto fields() { return std::tie(); }
};

// All ranks of this host have said hello.
struct HostReady {
  static constexpr std::uint16_t kType = 129;
  std::string library_version;   // the same for all its ranks
  std::vector<RankPorts> ports;  // of its ranks, in the order of StartJob; left out are those that SettleRank left out
  std::uint32_t number = 0;      // counts this agent's, from 1
  auto fields() { return std::tie(library_version, ports, number); }
};

// Every exit on this host before the arrival of QueryExits has been reported.
struct ExitsReported {
  static constexpr std::uint16_t kType = 131;
  auto fields() { return std::tie(); }
};

// No process of the job lives on this host and all output was sent or dropped.
struct JobEnded {
  static constexpr std::uint16_t kType = 128;
  std::uint64_t dropped_bytes = 0;
  std::uint64_t unauthenticated = 0;  // peers that ranks of this host have refused, as far as they reported it
  auto fields() { return std::tie(dropped_bytes, unauthenticated); }
};

}  // namespace aiacc::wire
