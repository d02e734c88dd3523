// Fuzzes the decoders of all messages that agents, ranks and aiaccrun exchange, with a stream of frames from an
// unauthenticated peer. Any input throws kProtocol or decodes to a message that encodes to the same bytes.
//
// Built on request: `make agent_messages_fuzz`, best in a build with --enable-sanitizer=address,undefined; with
// tests/fuzz/driver.cc it mutates valid messages for a given time. For clang's libFuzzer, which follows coverage:
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I. -DFMT_HEADER_ONLY tests/fuzz/agent_messages_fuzz.cc
//       base/wire/codec.cc base/wire/frame.cc base/io/net.cc base/error.cc base/task/task.cc base/task/frame_pool.cc
#include <cstdlib>

#include "base/wire/agent_messages.h"
#include "base/wire/frame.h"
#include "base/wire/launch_messages.h"
#include "base/wire/rendezvous_messages.h"
#include "base/wire/secure_channel.h"
#include "tests/fuzz/driver.h"

namespace aiacc::wire {
namespace {

template <Message... M>
struct Messages {
  // Decodes a frame by its type, and encodes it again.
  static void check(const Frame& frame) { (void)((frame.type == M::kType && (check_one<M>(frame), true)) || ...); }
  static std::vector<Bytes> seeds() { return {encode_frame(M{})...}; }

 private:
  template <class One>
  static void check_one(const Frame& frame) {
    if (encode(frame.as<One>()) != frame.body) std::abort();
  }
};
using All =
    Messages<Hello, Welcome, Refused, Missing, RankLost, PeerLost, PathLost, Leave, Gone, OpenWorld, RefuseWorld,
             SettleRank, AddRanks, DismissRank, UpdateHosts, HostsUpdated, LoseRank, QueryExits, ExitsReported,
             RanksMissing, HostReady, SealBegins, Sealed, StartJob, StartRanks, Prepared, Greeting, AgentUp,
             FindSameHost, SameHostFound, Beat, SignalRanks, EndRanks, Credit, DropOutput, Started, NotStarted, Output,
             Input, InputCredit, InputClosed, RankChanged, RankStopped, Notice, KeeperLost, JobEnded, Arrive, Waiting,
             JoinRefused, Roster, ReconnectPort, Resume, LocalPeers, HostMap, ShareSegment>;

void feed(std::span<const std::byte> bytes) {
  FrameBuffer buffer;
  while (!bytes.empty()) {
    const std::span<std::byte> space = buffer.space();
    const std::size_t part = std::min(space.size(), bytes.size());
    std::copy_n(bytes.begin(), part, space.begin());
    buffer.commit(part);
    bytes = bytes.subspan(part);
    while (const std::optional<Frame> frame = buffer.next()) All::check(*frame);
  }
}

}  // namespace
}  // namespace aiacc::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  try {
    aiacc::wire::feed(std::as_bytes(std::span(data, bytes)));
  } catch (const aiacc::Error& error) {
    if (error.code() != aiacc::Code::kProtocol) std::abort();
  }
  return 0;
}

std::vector<aiacc::wire::Bytes> fuzz_seeds() {
  using namespace aiacc::wire;
  std::vector<Bytes> seeds = All::seeds();
  Welcome welcome;
  welcome.host_name = "node-7";
  welcome.hosts_of_ranks = {0, 0, 1, 1};
  seeds.push_back(encode_frame(welcome));
  StartJob job;
  job.argv = {"./train", "--epochs", "3"};
  job.environment = {"PATH=/usr/bin", "HOME=/root"};
  job.ranks.resize(3);
  job.ranks[1].environment = {"RANK=1"};
  job.ranks[2].environment = {"AIACC_RANK=2"};
  seeds.push_back(encode_frame(job));
  Arrive arrive;
  arrive.version = "0.1.0";
  arrive.host_name = "node-7";
  arrive.addresses = {"192.0.2.7", "2001:db8::7"};
  arrive.local_name = "aiacc-0123456789abcdef";
  arrive.process = "pid:[1] time:[2] 4711 815";
  seeds.push_back(encode_frame(arrive));
  Roster roster;
  roster.secret.assign(32, 's');
  roster.ranks = {{"node-7", {"192.0.2.7"}, {{tcp_address(4711)}}, "aiacc-0", true, arrive.process},
                  {"node-8", {"192.0.2.8"}, {{tcp_address(4712)}}, "aiacc-1", false, ""}};
  seeds.push_back(encode_frame(roster));
  HostMap host_map;
  host_map.firsts = {0, 0, 2};
  seeds.push_back(encode_frame(host_map));
  Input input;
  input.bytes = std::string("binary\0\xff", 8);
  seeds.push_back(encode_frame(input));
  Started started;
  started.processes = {100, 101};
  started.bindings = {"cores 0-1", "not bound"};
  seeds.push_back(encode_frame(started));
  return seeds;
}
