// What aiaccrun and the agent of a host say to each other, over the agent's standard input and output: two pipes on this
// host, the streams of ssh or another starter to any other. Frames are base/wire/frame.h's, up to kLargestFrameBytes: a
// StartJob carries environments.
//
//   aiaccrun → agent    Greeting → LookFor? → StartJob → StartRanks → (SignalRanks | EndRanks | Credit | Input | OpenWorld | RefuseWorld | LoseRank | AskEnds | RanksMissing)*
//                       → DropOutput? → end of stream
//   agent → aiaccrun    the answer to the marker, which is no frame → AgentUp → Found? → (Prepared | NotStarted)
//                       → (Started | NotStarted) → (Output | InputCredit | InputClosed | RankChanged | RankStopped | Notice | HostReady | LoseRank | EndsTold)* → JobEnded
//   both, at any time   Beat
//
// StartRanks comes when every host is prepared, so that what one of them refuses is refused before any rank runs.
// What a login prints before the agent speaks is no frame either: aiaccrun skips it up to the answer (launcher/marker.h).
// LookFor comes where several hosts describe their machine in the same way; those that prove to be one machine are left
// without a job, and their hosts planned anew.
// HostReady, OpenWorld, RefuseWorld and LoseRank belong to jobs of several hosts: an agent's fence is then a part of
// aiaccrun's. In a job of one host the agent holds the fence alone.
//
// End of stream is a lease, and so is silence where Greeting says how long: an agent that meets either before it has said
// JobEnded ends all that it started (TERM and CONT, KILL 2 s later). Output flows against credit, per stream, and so does input the other way; nothing else waits for
// them, so signals, time-outs and deaths pass a full terminal and a rank that does not read. The order of frames from one agent is the order of time on its host.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/wire/agent_messages.h"

namespace aiacc::wire {

inline constexpr std::uint16_t kLaunchProtocol = 2;  // 1 had no input

// First message to an agent. `protocol` and `version` stand first in every version to come, so that the two ends can tell
// each other what is wrong.
struct Greeting {
  static constexpr std::uint16_t kType = 100;
  std::uint16_t protocol = kLaunchProtocol;
  std::string version;        // of aiaccrun
  std::string marker;         // random; launcher/marker.h says how it is answered
  std::int64_t lease_ms = 0;  // how long either end may be silent; 0: for ever (the channel cannot be cut)
  auto fields() { return std::tie(protocol, version, marker, lease_ms); }
};

// Something from the other end, where it would be silent otherwise.
struct Beat {
  static constexpr std::uint16_t kType = 140;
  auto fields() { return std::tie(); }
};

struct AgentUp {
  static constexpr std::uint16_t kType = 120;
  std::uint16_t protocol = kLaunchProtocol;
  std::string version;                 // of the aiaccrun there
  std::vector<std::string> addresses;  // of its host, for other hosts: numeric, the likeliest first, never loopback
  std::uint16_t master_port = 0;       // kept bound, not listening
  std::string machine;                 // what it says of its machine (base/io/machine_mark.h); empty: nothing
  std::string presence;                // name of the local socket where it tells its token (launcher/presence.h)
  std::string token;
  auto fields() { return std::tie(protocol, version, addresses, master_port, machine, presence, token); }
};

// Which of these sockets of other agents are on your machine? Answered by Found.
struct LookFor {
  static constexpr std::uint16_t kType = 111;
  std::vector<std::string> presences;
  auto fields() { return std::tie(presences); }
};

// What was told there, in the order of LookFor; empty where nobody of this user is.
struct Found {
  static constexpr std::uint16_t kType = 132;
  std::vector<std::string> tokens;
  auto fields() { return std::tie(tokens); }
};

// One rank of StartJob. Its environment is what it gets beside the common one.
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
  bool over_own = false;         // lay `environment` over the agent's own
  std::vector<StartRank> ranks;  // of this host, ascending
  std::uint8_t map_by = 0;       // launcher::MapBy
  std::uint8_t bind_to = 0;      // launcher::BindTo
  bool bind_asked = false;
  bool oversubscribe = false;
  std::string master_address;
  std::uint16_t master_port = 0;
  bool tag_output = false;
  bool report_bindings = false;
  std::uint64_t credit = 0;      // bytes of output that may be sent at first, for each stream
  std::uint64_t job = 0;         // random, the same on every host
  HiddenText secret;             // 32 bytes made for this job; travels nowhere else. Empty in a job of one host
  std::int32_t input_rank = -1;  // of the job: reads what comes by Input, and all others nothing; -1: none does
  auto fields() {
    return std::tie(version, host_name, host, hosts_of_ranks, argv, cwd, environment, over_own, ranks, map_by, bind_to,
                    bind_asked, oversubscribe, master_address, master_port, tag_output, report_bindings, credit, job,
                    secret, input_rank);
  }
};

// Every host is prepared.
struct StartRanks {
  static constexpr std::uint16_t kType = 109;
  auto fields() { return std::tie(); }
};

// Every rank was told hello by every host: what they need to reach each other. Answers the last HostReady.
struct OpenWorld {
  static constexpr std::uint16_t kType = 106;
  std::vector<HostEntry> hosts;           // in the order of their indices
  std::vector<std::uint16_t> data_ports;  // of each rank of the job
  auto fields() { return std::tie(hosts, data_ports); }
};

// The hosts' ranks do not fit together: each gets this as its Refused.
struct RefuseWorld {
  static constexpr std::uint16_t kType = 107;
  std::int32_t code = 0;  // aiacc::Code
  std::string sentence;
  auto fields() { return std::tie(code, sentence); }
};

// A rank is gone without leaving. An agent says so of its own; aiaccrun passes it to the other hosts, whose ranks are told
// (RankLost).
struct LoseRank {
  static constexpr std::uint16_t kType = 108;
  std::int32_t rank = 0;
  std::string sentence;
  auto fields() { return std::tie(rank, sentence); }
};

// A rank failed because it had lost another, whose end was not told yet: what ended at your side? Answered by EndsTold.
struct AskEnds {
  static constexpr std::uint16_t kType = 110;
  auto fields() { return std::tie(); }
};

// Ranks have said hello and others have not, and for a moment nobody came. Passed on to those that wait (Missing).
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

// So many more bytes of `stream` (1 or 2) may be sent.
struct Credit {
  static constexpr std::uint16_t kType = 104;
  std::uint8_t stream = 1;
  std::uint64_t bytes = 0;
  auto fields() { return std::tie(stream, bytes); }
};

// Of aiaccrun's standard input, for StartJob's `input_rank`, against InputCredit. Empty, and the last: its end.
struct Input {
  static constexpr std::uint16_t kType = 113;
  std::string bytes;
  auto fields() { return std::tie(bytes); }
};

// Nobody reads the output any more: count what is left and drop it.
struct DropOutput {
  static constexpr std::uint16_t kType = 105;
  auto fields() { return std::tie(); }
};

// Directory, program and memory for the ranks are there; none runs yet.
struct Prepared {
  static constexpr std::uint16_t kType = 130;
  auto fields() { return std::tie(); }
};

struct Started {
  static constexpr std::uint16_t kType = 121;
  std::vector<std::int32_t> processes;  // of the ranks, in the order of StartJob
  std::vector<std::string> bindings;    // as the kernel reports them, in words; empty unless asked for
  auto fields() { return std::tie(processes, bindings); }
};

// Nothing runs, or what did was ended: JobEnded does not follow.
struct NotStarted {
  static constexpr std::uint16_t kType = 122;
  std::int32_t exit_code = 0;
  std::uint8_t message = 0;  // launcher::MessageId
  std::string sentence;
  auto fields() { return std::tie(exit_code, message, sentence); }
};

// Whole lines, or a part of one, of one rank (launcher/lines.h); tagged already if tags were asked for.
struct Output {
  static constexpr std::uint16_t kType = 123;
  std::int32_t rank = 0;
  std::uint8_t stream = 1;
  bool continues = false;
  bool ends_line = true;
  std::string bytes;
  auto fields() { return std::tie(rank, stream, continues, ends_line, bytes); }
};

// So many more bytes of input may be sent. The first comes when the rank runs: before it, aiaccrun reads none.
struct InputCredit {
  static constexpr std::uint16_t kType = 133;
  std::uint64_t bytes = 0;
  auto fields() { return std::tie(bytes); }
};

// The rank has ended, or has closed its standard input: more would be in vain. What is on its way is forgotten.
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
  std::int32_t lost_peer = -1;  // the rank whose loss it told of before it exited
  auto fields() { return std::tie(rank, phase, code, signal, by_memory, after_ns, lost_peer); }
};

// The rank's process is in state T.
struct RankStopped {
  static constexpr std::uint16_t kType = 125;
  std::int32_t rank = 0;
  std::int32_t process = 0;
  std::int32_t signal = 0;
  auto fields() { return std::tie(rank, process, signal); }
};

// A line for the user; the job goes on (or its end is told by other messages).
struct Notice {
  static constexpr std::uint16_t kType = 126;
  std::uint8_t message = 0;  // launcher::MessageId
  std::string sentence;
  auto fields() { return std::tie(message, sentence); }
};

// The keeper died: the agent ends the job as if aiaccrun were lost, and says so first.
struct KeeperLost {
  static constexpr std::uint16_t kType = 127;
  auto fields() { return std::tie(); }
};

// All ranks of this host have said hello.
struct HostReady {
  static constexpr std::uint16_t kType = 129;
  std::string library_version;            // of its ranks, which agree
  std::vector<std::uint16_t> data_ports;  // of its ranks, in the order of StartJob
  auto fields() { return std::tie(library_version, data_ports); }
};

// Every rank of this host that had ended when AskEnds came has been told of.
struct EndsTold {
  static constexpr std::uint16_t kType = 131;
  auto fields() { return std::tie(); }
};

// No process of the job lives on this host and all output was sent or dropped.
struct JobEnded {
  static constexpr std::uint16_t kType = 128;
  std::uint64_t dropped_bytes = 0;
  std::uint64_t strangers = 0;  // that ranks of this host have turned away, as far as they said
  auto fields() { return std::tie(dropped_bytes, strangers); }
};

}  // namespace aiacc::wire
