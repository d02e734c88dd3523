// What an unauthenticated peer on the network can do to a port: cost it a little, and be counted.
#include <gtest/gtest.h>
#include <numeric>

#include "base/task/scope.h"
#include "base/wire/handshake.h"
#include "transports/tcp/dial.h"
#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;
using wire::Bytes;

struct UnauthenticatedPeer {
  explicit UnauthenticatedPeer(SimTcp& its_net, int host_number = 9) : net(its_net), host(its_net, host_number) {}

  // Says `bytes` to rank 0 and keeps what is answered until the end of the stream.
  Task<void> say(Bytes bytes, Bytes* answer) {
    Stop stop;
    const std::unique_ptr<io::Stream> stream = co_await host.net.connect(net.addresses[0], stop);
    co_await io::write_all(*stream, bytes, stop);
    Bytes part(100);
    for (;;) {
      std::size_t moved = 0;
      try {
        moved = co_await stream->read_some(part, stop);
      } catch (const Error&) {
      }
      if (moved == 0) break;
      answer->insert(answer->end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(moved));
    }
  }
  // As rank 1 would say it: no secret is needed for that.
  Bytes hello() {
    return wire::DialerHandshake(secret_of(2), {wire::Purpose::kData, 4711, 1, 0}, host.entropy).hello();
  }
  Bytes answer_to(const std::vector<std::byte>& bytes) { return answer_to(Bytes(bytes.begin(), bytes.end())); }
  Bytes answer_to(Bytes bytes) {
    Bytes answer;
    Task<void> talk = say(std::move(bytes), &answer);
    talk.start();
    EXPECT_TRUE(net.run_until([&] { return talk.done(); })) << "rank 0 does not close the connection";
    return answer;
  }
  // Hello and proof as rank 1 would say them, knowing `secret`; what rank 0 answers to the proof.
  Task<void> converse(wire::Secret secret, Bytes* recorded, Bytes* verdict) {
    Stop stop;
    const std::unique_ptr<io::Stream> stream = co_await host.net.connect(net.addresses[0], stop);
    const auto storage = std::make_unique<wire::HandshakeStorage>();
    const wire::Introduction who{wire::Purpose::kData, 4711, 1, 0};
    wire::DialerHandshake handshake(secret, who, host.entropy);
    co_await io::write_all(*stream, handshake.hello(), stop);
    const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, stop);
    Bytes proof(challenge.begin(), challenge.end());
    try {
      proof = handshake.prove(challenge, tcp::Terms{}.text());
    } catch (const Error&) {  // a wrong secret: says something of the right form
      wire::ConnectProof guess;
      guess.terms = tcp::Terms{}.text();
      proof = wire::encode_frame(guess);
    }
    co_await io::write_all(*stream, proof, stop);
    *recorded = handshake.hello();
    recorded->insert(recorded->end(), proof.begin(), proof.end());
    try {
      const std::span<const std::byte> last = co_await wire::read_handshake(*stream, *storage, stop);
      verdict->assign(last.begin(), last.end());
    } catch (const Error&) {
    }
  }

  SimTcp& net;
  SimTcp::HostOf host;
};

// Two ranks exchange messages, whatever else happens.
struct Job {
  explicit Job(SimTcp& its_net) : net(its_net) {
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  }
  bool works() {
    const std::size_t before = receiver[0].placed + receiver[1].placed;
    for (int rank = 0; rank < 2; ++rank) {
      const Buffer piece{bytes.data(), bytes.size()};
      net.port(rank).post(1 - rank, header_of(++tag, piece.bytes), std::span(&piece, 1), told);
    }
    return net.run_until([&] { return receiver[0].placed + receiver[1].placed == before + 2; }) &&
           receiver[0].lost.empty() && receiver[1].lost.empty();
  }
  SimTcp& net;
  Recorder receiver[2];
  Completion told;
  std::vector<std::byte> bytes = pattern(50'000, 1);
  std::uint32_t tag = 0;
};

// The frames in it, which are nothing else.
std::vector<wire::Frame> frames_of(const Bytes& bytes) {
  wire::FrameBuffer buffer;
  std::copy(bytes.begin(), bytes.end(), buffer.space().begin());
  buffer.commit(bytes.size());
  std::vector<wire::Frame> frames;
  while (std::optional<wire::Frame> frame = buffer.next()) frames.push_back(std::move(*frame));
  EXPECT_EQ(buffer.pending(), 0u);
  return frames;
}

constexpr const char* kRefusal = "the secret of the job that listens here is another one";

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(TcpUnauthenticated, GarbageIsClosedAndCounted) {
  SimTcp net(2);
  Job job(net);
  UnauthenticatedPeer unauthenticated(net);
  EXPECT_TRUE(unauthenticated.answer_to(pattern(5000, 3)).empty());
  EXPECT_TRUE(unauthenticated.answer_to(bytes_of({0xff, 0xff, 0xff, 0xff, 201, 0})).empty()) << "a huge length";
  EXPECT_TRUE(unauthenticated.answer_to(bytes_of({1, 0, 0, 0, 201, 0})).empty()) << "a length without a type";
  EXPECT_TRUE(unauthenticated.answer_to(wire::encode_frame(wire::ConnectVerdict{})).empty()) << "the last word first";
  EXPECT_EQ(net.port(0).refused(), 4u);
  EXPECT_TRUE(job.works());
}

// Also how a rank looks that is ended between a connection and its first byte.
TEST(TcpUnauthenticated, WhoSaysNothingAndLeavesIsCountedUnlessItsAddressIsOfTheJob) {
  SimTcp net(2);
  Job job(net);
  const auto come_and_go = [&](int host_number) {
    SimTcp::HostOf host(net, host_number);
    Stop stop;
    Task<std::unique_ptr<io::Stream>> connecting = host.net.connect(net.addresses[0], stop);
    connecting.start();
    EXPECT_TRUE(net.run_until([&] { return connecting.done(); }));
    connecting.take().reset();
    net.world.run_until(after(net.world.now(), std::chrono::milliseconds(100)));
    return net.port(0).refused();
  };
  EXPECT_EQ(come_and_go(1), 0u);
  EXPECT_EQ(come_and_go(9), 1u);
  EXPECT_TRUE(job.works());
}

TEST(TcpUnauthenticated, HalfAFrameIsWaitedForThreeSeconds) {
  SimTcp net(2);
  Job job(net);
  UnauthenticatedPeer unauthenticated(net);
  Bytes hello = wire::encode_frame(wire::ConnectHello{});
  hello.resize(hello.size() / 2);
  const Instant began = net.world.now();
  EXPECT_TRUE(unauthenticated.answer_to(hello).empty());
  EXPECT_GE(net.world.now() - began, std::chrono::seconds(3));
  EXPECT_LT(net.world.now() - began, std::chrono::milliseconds(3010));
  EXPECT_EQ(net.port(0).refused(), 1u);
  EXPECT_TRUE(job.works());
}

TEST(TcpUnauthenticated, WhoHearsTheChallengeAndFallsSilentIsCounted) {
  SimTcp net(2);
  Job job(net);
  UnauthenticatedPeer unauthenticated(net);
  const Instant began = net.world.now();
  EXPECT_FALSE(unauthenticated.answer_to(unauthenticated.hello()).empty());
  EXPECT_GE(net.world.now() - began, std::chrono::seconds(3));
  EXPECT_EQ(net.port(0).refused(), 1u);
  EXPECT_TRUE(job.works());
}

TEST(TcpUnauthenticated, WhoSaysSomethingElseThanAProofIsCounted) {
  SimTcp net(2);
  Job job(net);
  UnauthenticatedPeer liar(net, 1);
  const Bytes huge_length = bytes_of({0xff, 0xff, 0xff, 0xff, 203, 0});
  for (const Bytes& second : {wire::encode_frame(wire::ConnectVerdict{}), huge_length}) {
    Bytes bytes = liar.hello();
    bytes.insert(bytes.end(), second.begin(), second.end());
    EXPECT_FALSE(liar.answer_to(bytes).empty());
  }
  EXPECT_EQ(net.port(0).refused(), 2u);
  EXPECT_TRUE(job.works());
}

// A rank that began to connect while it waited for something else, and computes.
TEST(TcpUnauthenticated, WhoFallsSilentAtAnAddressOfTheJobIsNotCounted) {
  SimTcp net(2);
  Job job(net);
  UnauthenticatedPeer late(net, 1);
  const Instant began = net.world.now();
  EXPECT_TRUE(late.answer_to(Bytes()).empty());
  EXPECT_FALSE(late.answer_to(late.hello()).empty());
  EXPECT_GE(net.world.now() - began, std::chrono::seconds(6));
  EXPECT_EQ(net.port(0).refused(), 0u);
  EXPECT_TRUE(late.answer_to(pattern(5000, 3)).empty());
  EXPECT_EQ(net.port(0).refused(), 1u) << "garbage is no rank's";
  EXPECT_TRUE(job.works());
}

TEST(TcpUnauthenticated, AnotherJobAndAnotherRankAreToldInOneSentence) {
  SimTcp net(2);
  Job job(net);
  UnauthenticatedPeer unauthenticated(net);
  for (const wire::Introduction& who :
       {wire::Introduction{wire::Purpose::kData, 4712, 1, 0}, wire::Introduction{wire::Purpose::kControl, 4711, 1, 0},
        wire::Introduction{wire::Purpose::kData, 4711, 1, 1}, wire::Introduction{wire::Purpose::kData, 4711, 0, 0},
        wire::Introduction{wire::Purpose::kData, 4711, 2, 0}, wire::Introduction{wire::Purpose::kData, 4711, -1, 0}}) {
    wire::ConnectHello hello;
    hello.who = who;
    wire::FrameBuffer buffer;
    const Bytes answer = unauthenticated.answer_to(wire::encode_frame(hello));
    std::copy(answer.begin(), answer.end(), buffer.space().begin());
    buffer.commit(answer.size());
    EXPECT_EQ(buffer.next()->as<wire::ConnectRefused>().sentence,
              "this is not the rank or not the job that was called");
  }
  EXPECT_EQ(net.port(0).refused(), 6u);
  EXPECT_TRUE(job.works());
}

TEST(TcpUnauthenticated, TheRightHelloWithTheWrongSecretIsRefused) {
  SimTcp net(2);
  Job job(net);
  UnauthenticatedPeer unauthenticated(net);
  Bytes recorded, verdict;
  Task<void> talk = unauthenticated.converse(secret_of(2), &recorded, &verdict);
  talk.start();
  ASSERT_TRUE(net.run_until([&] { return talk.done(); }));
  ASSERT_EQ(frames_of(verdict).size(), 1u);
  EXPECT_EQ(frames_of(verdict)[0].as<wire::ConnectRefused>().sentence, kRefusal);
  EXPECT_EQ(net.port(0).refused(), 1u);
  EXPECT_TRUE(job.works());
}

TEST(TcpUnauthenticated, ARecordedHandshakeIsWorthNothingTheSecondTime) {
  SimTcp net(3);
  Job job(net);
  UnauthenticatedPeer unauthenticated(net);
  Bytes recorded, verdict;
  Task<void> talk = unauthenticated.converse(secret_of(1), &recorded, &verdict);
  talk.start();
  ASSERT_TRUE(net.run_until([&] { return talk.done(); }));
  ASSERT_FALSE(verdict.empty()) << "who knows the secret is let in";
  EXPECT_EQ(net.port(0).refused(), 0u);

  const std::vector<wire::Frame> answer = frames_of(unauthenticated.answer_to(recorded));
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0].type, wire::ConnectShare::kType);
  EXPECT_EQ(answer[1].as<wire::ConnectRefused>().sentence, kRefusal);
  EXPECT_EQ(net.port(0).refused(), 1u);
  EXPECT_TRUE(job.works());
}

// The listener's own proof, which one of version 1 gives first, comes back as the dialer's.
Task<void> reflect(UnauthenticatedPeer* unauthenticated, wire::Versions versions, Bytes* after) {
  Stop stop;
  const std::unique_ptr<io::Stream> stream =
      co_await unauthenticated->host.net.connect(unauthenticated->net.addresses[0], stop);
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  wire::DialerHandshake hello(secret_of(2), {wire::Purpose::kData, 4711, 1, 0}, unauthenticated->host.entropy,
                              versions);
  co_await io::write_all(*stream, hello.hello(), stop);
  const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, stop);
  wire::ConnectProof proof;
  proof.terms = tcp::Terms{}.text();
  std::copy(challenge.end() - sizeof(wire::Proof), challenge.end(), proof.proof.begin());
  const Bytes second = wire::encode_frame(proof);
  co_await io::write_all(*stream, second, stop);
  Bytes part(100);
  const std::size_t moved = co_await stream->read_some(part, stop);
  after->assign(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(moved));
}

TEST(TcpUnauthenticated, AReflectedProofIsRefused) {
  for (const std::uint16_t version : {std::uint16_t{1}, std::uint16_t{2}}) {
    SimTcp net(2);
    Job job(net);
    UnauthenticatedPeer unauthenticated(net);
    Bytes after;
    Task<void> talk = reflect(&unauthenticated, {1, version}, &after);
    talk.start();
    ASSERT_TRUE(net.run_until([&] { return talk.done(); }));
    talk.take();
    EXPECT_EQ(after.empty(), version == 1);
    if (version == 2) {
      ASSERT_EQ(frames_of(after).size(), 1u);
      EXPECT_EQ(frames_of(after)[0].as<wire::ConnectRefused>().sentence, kRefusal);
    }
    EXPECT_EQ(net.port(0).refused(), 1u);
    EXPECT_TRUE(job.works());
  }
}

// Connects again as soon as it is thrown out, and never says a word.
Task<void> pester(UnauthenticatedPeer* unauthenticated, int times, int* done) {
  Stop stop;
  for (int i = 0; i < times; ++i) {
    const std::unique_ptr<io::Stream> stream =
        co_await unauthenticated->host.net.connect(unauthenticated->net.addresses[0], stop);
    Bytes one(1);
    try {
      co_await stream->read_some(one, stop);
    } catch (const Error&) {
    }
    ++*done;
  }
}

TEST(TcpUnauthenticated, AThousandHalfOpenConnectionsThatAreRenewedHoldNobodyUp) {
  SimTcp net(2);
  Job job(net);
  UnauthenticatedPeer unauthenticated(net);
  std::vector<Task<void>> pests;
  int done = 0;
  for (int i = 0; i < 1000; ++i) {
    pests.push_back(pester(&unauthenticated, 5, &done));
    pests.back().start();
  }
  net.run_until([&] { return done > 1000; });
  EXPECT_TRUE(job.works());
  ASSERT_TRUE(net.run_until([&] { return done == 5000; })) << done;
  EXPECT_TRUE(job.works());
  EXPECT_GE(net.port(0).refused(), 5000u);
  EXPECT_LT(net.port(0).refused(), 5010u) << "rank 1 may have been among the oldest, but not for long";
}

// --- floods ---------------------------------------------------------------------------------------------------------------

// An unauthenticated peer's host makes one connection after another and keeps them; says a hello where it is told to.
Task<void> flood(SimTcp* net, int host, bool hello, Duration first, Duration pause, int count) {
  Stop stop;
  SimTcp::HostOf here(*net, host);
  co_await sleep_for(here.loop, first, stop);
  std::vector<std::unique_ptr<io::Stream>> kept;
  for (int i = 0; i < count; ++i) {
    kept.push_back(co_await here.net.connect(net->addresses[0], stop));
    if (hello) {
      wire::DialerHandshake handshake(secret_of(2), {wire::Purpose::kData, 4711, 1, 0}, here.entropy);
      co_await io::write_all(*kept.back(), handshake.hello(), stop);
    }
    co_await sleep_for(here.loop, pause, stop);
  }
}

// As rank 1, which needs 200 ms for its proof, again and again: how often it came through.
Task<void> come_slowly(SimTcp* net, int host, int times, int* through) {
  Stop stop;
  SimTcp::HostOf here(*net, host);
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  for (int i = 0; i < times; ++i) {
    try {
      const std::unique_ptr<io::Stream> stream = co_await here.net.connect(net->addresses[0], stop);
      wire::DialerHandshake handshake(secret_of(1), {wire::Purpose::kData, 4711, 1, 0}, here.entropy);
      co_await io::write_all(*stream, handshake.hello(), stop);
      const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, stop);
      tcp::Terms terms;
      terms.connections = static_cast<std::uint64_t>(i);
      const wire::Bytes proof = handshake.prove(challenge, terms.text());
      co_await sleep_for(here.loop, std::chrono::milliseconds(200), stop);
      co_await io::write_all(*stream, proof, stop);
      const std::span<const std::byte> verdict = co_await wire::read_handshake(*stream, *storage, stop);
      handshake.conclude(verdict);
      ++*through;
    } catch (const Error&) {
    }
  }
}

// 500 connections a second in all.
int slow_ones_through(const std::vector<int>& hosts_of_unauthenticated_peers, bool hello, int host_of_slow_one) {
  SimTcp net(2);
  Recorder receiver;
  net.port(0).set_receiver(receiver);
  std::vector<Task<void>> floods;
  const Duration pause = std::chrono::milliseconds(2) * static_cast<int>(hosts_of_unauthenticated_peers.size());
  for (const int host : hosts_of_unauthenticated_peers) {
    const Duration first = std::chrono::milliseconds(2) * static_cast<int>(floods.size());
    floods.push_back(
        flood(&net, host, hello, first, pause, 3000 / static_cast<int>(hosts_of_unauthenticated_peers.size())));
    floods.back().start();
  }
  net.world.run_until(Instant(std::chrono::milliseconds(500)));
  int through = 0;
  Task<void> slow = come_slowly(&net, host_of_slow_one, 20, &through);
  slow.start();
  EXPECT_TRUE(net.run_until([&] { return slow.done(); }));
  net.port(0).close();
  for (const Task<void>& each : floods) EXPECT_TRUE(net.run_until([&] { return each.done(); }));
  return through;
}

TEST(TcpUnauthenticated, AFloodFromOneAddressKeepsNoSlowRankOut) {
  EXPECT_EQ(slow_ones_through({9}, false, 8), 20);
  EXPECT_EQ(slow_ones_through({9}, true, 8), 20) << "with hellos that anybody who listens can say";
}

std::vector<int> hundred_hosts() {
  std::vector<int> hosts(100);
  std::iota(hosts.begin(), hosts.end(), 100);
  return hosts;
}

TEST(TcpUnauthenticated, ASilentFloodKeepsNoSlowRankOutWhereverItComesFrom) {
  EXPECT_EQ(slow_ones_through({8}, false, 8), 20) << "from the rank's own address";
  EXPECT_EQ(slow_ones_through(hundred_hosts(), false, 8), 20);
}

// With a hello from each, which nobody can tell from a rank's; but the list of hosts names rank 1's address, on host 1.
TEST(TcpUnauthenticated, AFloodFromManyAddressesKeepsOutNobodyWhomTheListOfHostsNames) {
  EXPECT_EQ(slow_ones_through(hundred_hosts(), true, 1), 20);
  EXPECT_LT(slow_ones_through(hundred_hosts(), true, 8), 20) << "from an address that no list names it does";
}

TEST(TcpUnauthenticated, AFloodFromAnAddressOfTheJobTakesNoMoreThanItsReserve) {
  EXPECT_EQ(slow_ones_through({1}, true, 8), 20);
}

}  // namespace
}  // namespace aiacc::tcp_test
