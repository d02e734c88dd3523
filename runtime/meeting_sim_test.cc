// A meeting over the simulated network: ranks that come in any order and lose connections, and strangers at rank 0's port.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "base/sim/sim_net.h"
#include "runtime/meeting_guest.h"
#include "runtime/meeting_host.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;

class SimPlace final : public MeetingPlace {
 public:
  SimPlace(io::Address where, const wire::Secret& secret) : where_(std::move(where)), secret_(secret) {}
  std::unique_ptr<io::Listener> open(io::Net& net) override { return net.listen(where_); }
  wire::Secret secret() const override { return secret_; }
  Found find(Duration) override { return {{where_}, secret_}; }
  std::string name() const override { return where_.text(); }

 private:
  io::Address where_;
  wire::Secret secret_;
};

wire::Secret secret_of(char salt) { return wire::Secret::from(std::string(wire::Secret::kBytes, salt)); }

const io::Address kPlace = io::Address::tcp("192.0.2.1", 4242);

// A process on a host of its own.
struct Node {
  Node(sim::World& world, sim::SimNetwork& network, int host)
      : loop(world, "host " + std::to_string(host)), net(network, loop, host, {1000, 1}), entropy(world, loop.node()) {}
  sim::SimLoop loop;
  sim::SimNet net;
  sim::SimEntropy entropy;
};

struct Lost final : BirthObserver {
  void on_rank_lost(int rank, std::exception_ptr error) noexcept override {
    ranks.push_back(rank);
    sentences.push_back(as_error(error).message());
  }
  std::vector<int> ranks;
  std::vector<std::string> sentences;
};

struct Rank {
  Rank(sim::World& world, sim::SimNetwork& network, int its_rank, int its_size)
      : node(world, network, its_rank), rank(its_rank), size(its_size) {}
  ~Rank() {
    stop.request(std::make_exception_ptr(Error(Code::kAborted, "the simulation is over")));
    node.loop.bury();
  }
  // Gathers, settles, and listens.
  void start(Duration when = 0ns, Duration limit = 60s, char salt = 's') {
    task.emplace(run(when, limit, salt));
    task->start();
  }
  Task<void> run(Duration when, Duration limit, char salt) {
    try {
      co_await sleep_for(node.loop, when, stop);
      const Deadline deadline(node.loop, after(node.loop.now(), limit), stop, "too late");
      wire::Arrive me;
      me.version = "1.2.3";
      me.rank = rank;
      me.size = size;
      me.host_name = "host" + std::to_string(rank);
      me.data_port = static_cast<std::uint16_t>(1000 + rank);
      me.addresses = {"192.0.2." + std::to_string(1 + rank)};
      data = node.net.listen(io::Address::tcp(me.addresses[0], me.data_port));
      place.emplace(kPlace, secret_of(salt));
      if (rank == 0) {
        MeetingHost::Listeners listeners{place->open(node.net), node.net.listen(io::Address::tcp(kPlace.name, 0))};
        meeting = std::make_unique<MeetingHost>(node.loop, node.net, std::move(listeners), place->secret(),
                                                node.entropy, me, place->name(), limit);
      } else {
        meeting = std::make_unique<MeetingGuest>(node.loop, node.net, *place, node.entropy, me, limit);
      }
      roster = co_await meeting->gather(stop);
      firsts = co_await meeting->settle(rank, stop);
      meeting->observe(lost);
    } catch (const Error& thrown) {
      error = thrown;
    }
  }
  bool done() const { return task->done(); }

  Node node;
  int rank;
  int size;
  Stop stop;
  Lost lost;
  std::unique_ptr<io::Listener> data;  // nobody accepts: this rank computes
  std::optional<SimPlace> place;
  std::unique_ptr<Meeting> meeting;
  std::optional<wire::Roster> roster;
  std::vector<std::int32_t> firsts;
  std::optional<Error> error;
  std::optional<Task<void>> task;
};

struct Job {
  explicit Job(int size, std::uint64_t seed = 1) : world(seed) {
    for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<Rank>(world, network, rank, size));
  }
  bool run_until(const std::function<bool()>& done, Duration limit = 100s) {
    const Instant end = after(world.now(), limit);
    return world.run_while_not([&] { return done() || world.now() > end; }) && done();
  }
  bool all_done() {
    return std::all_of(ranks.begin(), ranks.end(), [](const auto& one) { return !one->task || one->done(); });
  }
  void expect_met() {
    ASSERT_TRUE(run_until([this] { return all_done(); }));
    for (const auto& one : ranks) {
      ASSERT_FALSE(one->error) << one->error->message();
      EXPECT_EQ(one->roster->job, ranks[0]->roster->job);
      EXPECT_EQ(one->roster->secret, ranks[0]->roster->secret);
      ASSERT_EQ(one->roster->ranks.size(), ranks.size());
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        EXPECT_EQ(one->roster->ranks[rank].data_port, 1000 + rank);
        EXPECT_EQ(one->firsts[rank], static_cast<int>(rank));
      }
    }
  }
  Rank& rank(int number) { return *ranks[static_cast<std::size_t>(number)]; }
  // Together, within the time of last words.
  void expect_to_leave(const std::vector<int>& leaving) {
    Stop stop;
    std::vector<Task<void>> tasks;
    for (const int one : leaving) {
      tasks.push_back(rank(one).meeting->leave(stop));
      tasks.back().start();
    }
    const auto left = [&] { return std::all_of(tasks.begin(), tasks.end(), [](auto& task) { return task.done(); }); };
    EXPECT_TRUE(run_until(left, 1100ms));
  }

  sim::World world;
  sim::SimNetwork network{world};
  std::vector<std::unique_ptr<Rank>> ranks;
};

TEST(SimMeeting, RanksComeInAnyOrder) {
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    Job job(9, seed);
    for (const auto& one : job.ranks) one->start(std::chrono::milliseconds((one->rank * 7919 + seed * 31) % 4000));
    job.expect_met();
    EXPECT_TRUE(job.ranks[0]->meeting->remarks().empty());
  }
}

// A connection that breaks before all have come is made again.
TEST(SimMeeting, ConnectionsBreakAtEveryByteBeforeAllHaveCome) {
  int broken = 0;
  for (std::uint64_t bytes = 1;; bytes += 13) {
    Job job(3, bytes);
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

// The last to come brings everything about: the list, what it tells of its neighbours, the last word. A connection that breaks
// meanwhile is made again, and so is one that breaks under the last word.
TEST(SimMeeting, ConnectionsBreakAtEveryByteWhileAllMeet) {
  int broken = 0;
  for (std::uint64_t bytes = 1;; bytes += 7) {
    Job job(3, bytes);
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

TEST(SimMeeting, ARankThatIsGoneBeforeAllHaveMetEndsTheJobForAll) {
  int too_early = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Job job(3, seed);
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

TEST(SimMeeting, DeathsAreToldByRankZeroAndLeavingIsNone) {
  Job job(4);
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
  Task<void> leaving = job.ranks[2]->meeting->leave(stop);
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

// --- connections that break once all have met -----------------------------------------------------------------------------

TEST(SimMeeting, WhoLostItsConnectionComesBackAndHearsTheRest) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Job job(4, seed);
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    for (int again = 0; again < 3; ++again) {
      job.network.break_streams(0, 2);
      if (again == 1) job.world.kill(job.ranks[1]->node.loop.node());
      job.run_until([] { return false; }, 100ms);
    }
    EXPECT_GE(job.network.broken(), 3u);
    for (const int rank : {0, 2, 3}) EXPECT_EQ(job.rank(rank).lost.ranks, std::vector<int>{1}) << seed;
  }
}

// The way back breaks too, at every byte and as often as it is tried, while a death is told and both ends leave.
TEST(SimMeeting, TheWayBackBreaksAtEveryByte) {
  std::uint64_t broken = 0;
  for (std::uint64_t bytes = 1; bytes < 800; bytes += 7) {
    Job job(3, bytes);
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    job.network.break_streams(0, 2);
    job.world.kill(job.ranks[1]->node.loop.node());
    for (int again = 0; again < 4; ++again) {
      job.network.break_next(bytes);
      job.run_until([&] { return !job.network.break_pending(); }, 300ms);
    }
    const auto heard = [&](int rank) { return job.rank(rank).lost.ranks == std::vector<int>{1}; };
    ASSERT_TRUE(job.run_until([&] { return heard(0) && heard(2); }, 5s)) << bytes;
    broken += job.network.broken();
    job.expect_to_leave({0, 2});
    job.run_until([] { return false; }, 1s);
    EXPECT_TRUE(heard(0) && heard(2)) << bytes << ": once, and nothing else";
  }
  EXPECT_GT(broken, 300u);
}

// A process that computes or is stopped cannot come back; its system still takes connections.
TEST(SimMeeting, WhoCannotComeBackForLongIsNotLost) {
  for (const int frozen : {0, 2}) {
    Job job(3);
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    job.world.freeze(job.rank(frozen).node.loop.node());
    job.network.break_streams(0, 2);
    job.world.run_until(after(job.world.now(), 60s));
    job.network.cut(0, 2);  // the next attempt fails; the five seconds begin here
    job.network.break_streams(0, 2);
    job.run_until([] { return false; }, 2s);
    job.network.heal(0, 2);
    job.run_until([] { return false; }, 60s);
    for (const auto& one : job.ranks) EXPECT_TRUE(one->lost.ranks.empty()) << frozen;
    job.world.thaw(job.rank(frozen).node.loop.node());
    job.run_until([] { return false; }, 1s);
    job.world.kill(job.ranks[1]->node.loop.node());
    job.run_until([] { return false; }, 1s);
    for (const int rank : {0, 2}) EXPECT_EQ(job.rank(rank).lost.ranks, std::vector<int>{1}) << frozen;
  }
}

TEST(SimMeeting, WhoDiesBeforeItIsBackIsLostAtOnce) {
  for (const int dead : {0, 2}) {
    Job job(3);
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    job.world.freeze(job.rank(dead).node.loop.node());
    job.network.break_streams(0, 2);
    job.run_until([] { return false; }, 10s);
    job.world.kill(job.rank(dead).node.loop.node());
    job.run_until([] { return false; }, 600ms);
    for (const int rank : {0, 1, 2}) {
      if (rank == dead) continue;
      ASSERT_EQ(job.rank(rank).lost.ranks, std::vector<int>{dead});
      if (rank == 1 && dead == 0) continue;  // its own connection ended with the process
      EXPECT_NE(job.rank(rank).lost.sentences[0].find("was reset; nobody listens at tcp:192.0.2."), std::string::npos)
          << job.rank(rank).lost.sentences[0];
    }
  }
}

TEST(SimMeeting, WhoseHostGivesNoSignOfLifeIsLostAfterFiveSeconds) {
  Job job(3);
  for (const auto& one : job.ranks) one->start();
  job.expect_met();
  job.network.break_streams(0, 2);
  job.network.cut(0, 2);
  job.run_until([] { return false; }, 4s);
  EXPECT_TRUE(job.rank(0).lost.ranks.empty());
  job.run_until([] { return false; }, 6s);
  for (const int rank : {0, 1}) EXPECT_EQ(job.rank(rank).lost.ranks, std::vector<int>{2});
  EXPECT_EQ(job.rank(2).lost.ranks, std::vector<int>{0});
  EXPECT_NE(job.rank(0).lost.sentences[0].find("nothing answers at tcp:192.0.2.3:1002 for "), std::string::npos)
      << job.rank(0).lost.sentences[0];
}

TEST(SimMeeting, WhoWasGivenUpIsToldSoWhenItComesBack) {
  Job job(3);
  for (const auto& one : job.ranks) one->start();
  job.expect_met();
  job.world.freeze(job.rank(2).node.loop.node());
  job.rank(2).data.reset();
  job.network.break_streams(0, 2);
  job.run_until([] { return false; }, 1s);
  for (const int rank : {0, 1}) EXPECT_EQ(job.rank(rank).lost.ranks, std::vector<int>{2});
  job.world.thaw(job.rank(2).node.loop.node());
  job.run_until([] { return false; }, 1s);
  ASSERT_EQ(job.rank(2).lost.ranks, std::vector<int>{0});
  EXPECT_NE(job.rank(2).lost.sentences[0].find("rank 0 has given this rank up for lost"), std::string::npos)
      << job.rank(2).lost.sentences[0];
}

// One leaves, or both; the connection breaks under their last words, and the process that has left is gone at once.
TEST(SimMeeting, ConnectionsBreakWhileRanksLeave) {
  for (const std::vector<int>& leaving : {std::vector<int>{2}, std::vector<int>{0}, std::vector<int>{0, 2}}) {
    for (int when = 0; when < 200; when += 5) {
      Job job(3, static_cast<std::uint64_t>(when) + 1);
      for (const auto& one : job.ranks) one->start();
      job.expect_met();
      sim::SimLoop& clock = job.rank(1).node.loop;
      Task<void> breaking = [](sim::SimLoop* loop, sim::SimNetwork* network, int us) -> Task<void> {
        Stop stop;
        co_await sleep_for(*loop, std::chrono::microseconds(us), stop);
        network->break_streams(0, 2);
      }(&clock, &job.network, when);
      breaking.start();
      job.expect_to_leave(leaving);
      for (const int rank : leaving) job.world.kill(job.rank(rank).node.loop.node());
      job.run_until([] { return false; }, 1s);
      for (const auto& one : job.ranks) EXPECT_TRUE(one->lost.ranks.empty()) << when << ": " << one->lost.sentences[0];
    }
  }
}

TEST(SimMeeting, ASteadyNoEndsTheAttemptsOfOneWhoHasAnotherSecret) {
  Job job(3);
  job.ranks[0]->start();
  job.ranks[1]->start(0ns, 60s, 'x');
  ASSERT_TRUE(job.run_until([&] { return job.ranks[1]->done(); }, 12s));
  EXPECT_EQ(job.ranks[1]->error->code(), Code::kMismatch);
  EXPECT_NE(job.ranks[1]->error->message().find("another job meets there, or the secrets differ"), std::string::npos);
}

TEST(SimMeeting, TheJobBeforeAtTheSamePlaceIsOutlasted) {
  Job job(3);
  Rank old(job.world, job.network, 0, 3);
  old.start(0ns, 5s, 'o');  // waits for its own until then
  job.ranks[1]->start();
  job.ranks[2]->start(1s);
  ASSERT_TRUE(job.run_until([&] { return old.done(); }));
  old.meeting.reset();
  old.data.reset();
  job.ranks[0]->start();
  job.expect_met();
}

// --- strangers ------------------------------------------------------------------------------------------------------------

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
      const std::unique_ptr<io::Stream> stream = co_await node->net.connect(kPlace, stop);
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

TEST(SimMeeting, StrangersAreCountedAndHarmNobody) {
  Job job(3);
  Node stranger(job.world, job.network, 9);
  job.ranks[0]->start();
  job.ranks[1]->start(10ms);
  job.run_until([] { return false; }, 20ms);

  wire::ConnectHello hello;  // of the right form
  hello.who = {wire::Purpose::kControl, kMeetingJob, 2, 0};
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
    tasks.push_back(pester(&stranger, each, 1, &done));
    tasks.back().start();
  }
  ASSERT_TRUE(job.run_until([&] { return done == static_cast<int>(words.size()); }, 4s));
  job.ranks[2]->start();
  job.expect_met();
  ASSERT_EQ(job.ranks[0]->meeting->remarks().size(), 1u);
  EXPECT_EQ(job.ranks[0]->meeting->remarks()[0], "7 strangers were turned away at tcp:192.0.2.1:4242");
}

// More of ours at once than there are places: some are dropped, come again, and are not counted.
TEST(SimMeeting, ManyRanksAtOnceAreNoStrangers) {
  Job job(300);
  for (const auto& one : job.ranks) one->start();
  job.expect_met();
  EXPECT_TRUE(job.ranks[0]->meeting->remarks().empty()) << job.ranks[0]->meeting->remarks()[0];
}

// What a rank once said to rank 0 is said again, and what rank 0 answers is said to rank 0.
Task<void> reflect(Node* node, wire::Bytes* after) {
  Stop stop;
  const std::unique_ptr<io::Stream> stream = co_await node->net.connect(kPlace, stop);
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  wire::ConnectHello hello;
  hello.who = {wire::Purpose::kControl, kMeetingJob, 1, 0};
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

TEST(SimMeeting, AReflectedProofIsRefused) {
  Job job(2);
  Node stranger(job.world, job.network, 9);
  job.ranks[0]->start();
  wire::Bytes after;
  Task<void> talk = reflect(&stranger, &after);
  talk.start();
  ASSERT_TRUE(job.run_until([&] { return talk.done(); }, 5s));
  EXPECT_TRUE(after.empty());
  job.ranks[1]->start();
  job.expect_met();
  EXPECT_EQ(job.ranks[0]->meeting->remarks().size(), 1u);
}

// All through the bootstrap. Ours may be the oldest of the 64 and be dropped; they come again.
TEST(SimMeeting, AThousandHalfOpenConnectionsThatAreRenewedHoldNobodyUp) {
  Job job(4);
  Node stranger(job.world, job.network, 9);
  job.ranks[0]->start();
  std::vector<Task<void>> pests;
  int done = 0;
  for (int i = 0; i < 1000; ++i) {
    pests.push_back(pester(&stranger, {}, 1'000'000, &done));
    pests.back().start();
  }
  ASSERT_TRUE(job.run_until([&] { return done > 2000; }));
  for (const auto& one : job.ranks) {
    if (one->rank > 0) one->start();
  }
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }));
  for (const auto& one : job.ranks) EXPECT_FALSE(one->error) << one->error->message();
  stranger.loop.world().kill(stranger.loop.node());
}

}  // namespace
}  // namespace aiacc
