// In virtual time: ranks that wait in groups for members that have freed them, finalized or gone, and for notices that these should
// have relayed. They are told soon who it is, and nobody is told so who waits for what is under way.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/data/cpu_compute.h"
#include "base/error_about.h"
#include "runtime/group/leavers_test.h"

namespace aiacc::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Placement = std::vector<std::uint32_t>;

void expect_named(const GroupOperation& operation, int left, const std::string& what) {
  const Error error = error_of(operation);
  EXPECT_EQ(error.code(), Code::kMismatch) << error.message();
  EXPECT_EQ(error.peer(), left) << error.message();
  EXPECT_NE(error.message().find("rank " + std::to_string(left) + " has " + what), std::string::npos)
      << error.message();
}

class Leavers : public testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(Placements, Leavers,
                         testing::Values(Placement{0, 0}, Placement{0, 1}, Placement{0, 0, 1, 1},
                                         Placement{0, 1, 0, 1, 2}, Placement{0, 1, 1, 1, 2}));

// Every other rank receives from the last, which has sent two of three messages with each tag.
TEST_P(Leavers, OfAGroupAreNamedToWhoReceivesFromThem) {
  LeaversJob job(GetParam());
  job.make_groups();
  const int last = job.size() - 1;
  for (const std::uint32_t tag : {0U, 7U}) {
    for (int to = 0; to < last; ++to) {
      for (int i = 0; i < 2; ++i) {
        job.start(last, message_of(Collective::kSend, to, tag, 4), 4);
        job.start(to, message_of(Collective::kRecv, last, tag, 4), 4);
      }
    }
  }
  job.finish();
  job.free(last);
  const Instant began = job.world.now();
  GroupOperation& receive = job.start(0, message_of(Collective::kRecv, last, 7, 4), 4);
  job.finish();
  EXPECT_LT(job.world.now() - began, seconds(1));
  expect_named(receive, last, "freed their group");
}

TEST_P(Leavers, OfTheJobAreNamedToWhoReceivesFromThem) {
  LeaversJob job(GetParam());
  const int last = job.size() - 1;
  GroupOperation& ends = job.finalize(last);
  GroupOperation& receive = job.start_in_world(0, message_of(Collective::kRecv, last, 7, 4), 4);
  job.finish();
  EXPECT_LT(job.elapsed(), seconds(1));
  expect_named(receive, last, "called aiacc_finalize");
  EXPECT_EQ(error_of(ends).message(), error_of(receive).message()) << "who finalizes is told too";
}

// The last rank has freed the group while it still received, and ends that receive without another call. With options it is an
// operation; without them it waits without one, and becomes one if it waits for long.
TEST_P(Leavers, OfAGroupAreNamedWhenTheirLastReceiveHasEnded) {
  for (const bool with_options : {true, false}) {
    for (const auto waited : {milliseconds(100), milliseconds(3000)}) {
      CpuCompute compute;
      LeaversJob job(GetParam(), 1, {}, {}, &compute);
      std::unique_ptr<RequestedWork> plain;
      job.make_groups();
      for (int rank = 0; rank < job.size(); ++rank) job.start(rank, Call{});
      job.finish();
      const Instant began = job.world.now();
      const int last = job.size() - 1;
      const Call call = message_of(Collective::kRecv, 0, 7, 4);
      std::vector<float> memory(4);
      if (with_options) {
        job.start(last, call, 4);
      } else {
        plain = job.groups[static_cast<std::size_t>(last)]->prepare_waiting(PlainCall::of(call), {}, buffer_of(memory));
        ASSERT_NE(plain, nullptr);
        job[last].lane.begin_here(*plain);
      }
      job.free(last);
      GroupOperation& receive = job.start(0, message_of(Collective::kRecv, last, 7, 4), 4);
      job.world.run_until(after(began, waited));
      EXPECT_FALSE(receive.done());
      job.start(0, message_of(Collective::kSend, last, 7, 4), 4);
      ASSERT_TRUE(job.world.run_while_not([&] { return receive.done(); }));
      EXPECT_LT(job.world.now() - began, waited + seconds(2));
      expect_named(receive, last, "freed their group");
      ASSERT_TRUE(job.world.run_while_not([&] { return plain == nullptr || plain->done(); }));
    }
  }
}

// Rank 1's receive ends when its handle of the world has gone, and before it has come to the last barrier, which rank 0 asks about.
TEST(LeaversBetweenHosts, AreNotNamedBeforeTheLastBarrier) {
  for (const Placement& hosts : {Placement{0, 1, 2}, Placement{0, 0, 0}}) {
    LeaversJob job(hosts);
    for (auto& rank : job.ranks) rank->context->world().handles_gone();
    job.start_in_world(1, message_of(Collective::kRecv, 2, 7, 4), 4);
    job.finalize(0);
    job.world.run_until(after(job.began, seconds(2)));
    GroupOperation& send = job.start_in_world(2, message_of(Collective::kSend, 1, 7, 4), 4);
    ASSERT_TRUE(job.world.run_while_not([&] { return send.done() && job[1].operations.back()->done(); }));
    job.world.run_until(after(job.began, seconds(20)));
    for (const int rank : {1, 2}) job.finalize(rank);
    job.finish();
    for (auto& rank : job.ranks) {
      for (const auto& operation : rank->operations) EXPECT_EQ(error_of(*operation).message(), "");
    }
  }
}

// Rank 0 waits for two messages of the last rank, of which only one comes, and has asked for each.
TEST_P(Leavers, OfTheJobAreNamedToWhoWaitsForSeveralMessages) {
  for (const std::uint32_t sent : {7U, 8U}) {
    LeaversJob job(GetParam());
    const int last = job.size() - 1;
    GroupOperation* receives[2];
    for (const std::uint32_t tag : {7U, 8U})
      receives[tag - 7] = &job.start_in_world(0, message_of(Collective::kRecv, last, tag, 4), 4);
    job.world.run_until(after(job.began, seconds(35)));
    job.start_in_world(last, message_of(Collective::kSend, 0, sent, 4), 4);
    ASSERT_TRUE(job.world.run_while_not([&] { return receives[sent - 7]->done(); }));
    EXPECT_EQ(error_of(*receives[sent - 7]).message(), "");
    job.finalize(last);
    ASSERT_TRUE(job.world.run_while_not([&] { return receives[8 - sent]->done(); }));
    EXPECT_LT(job.elapsed(), seconds(37));
    expect_named(*receives[8 - sent], last, "called aiacc_finalize");
  }
}

// A short message is received when its sender has finalized, and a long one takes longer than the first questions.
TEST_P(Leavers, AreNotNamedToWhoReceivesWhatTheySentBefore) {
  for (const std::size_t elements : {std::size_t{4}, std::size_t{4'000'000}}) {
    LeaversJob job(GetParam());
    const int last = job.size() - 1;
    if (job.fabric && job.view->host_of(0) != job.view->host_of(last)) job.fabric->slow(last, 0, 2000);
    const auto receive = [&] {
      return &job.start_in_world(0, message_of(Collective::kRecv, last, 7, elements), elements);
    };
    const GroupOperation* received = elements > 4 ? receive() : nullptr;
    GroupOperation& send = job.start_in_world(last, message_of(Collective::kSend, 0, 7, elements), elements);
    ASSERT_TRUE(job.world.run_while_not([&] { return send.done(); }));
    for (int rank = 1; rank <= last; ++rank) job.finalize(rank);
    if (received == nullptr) received = receive();
    ASSERT_TRUE(job.world.run_while_not([&] { return received->done(); }));
    EXPECT_EQ(error_of(*received).message(), "");
    job.finalize(0);
    job.finish();
    for (auto& rank : job.ranks) EXPECT_EQ(error_of(*rank->operations.back()).message(), "");
  }
}

TEST(LeaversBetweenHosts, AreNamedToWhoSendsThemAMessageThatTheyDoNotTake) {
  LeaversJob job({0, 1});
  job.finalize(1);
  GroupOperation& send = job.start_in_world(0, message_of(Collective::kSend, 1, 7, 1'000'000), 1'000'000);
  job.finish();
  EXPECT_LT(job.elapsed(), seconds(1));
  expect_named(send, 1, "called aiacc_finalize");
}

// Rank 0 waits for rank 1, which waits for a message of rank 2, which has left and whose message is under way to rank 1.
TEST(LeaversBetweenHosts, AreNotBlamedByWhoWaitsForThemThroughOthers) {
  LeaversJob job({0, 1, 2});
  job.fabric->slow(2, 1, 100'000);
  GroupOperation& first = job.start_in_world(0, message_of(Collective::kRecv, 1, 7, 4), 4);
  GroupOperation& second = job.start_in_world(1, message_of(Collective::kRecv, 2, 7, 40'000), 40'000);
  GroupOperation& send = job.start_in_world(2, message_of(Collective::kSend, 1, 7, 40'000), 40'000);
  ASSERT_TRUE(job.world.run_while_not([&] { return send.done(); }));
  job.finalize(2);
  ASSERT_TRUE(job.world.run_while_not([&] { return second.done(); }));
  EXPECT_EQ(error_of(second).message(), "");
  job.start_in_world(1, message_of(Collective::kSend, 0, 7, 4), 4);
  ASSERT_TRUE(job.world.run_while_not([&] { return first.done(); }));
  EXPECT_EQ(error_of(first).message(), "");
}

// Rank 0 waits for rank 1, which waits for rank 2, which has left. Its messages to both are under way, and the one to rank 0 has the
// number and tag of the one that rank 0 is asked about.
TEST(LeaversBetweenHosts, AreNotBlamedForAMessageOfAnotherPair) {
  LeaversJob job({0, 1, 2});
  for (const int to : {0, 1}) job.fabric->slow(2, to, 400'000);
  std::vector<const GroupOperation*> all;
  const auto start = [&](int rank, Collective kind, int other, std::size_t count) {
    return all.emplace_back(&job.start_in_world(rank, message_of(kind, other, 7, count), count));
  };
  start(0, Collective::kSend, 1, 1'000'000);
  start(0, Collective::kRecv, 2, 4);
  const GroupOperation* const first = start(1, Collective::kRecv, 2, 4);
  const GroupOperation* const sends[] = {start(2, Collective::kSend, 1, 4), start(2, Collective::kSend, 0, 4)};
  ASSERT_TRUE(job.world.run_while_not([&] { return sends[0]->done() && sends[1]->done(); }));
  for (const int to : {0, 1}) job.fabric->slow(2, to, 1);
  job.finalize(2);
  ASSERT_TRUE(job.world.run_while_not([&] { return first->done(); }));
  start(1, Collective::kRecv, 0, 1'000'000);
  ASSERT_TRUE(job.world.run_while_not(
      [&] { return std::all_of(all.begin(), all.end(), [](const auto* each) { return each->done(); }); }));
  for (const GroupOperation* const each : all) EXPECT_EQ(error_of(*each).message(), "");
}

// The next question is due 64 s after the beginning.
TEST_P(Leavers, AreNamedToWhoHasWaitedForLong) {
  for (const bool freed : {false, true}) {
    LeaversJob job(GetParam());
    job.make_groups();
    const int last = job.size() - 1;
    const Call call = message_of(Collective::kRecv, last, 7, 4);
    GroupOperation& receive = freed ? job.start(0, call, 4) : job.start_in_world(0, call, 4);
    job.world.run_until(after(job.began, seconds(35)));
    freed ? job.free(last) : void(job.finalize(last));
    ASSERT_TRUE(job.world.run_while_not([&] { return receive.done(); }));
    EXPECT_LT(job.elapsed(), seconds(37));
    expect_named(receive, last, freed ? "freed their group" : "called aiacc_finalize");
  }
}

TEST_P(Leavers, AreNamedToWhoHasWaitedForLongInACollective) {
  LeaversJob job(GetParam());
  job.make_groups();
  const int last = job.size() - 1;
  std::vector<const GroupOperation*> calls;
  for (int rank = 0; rank < last; ++rank)
    calls.push_back(&job.start(rank, call_of(Collective::kAllreduce, 10'000), 10'000));
  job.world.run_until(after(job.began, seconds(35)));
  job.free(last);
  job.finish();
  EXPECT_LT(job.elapsed(), seconds(37));
  for (const GroupOperation* const call : calls) {
    EXPECT_EQ(error_of(*call).code(), Code::kMismatch);
    EXPECT_EQ(error_of(*call).peer(), last);
  }
}

// Rank 1 has received nothing, and what rank 0 sends it needs no receive to end.
TEST(LeaversBetweenHosts, AreNotNamedToWhoSendsThemAShortMessage) {
  LeaversJob job({0, 1});
  job.fabric->slow(0, 1, 400'000);
  job.finalize(1);
  GroupOperation& send = job.start_in_world(0, message_of(Collective::kSend, 1, 7, 4), 4);
  ASSERT_TRUE(job.world.run_while_not([&] { return send.done(); }));
  EXPECT_EQ(error_of(send).message(), "");
  job.finalize(0);
  job.finish();
  for (auto& rank : job.ranks) EXPECT_EQ(error_of(*rank->operations.back()).message(), "");
}

// A call that finds the group's end as it begins is waited for until it has ended.
TEST(LeaversBetweenHosts, AreNotIdleWhileACallHasToTellTheEnd) {
  LeaversJob job({0, 1});
  job.fabric->slow(0, 1, 400'000);
  job[0].context->world().abort_by_user("its end");
  GroupOperation& call = job.start_in_world(0, Call{});
  job.world.run_until(after(job.began, milliseconds(1)));
  ASSERT_FALSE(call.done());
  Stop stop;
  Task<void> idle = job[0].context->become_idle(stop);
  idle.start();
  EXPECT_FALSE(idle.done());
  ASSERT_TRUE(job.world.run_while_not([&] { return idle.done(); }));
  EXPECT_TRUE(call.done());
  idle.take();
}

// Both ranks of a host have freed the group, the first before the second, so that it keeps its part of it.
TEST(LeaversBetweenHosts, OfAWholeHostAreNamedToAllInACollective) {
  for (const bool small : {false, true}) {
    LeaversJob job({0, 0, 1, 1});
    job.make_groups();
    for (int rank = 0; rank < 4; ++rank) job.start(rank, Call{});
    job.finish();
    for (const int rank : {2, 3}) job.free(rank);
    const Instant began = job.world.now();
    const std::size_t elements = small ? 1 : 100'000;
    std::vector<GroupOperation*> calls;
    for (const int rank : {0, 1})
      calls.push_back(&job.start(rank, call_of(Collective::kAllreduce, elements), elements));
    job.finish();
    EXPECT_LT(job.world.now() - began, seconds(1));
    for (const GroupOperation* const call : calls) {
      const Error error = error_of(*call);
      EXPECT_EQ(error.code(), Code::kMismatch) << error.message();
      EXPECT_GE(error.peer(), 2) << error.message();
    }
  }
}

// Rank 0 tells the ranks at distances 1, 2 and 4 of the end, and all of them have freed the group.
TEST(LeaversBetweenHosts, RelayTheEndOfAGroup) {
  LeaversJob job({0, 1, 2, 3, 4, 5, 6, 7});
  job.make_groups();
  GroupOperation& receive = job.start(3, message_of(Collective::kRecv, 5, 7, 4), 4);
  for (const int rank : {1, 2, 4, 6, 7}) job.free(rank);
  job.groups[0]->abort_by_user("its end");
  ASSERT_TRUE(job.world.run_while_not([&] { return receive.done(); }));
  EXPECT_LT(job.elapsed(), milliseconds(200)) << "before it asks";
  EXPECT_EQ(error_of(receive).message(), "rank 0 aborted " + job.groups[0]->describe() + ": its end");
}

// Who has freed a group that had ended tells what ended it, and not that it has freed it, also who has asked before the end.
TEST(LeaversBetweenHosts, TellWhoAsksWhatEndedTheGroup) {
  for (const bool freed : {false, true}) {
    for (const auto asked_for : {milliseconds(0), milliseconds(400)}) {
      FabricModel model;
      model.detection = seconds(50);
      LeaversJob job({0, 1, 2, 3, 4, 5, 6, 7}, 1, model);
      job.make_groups();
      const std::string said = "rank 0 aborted " + job.groups[0]->describe() + ": its end";
      GroupOperation& receive = job.start(3, message_of(Collective::kRecv, 0, 7, 4), 4);
      job.world.run_until(after(job.began, asked_for));
      job.groups[0]->abort_by_user("its end");
      for (const int rank : {1, 2, 4, 6, 7}) job.world.kill(job[rank].loop.node());
      if (freed) job.free(0);
      ASSERT_TRUE(job.world.run_while_not([&] { return receive.done(); }));
      EXPECT_LT(job.elapsed(), seconds(2));
      EXPECT_EQ(error_of(receive).message(), said);
    }
  }
}

TEST(LeaversBetweenHosts, TellWhoHasAskedWhatEndedTheWorld) {
  FabricModel model;
  model.detection = seconds(50);
  LeaversJob job({0, 1, 2, 3, 4, 5, 6, 7}, 1, model);
  GroupOperation& receive = job.start_in_world(3, message_of(Collective::kRecv, 0, 7, 4), 4);
  job.world.run_until(after(job.began, milliseconds(400)));
  job[0].context->world().abort_by_user("its end");
  for (const int rank : {1, 2, 4, 6, 7}) job.world.kill(job[rank].loop.node());
  job.finalize(0);
  ASSERT_TRUE(job.world.run_while_not([&] { return receive.done(); }));
  EXPECT_EQ(error_of(receive).message(), "rank 0 aborted the world of 8 ranks: its end");
}

// Rank 0 watches the boards of ranks 3 and 2, which compute and relay nothing.
TEST(LeaversOfOneHost, TellWhoWaitsForThemWhatEndedTheGroup) {
  for (const bool message : {false, true}) {
    LeaversJob job({0, 0, 0, 0});
    job.make_groups();
    const std::string said = "rank 1 aborted " + job.groups[1]->describe() + ": its disk is full";
    for (const int rank : {2, 3}) job.world.freeze(job[rank].loop.node());
    GroupOperation& waits = message ? job.start(0, message_of(Collective::kRecv, 1, 7, 4), 4) : job.start(0, Call{});
    job.world.run_until(after(job.began, milliseconds(10)));
    job.groups[1]->abort_by_user("its disk is full");
    job.free(1);
    ASSERT_TRUE(job.world.run_while_not([&] { return waits.done(); }));
    EXPECT_EQ(error_of(waits).message(), said);
  }
}

// Rank 0 ends the group and dies at once. A call of rank 1 is the first to find that on its host, and that rank dies when it has
// returned.
TEST(LeaversBetweenHosts, WhoFindsTheEndAsItBeginsACallHasToldItBeforeThatReturns) {
  FabricModel model;
  model.detection = seconds(50);
  LeaversJob job({0, 0, 1, 1}, 1, model);
  for (const int rank : {2, 3}) job.start_in_world(rank, message_of(Collective::kRecv, 0, 7, 4), 4);
  job.world.run_until(after(job.began, milliseconds(1)));
  const Error full(Code::kSystem, "the disk of rank 0 is full", 0);
  job[0].context->world().abort(std::make_exception_ptr(full));
  job.world.kill(job[0].loop.node());
  GroupOperation& call = job.start_in_world(1, Call{});
  ASSERT_TRUE(job.world.run_while_not([&] { return call.done(); }));
  job.world.kill(job[1].loop.node());
  job.finish();
  EXPECT_LT(job.elapsed(), seconds(2));
  for (const int rank : {2, 3}) EXPECT_EQ(error_of(*job[rank].operations[0]).message(), full.message());
}

}  // namespace
}  // namespace aiacc::sim
