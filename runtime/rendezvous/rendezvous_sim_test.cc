// The rendezvous over the simulated network: ranks that come in any order and lose connections, and unauthenticated peers at
// rank 0's port.
#include "runtime/rendezvous/rendezvous_sim_world_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using namespace rendezvous_sim;

TEST(SimRendezvous, RanksComeInAnyOrder) {
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    RendezvousJob job(9, seed);
    for (const auto& one : job.ranks) one->start(std::chrono::milliseconds((one->rank * 7919 + seed * 31) % 4000));
    job.expect_met();
    EXPECT_TRUE(job.ranks[0]->rendezvous->remarks().empty());
  }
}

TEST(SimRendezvous, AWaitIsToldWhileItLasts) {
  RendezvousJob job(3);
  job.ranks[0]->start();
  job.ranks[1]->start();
  job.ranks[2]->start(30s);
  job.expect_met();
  ASSERT_EQ(job.rank(0).told.size(), 1u);
  EXPECT_EQ(job.rank(0).told[0].find("the job has not come together for 20 s: 2 of 3 ranks came to "), 0u);
  EXPECT_NE(job.rank(0).told[0].find("rank 2 did not"), std::string::npos);
  EXPECT_TRUE(job.rank(1).told.empty()) << "rank 0 says it";

  RendezvousJob without(2);
  without.ranks[0]->start(90s);
  without.ranks[1]->start(0s, 100s);
  without.expect_met();
  ASSERT_EQ(without.rank(1).told.size(), 2u);
  EXPECT_NE(without.rank(1).told[1].find("for 80 s: rank 1 did not reach rank 0 at "), std::string::npos);
}

// A connection that breaks before all have come is made again.
TEST(SimRendezvous, ConnectionsBreakAtEveryByteBeforeAllHaveCome) {
  int broken = 0;
  for (std::uint64_t bytes = 1;; bytes += 13) {
    RendezvousJob job(3, bytes);
    job.network.break_next(bytes);
    job.ranks[0]->start();
    job.ranks[1]->start();
    job.run_until([] { return false; }, 1900ms);
    if (job.network.broken() == 0) break;  // it would, later
    job.ranks[2]->start();
    ASSERT_TRUE(job.run_until([&] { return job.all_done(); })) << bytes;
    for (const auto& one : job.ranks) EXPECT_FALSE(one->error) << bytes << ": " << one->error->message();
    ++broken;
  }
  EXPECT_GT(broken, 20);
}

// The last to come brings everything about: the list, what it tells of its local peers, the last word. A connection that breaks
// meanwhile is made again, and so is one that breaks under the last word.
TEST(SimRendezvous, ConnectionsBreakAtEveryByteWhileAllMeet) {
  int broken = 0;
  for (std::uint64_t bytes = 1;; bytes += 7) {
    RendezvousJob job(3, bytes);
    job.ranks[0]->start();
    job.ranks[1]->start();
    job.run_until([] { return false; }, 100ms);
    job.network.break_next(bytes);
    job.ranks[2]->start();
    ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 8s)) << bytes;
    if (job.network.broken() == 0) break;
    ++broken;
    job.expect_met();
    job.run_until([] { return false; }, 1s);
    for (const auto& one : job.ranks) EXPECT_TRUE(one->lost.ranks.empty()) << bytes << ": " << one->lost.sentences[0];
  }
  EXPECT_GT(broken, 50);
}

TEST(SimRendezvous, ARankThatIsGoneBeforeAllHaveMetEndsTheJobForAll) {
  int too_early = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RendezvousJob job(3, seed);
    for (const auto& one : job.ranks) one->start();
    ASSERT_TRUE(job.run_until([&] { return job.ranks[2]->roster.has_value(); }));
    job.world.kill(job.ranks[2]->node.loop.node());
    const auto knows = [&](int rank) {
      const Rank& one = *job.ranks[static_cast<std::size_t>(rank)];
      return one.error.has_value() || !one.lost.ranks.empty();
    };
    ASSERT_TRUE(job.run_until([&] { return knows(0) && knows(1); }, 8s)) << "somebody met one who is dead";
    for (const int rank : {0, 1}) {
      const Rank& one = *job.ranks[static_cast<std::size_t>(rank)];
      if (!one.error) continue;  // it had said all that was to be said
      ++too_early;
      EXPECT_EQ(one.error->code(), Code::kPeerFailed);
      EXPECT_NE(one.error->message().find("rank 2 (host2, "), std::string::npos) << one.error->message();
    }
  }
  EXPECT_GT(too_early, 0);
}

TEST(SimRendezvous, DeathsAreToldByRankZeroAndLeavingIsNone) {
  RendezvousJob job(4);
  for (const auto& one : job.ranks) one->start();
  job.expect_met();
  job.world.kill(job.ranks[3]->node.loop.node());
  ASSERT_TRUE(
      job.run_until([&] { return !job.ranks[1]->lost.ranks.empty() && !job.ranks[2]->lost.ranks.empty(); }, 1s));
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(job.ranks[static_cast<std::size_t>(rank)]->lost.ranks, std::vector<int>{3});
    EXPECT_NE(job.ranks[static_cast<std::size_t>(rank)]->lost.sentences[0].find("rank 3 (host3, "), std::string::npos);
  }
  Stop stop;
  Task<void> leaving = job.ranks[2]->rendezvous->leave(job.leave_by(), stop);
  leaving.start();
  job.run_until([] { return false; }, 1s);
  EXPECT_TRUE(leaving.done());
  EXPECT_EQ(job.ranks[0]->lost.ranks.size(), 1u);
  EXPECT_EQ(job.ranks[1]->lost.ranks.size(), 1u);
  job.world.kill(job.ranks[0]->node.loop.node());
  ASSERT_TRUE(job.run_until([&] { return job.ranks[1]->lost.ranks.size() == 2; }, 1s));
  EXPECT_EQ(job.ranks[1]->lost.ranks[1], 0);
  EXPECT_EQ(job.ranks[2]->lost.ranks.size(), 1u) << "who has left hears of nothing";
}

TEST(SimRendezvous, ASteadyNoEndsTheAttemptsOfOneWhoHasAnotherSecret) {
  RendezvousJob job(3);
  job.ranks[0]->start();
  job.ranks[1]->start(0ns, 60s, 'x');
  ASSERT_TRUE(job.run_until([&] { return job.ranks[1]->done(); }, 12s));
  EXPECT_EQ(job.ranks[1]->error->code(), Code::kMismatch);
  EXPECT_NE(job.ranks[1]->error->message().find("another job meets there, or the secrets differ"), std::string::npos);
}

// Jobs before this one, each on its way out: what says no is not one steady no.
TEST(SimRendezvous, SeveralJobsBeforeAtTheSamePlaceAreOutlasted) {
  RendezvousJob job(2);
  job.ranks[1]->start();
  for (const char salt : {'o', 'p'}) {
    Rank old(job.world, job.network, 0, 2);
    old.start(0ns, 7s, salt);
    ASSERT_TRUE(job.run_until([&] { return old.done(); }));
    old.rendezvous.reset();
    job.run_until([] { return false; }, 1s);
  }
  job.ranks[0]->start();
  job.expect_met();
}

TEST(SimRendezvous, WhoWaitsForOthersHearsFromRankZeroThatItIsTooLate) {
  RendezvousJob job(3);
  job.ranks[0]->start(0ns, 1s);
  job.ranks[1]->start();
  ASSERT_TRUE(job.run_until([&] { return job.ranks[1]->done(); }, 3s));
  EXPECT_EQ(job.ranks[1]->error->code(), Code::kTimeout);
  EXPECT_NE(job.ranks[1]->error->message().find("within 1 s (AIACC_INIT_TIMEOUT): 2 of 3 ranks came"),
            std::string::npos)
      << job.ranks[1]->error->message();
}

TEST(SimRendezvous, TheJobBeforeAtTheSamePlaceIsOutlasted) {
  RendezvousJob job(3);
  Rank old(job.world, job.network, 0, 3);
  old.start(0ns, 5s, 'o');  // waits for its own until then
  job.ranks[1]->start();
  job.ranks[2]->start(1s);
  ASSERT_TRUE(job.run_until([&] { return old.done(); }));
  old.rendezvous.reset();
  old.data.reset();
  job.ranks[0]->start();
  job.expect_met();
}

// --- unauthenticated peers -------------------------------------------------------------------------------------------

wire::Bytes bytes_of(std::initializer_list<int> values) {
  wire::Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// Connects, says `bytes`, reads whatever comes until the end, again and again.
Task<void> pester(Node* node, wire::Bytes bytes, int times, int* done) {
  Stop stop;
  for (int i = 0; i < times; ++i) {
    try {
      const std::unique_ptr<io::Stream> stream = co_await node->net.connect(kEndpoint, stop);
      if (!bytes.empty()) co_await io::write_all(*stream, bytes, stop);
      wire::Bytes part(100);
      std::size_t moved = 1;
      while (moved > 0) moved = co_await stream->read_some(part, stop);
    } catch (const Error&) {  // the place is closed, perhaps not open yet
    }
    ++*done;
    co_await sleep_for(node->loop, std::chrono::microseconds(200), stop);
  }
}

TEST(SimRendezvous, UnauthenticatedPeersAreCountedAndHarmNobody) {
  RendezvousJob job(3);
  Node unauthenticated(job.world, job.network, 9);
  job.ranks[0]->start();
  job.ranks[1]->start(10ms);
  job.run_until([] { return false; }, 20ms);

  wire::ConnectHello hello;  // of the right form
  hello.who = {wire::Purpose::kControl, kRendezvousJob, 2, 0};
  wire::ConnectProof guess;
  wire::Bytes replay = wire::encode_frame(hello);
  const wire::Bytes proof = wire::encode_frame(guess);
  replay.insert(replay.end(), proof.begin(), proof.end());
  wire::Bytes half = wire::encode_frame(hello);
  half.resize(half.size() / 2);
  wire::ConnectHello data = hello;
  data.who.purpose = wire::Purpose::kData;
  const std::vector<wire::Bytes> words = {bytes_of({'G', 'E', 'T', ' ', '/', '\r', '\n'}),
                                          bytes_of({0xff, 0xff, 0xff, 0xff, 201, 0}),
                                          bytes_of({1, 0, 0, 0, 201, 0}),
                                          replay,
                                          half,
                                          wire::encode_frame(data),
                                          wire::encode_frame(wire::ConnectVerdict{})};
  std::vector<Task<void>> tasks;
  int done = 0;
  for (const wire::Bytes& each : words) {
    tasks.push_back(pester(&unauthenticated, each, 1, &done));
    tasks.back().start();
  }
  ASSERT_TRUE(job.run_until([&] { return done == static_cast<int>(words.size()); }, 4s));
  job.ranks[2]->start();
  job.expect_met();
  ASSERT_EQ(job.ranks[0]->rendezvous->remarks().size(), 1u);
  EXPECT_EQ(job.ranks[0]->rendezvous->remarks()[0], "7 unauthenticated peers were turned away at tcp:192.0.2.1:4242");
}

// More of ours at once than there are places: some are dropped, come again, and are not counted.
TEST(SimRendezvous, ManyRanksAtOnceAreNoUnauthenticatedPeers) {
  RendezvousJob job(300);
  for (const auto& one : job.ranks) one->start();
  job.expect_met();
  EXPECT_TRUE(job.ranks[0]->rendezvous->remarks().empty()) << job.ranks[0]->rendezvous->remarks()[0];
}

// What a rank once said to rank 0 is said again, and what rank 0 answers is said to rank 0.
Task<void> reflect(Node* node, wire::Bytes* after) {
  Stop stop;
  const std::unique_ptr<io::Stream> stream = co_await node->net.connect(kEndpoint, stop);
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  wire::ConnectHello hello;
  hello.who = {wire::Purpose::kControl, kRendezvousJob, 1, 0};
  const wire::Bytes first = wire::encode_frame(hello);
  co_await io::write_all(*stream, first, stop);
  const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, stop);
  wire::ConnectProof proof;
  std::copy(challenge.end() - sizeof(wire::Proof), challenge.end(), proof.proof.begin());
  const wire::Bytes second = wire::encode_frame(proof);
  co_await io::write_all(*stream, second, stop);
  wire::Bytes part(100);
  const std::size_t moved = co_await stream->read_some(part, stop);
  after->assign(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(moved));
}

TEST(SimRendezvous, AReflectedProofIsRefused) {
  RendezvousJob job(2);
  Node unauthenticated(job.world, job.network, 9);
  job.ranks[0]->start();
  wire::Bytes after;
  Task<void> talk = reflect(&unauthenticated, &after);
  talk.start();
  ASSERT_TRUE(job.run_until([&] { return talk.done(); }, 5s));
  EXPECT_TRUE(after.empty());
  job.ranks[1]->start();
  job.expect_met();
  EXPECT_EQ(job.ranks[0]->rendezvous->remarks().size(), 1u);
}

// All through the bootstrap. Ours may be the oldest of the 64 and be dropped; they come again.
TEST(SimRendezvous, AThousandHalfOpenConnectionsThatAreRenewedHoldNobodyUp) {
  RendezvousJob job(4);
  Node unauthenticated(job.world, job.network, 9);
  job.ranks[0]->start();
  std::vector<Task<void>> pests;
  int done = 0;
  for (int i = 0; i < 1000; ++i) {
    pests.push_back(pester(&unauthenticated, {}, 1'000'000, &done));
    pests.back().start();
  }
  ASSERT_TRUE(job.run_until([&] { return done > 2000; }));
  for (const auto& one : job.ranks) {
    if (one->rank > 0) one->start();
  }
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }));
  for (const auto& one : job.ranks) EXPECT_FALSE(one->error) << one->error->message();
  unauthenticated.loop.world().kill(unauthenticated.loop.node());
}

}  // namespace
}  // namespace aiacc
