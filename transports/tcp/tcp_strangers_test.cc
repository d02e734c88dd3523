// What a stranger on the network can do to a port: cost it a little, and be counted.
#include <gtest/gtest.h>

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

struct Stranger {
  explicit Stranger(SimTcp& its_net) : net(its_net), host(its_net, 9) {}

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

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(TcpStrangers, GarbageIsClosedAndCounted) {
  SimTcp net(2);
  Job job(net);
  Stranger stranger(net);
  EXPECT_TRUE(stranger.answer_to(pattern(5000, 3)).empty());
  EXPECT_TRUE(stranger.answer_to(bytes_of({0xff, 0xff, 0xff, 0xff, 201, 0})).empty()) << "a huge length";
  EXPECT_TRUE(stranger.answer_to(bytes_of({1, 0, 0, 0, 201, 0})).empty()) << "a length without a type";
  EXPECT_TRUE(stranger.answer_to(wire::encode_frame(wire::ConnectVerdict{})).empty()) << "the last word first";
  EXPECT_EQ(net.port(0).refused(), 4u);
  EXPECT_TRUE(job.works());
}

TEST(TcpStrangers, HalfAFrameIsWaitedForThreeSeconds) {
  SimTcp net(2);
  Job job(net);
  Stranger stranger(net);
  Bytes hello = wire::encode_frame(wire::ConnectHello{});
  hello.resize(hello.size() / 2);
  const Instant began = net.world.now();
  EXPECT_TRUE(stranger.answer_to(hello).empty());
  EXPECT_GE(net.world.now() - began, std::chrono::seconds(3));
  EXPECT_LT(net.world.now() - began, std::chrono::milliseconds(3010));
  EXPECT_EQ(net.port(0).refused(), 1u);
  EXPECT_TRUE(job.works());
}

TEST(TcpStrangers, WhoHearsTheChallengeAndFallsSilentIsCounted) {
  SimTcp net(2);
  Job job(net);
  Stranger stranger(net);
  wire::ConnectHello hello;
  hello.who = {wire::Purpose::kData, 4711, 1, 0};
  const Instant began = net.world.now();
  EXPECT_FALSE(stranger.answer_to(wire::encode_frame(hello)).empty());
  EXPECT_GE(net.world.now() - began, std::chrono::seconds(3));
  EXPECT_EQ(net.port(0).refused(), 1u);
  EXPECT_TRUE(job.works());
}

TEST(TcpStrangers, AnotherJobAndAnotherRankAreToldInOneSentence) {
  SimTcp net(2);
  Job job(net);
  Stranger stranger(net);
  for (const wire::Introduction& who :
       {wire::Introduction{wire::Purpose::kData, 4712, 1, 0}, wire::Introduction{wire::Purpose::kControl, 4711, 1, 0},
        wire::Introduction{wire::Purpose::kData, 4711, 1, 1}, wire::Introduction{wire::Purpose::kData, 4711, 0, 0},
        wire::Introduction{wire::Purpose::kData, 4711, 2, 0}, wire::Introduction{wire::Purpose::kData, 4711, -1, 0}}) {
    wire::ConnectHello hello;
    hello.who = who;
    wire::FrameBuffer buffer;
    const Bytes answer = stranger.answer_to(wire::encode_frame(hello));
    std::copy(answer.begin(), answer.end(), buffer.space().begin());
    buffer.commit(answer.size());
    EXPECT_EQ(buffer.next()->as<wire::ConnectRefused>().sentence,
              "this is not the rank or not the job that was called");
  }
  EXPECT_EQ(net.port(0).refused(), 6u);
  EXPECT_TRUE(job.works());
}

TEST(TcpStrangers, TheRightHelloWithTheWrongSecretIsRefused) {
  SimTcp net(2);
  Job job(net);
  Stranger stranger(net);
  Bytes recorded, verdict;
  Task<void> talk = stranger.converse(secret_of(2), &recorded, &verdict);
  talk.start();
  ASSERT_TRUE(net.run_until([&] { return talk.done(); }));
  EXPECT_TRUE(verdict.empty());
  EXPECT_EQ(net.port(0).refused(), 1u);
  EXPECT_TRUE(job.works());
}

TEST(TcpStrangers, ARecordedHandshakeIsWorthNothingTheSecondTime) {
  SimTcp net(3);
  Job job(net);
  Stranger stranger(net);
  Bytes recorded, verdict;
  Task<void> talk = stranger.converse(secret_of(1), &recorded, &verdict);
  talk.start();
  ASSERT_TRUE(net.run_until([&] { return talk.done(); }));
  ASSERT_FALSE(verdict.empty()) << "who knows the secret is let in";
  EXPECT_EQ(net.port(0).refused(), 0u);

  wire::FrameBuffer buffer;
  const Bytes answer = stranger.answer_to(recorded);
  std::copy(answer.begin(), answer.end(), buffer.space().begin());
  buffer.commit(answer.size());
  EXPECT_EQ(buffer.next()->type, wire::ConnectChallenge::kType);
  EXPECT_FALSE(buffer.next()) << "something was said to a replayed proof";
  EXPECT_EQ(net.port(0).refused(), 1u);
  EXPECT_TRUE(job.works());
}

// The listener's own proof comes back as the dialer's.
Task<void> reflect(Stranger* stranger, Bytes* after) {
  Stop stop;
  const std::unique_ptr<io::Stream> stream = co_await stranger->host.net.connect(stranger->net.addresses[0], stop);
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  wire::ConnectHello hello;
  hello.who = {wire::Purpose::kData, 4711, 1, 0};
  const Bytes first = wire::encode_frame(hello);
  co_await io::write_all(*stream, first, stop);
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

TEST(TcpStrangers, AReflectedProofIsRefused) {
  SimTcp net(2);
  Job job(net);
  Stranger stranger(net);
  Bytes after;
  Task<void> talk = reflect(&stranger, &after);
  talk.start();
  ASSERT_TRUE(net.run_until([&] { return talk.done(); }));
  talk.take();
  EXPECT_TRUE(after.empty());
  EXPECT_EQ(net.port(0).refused(), 1u);
  EXPECT_TRUE(job.works());
}

// Connects again as soon as it is thrown out, and never says a word.
Task<void> pester(Stranger* stranger, int times, int* done) {
  Stop stop;
  for (int i = 0; i < times; ++i) {
    const std::unique_ptr<io::Stream> stream = co_await stranger->host.net.connect(stranger->net.addresses[0], stop);
    Bytes one(1);
    try {
      co_await stream->read_some(one, stop);
    } catch (const Error&) {
    }
    ++*done;
  }
}

TEST(TcpStrangers, AThousandHalfOpenConnectionsThatAreRenewedHoldNobodyUp) {
  SimTcp net(2);
  Job job(net);
  Stranger stranger(net);
  std::vector<Task<void>> pests;
  int done = 0;
  for (int i = 0; i < 1000; ++i) {
    pests.push_back(pester(&stranger, 5, &done));
    pests.back().start();
  }
  net.run_until([&] { return done > 1000; });
  EXPECT_TRUE(job.works());
  ASSERT_TRUE(net.run_until([&] { return done == 5000; })) << done;
  EXPECT_TRUE(job.works());
  EXPECT_GE(net.port(0).refused(), 5000u);
  EXPECT_LT(net.port(0).refused(), 5010u) << "rank 1 may have been among the oldest, but not for long";
}

}  // namespace
}  // namespace aiacc::tcp_test
