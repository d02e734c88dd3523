// In virtual time: ranks that wait for what never comes are told of it. Receivers that wait for each other, members that freed a
// group or never made it, and the list of who is missing, which reaches every host.
#include "base/error_about.h"
#include "runtime/group/calls_test.h"
#include "tests/sim_job.h"

namespace aiacc::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Placement = std::vector<std::uint32_t>;

class Receivers : public ::testing::TestWithParam<Placement> {
 protected:
  void recv(SimJob& job, int rank, int from, Duration timeout = CallOptions::kDefaultTimeout) {
    CallOptions options;
    options.timeout = timeout;
    const Buffer nothing;
    job[rank].start(message_of(Collective::kRecv, from, 7, 4), nothing, buffer_of(data_.emplace_back(4)), options);
  }
  void recv_any(SimJob& job, int rank) {
    Call call = message_of(Collective::kRecvAny, 0, 7, 4);
    call.sender = &senders_.emplace_back(-1);
    const Buffer nothing;
    job[rank].start(call, nothing, buffer_of(data_.emplace_back(4)));
  }
  void send(SimJob& job, int rank, int to) {
    const Buffer nothing;
    job[rank].start(message_of(Collective::kSend, to, 7, 4), buffer_of(data_.emplace_back(4, 1.0f)), nothing);
  }
  std::deque<std::vector<float>> data_;
  std::deque<int> senders_;
};
INSTANTIATE_TEST_SUITE_P(Placements, Receivers,
                         ::testing::Values(Placement{0, 0}, Placement{0, 1}, Placement{0, 0, 0, 0}, Placement{0, 1, 2},
                                           Placement{0, 0, 1}, Placement{0, 1, 0, 1, 2}));

TEST_P(Receivers, InACircleAreToldOnceWithinASecondAndAtTheDeadline) {
  SimJob job(GetParam());
  const int n = job.size();
  for (int rank = 0; rank < n; ++rank) recv(job, rank, (rank + 1) % n, seconds(20));
  job.world.run_until(after(job.began, seconds(1)));
  for (int rank = 0; rank < n; ++rank) ASSERT_EQ(job[rank].reports.size(), 1u) << "rank " << rank;
  job.finish();
  for (int rank = 0; rank < n; ++rank) {
    EXPECT_EQ(job[rank].reports.size(), 1u) << "once";
    const Error error = error_of(*job[rank].operations[0]);
    EXPECT_EQ(error.code(), Code::kTimeout);
    for (const std::string& sentence : {job[rank].reports[0].sentence, error.message()}) {
      EXPECT_NE(sentence.find("nobody sends:"), std::string::npos) << sentence;
      for (int other = 0; other < n; ++other) {
        const std::string called = "rank " + std::to_string(other) + " called recv of 4 fp32 from rank " +
                                   std::to_string((other + 1) % n) + ", tag 7";
        EXPECT_NE(sentence.find(called), std::string::npos) << called << " in " << sentence;
      }
    }
  }
}

TEST_P(Receivers, FromAnybodyAreACircleWhenAllReceive) {
  SimJob job(GetParam());
  for (int rank = 0; rank + 1 < job.size(); ++rank) recv_any(job, rank);
  job.world.run_until(after(job.began, seconds(1)));
  for (auto& rank : job.ranks) EXPECT_TRUE(rank->reports.empty()) << "the last rank may send";
  recv(job, job.size() - 1, 0);
  job.world.run_until(after(job.began, seconds(3)));
  for (auto& rank : job.ranks) {
    ASSERT_EQ(rank->reports.size(), 1u);
    EXPECT_NE(rank->reports[0].sentence.find("rank 0 called recv of 4 fp32 from any rank"), std::string::npos)
        << rank->reports[0].sentence;
  }
}

TEST_P(Receivers, ThatAreSentToAfterAllGoOn) {
  SimJob job(GetParam());
  const int n = job.size();
  for (int rank = 0; rank < n; ++rank) recv(job, rank, (rank + 1) % n);
  job.world.run_until(after(job.began, seconds(2)));
  for (int rank = 0; rank < n; ++rank) send(job, rank, (rank + n - 1) % n);
  job.finish();
  for (auto& rank : job.ranks) {
    for (const auto& operation : rank->operations) EXPECT_EQ(error_of(*operation).message(), "");
  }
}

TEST_P(Receivers, OfOneThatDoesSomethingElseHearNothing) {
  SimJob job(GetParam());
  const int last = job.size() - 1;
  for (int rank = 0; rank < last; ++rank) recv(job, rank, rank + 1);
  job.world.run_until(after(job.began, seconds(10)));
  for (auto& rank : job.ranks) EXPECT_TRUE(rank->reports.empty()) << rank->reports[0].sentence;
  // A receiver that sends as well is none.
  recv(job, last, 0);
  job[last].sum(1);
  job.world.run_until(after(job.began, seconds(20)));
  for (auto& rank : job.ranks) EXPECT_TRUE(rank->reports.empty()) << rank->reports[0].sentence;
}

// Receives are posted early everywhere: a member whose user computes may send what it likes later.
TEST_P(Receivers, HearNothingWhileOneOfThemComputes) {
  SimJob job(GetParam());
  const int n = job.size();
  job[n - 1].waits.reset();
  for (int rank = 0; rank < n; ++rank) recv(job, rank, (rank + 1) % n);
  job.world.run_until(after(job.began, seconds(10)));
  for (auto& rank : job.ranks) EXPECT_TRUE(rank->reports.empty()) << rank->reports[0].sentence;
  job[n - 1].waits.emplace(job[n - 1].lane);
  job.world.run_until(after(job.began, seconds(70)));
  for (auto& rank : job.ranks) {
    ASSERT_FALSE(rank->reports.empty());
    EXPECT_NE(rank->reports[0].sentence.find("nobody sends"), std::string::npos) << rank->reports[0].sentence;
  }
}

// --- the missing -------------------------------------------------------------------------------------------------------

TEST(Missing, AreListedOnEveryHost) {
  SimJob job({0, 1, 0, 1, 2, 2});
  const Buffer nothing;
  for (const int rank : {0, 1, 4}) {
    CallOptions options;
    if (rank == 0) options.timeout = seconds(3);
    job[rank].start(Call{}, nothing, nothing, options);
  }
  job.finish();
  for (const int rank : {0, 1, 4}) {
    EXPECT_EQ(error_of(*job[rank].operations[0]).code(), Code::kTimeout);
    EXPECT_EQ(ranks_of(job[rank].operations[0]->error()), (std::vector<int>{2, 3, 5})) << "rank " << rank;
  }
}

struct SubGroup {
  // Of all ranks, made by `rank`.
  SubGroup(SimJob& job, int rank) {
    GroupOrder order;
    for (int member = 0; member < job.size(); ++member) order.ranks.push_back(member);
    Stop stop;
    run(job, job[rank].context->groups().make(*job.view, order, &group, stop));
  }
  static void run(SimJob& job, Task<void> task) {
    task.start();
    EXPECT_TRUE(job.world.run_while_not([&] { return task.done(); }));
    task.take();
  }
  GroupOperation& barrier(SimJob& job, int rank, Duration timeout) {
    CallOptions options;
    options.timeout = timeout;
    const Buffer nothing;
    job[rank].operations.push_back(group->prepare(Call{}, nothing, nothing, &options));
    job[rank].lane.start(*job[rank].operations.back());
    return *job[rank].operations.back();
  }
  void free(SimJob& job, int rank) {
    group->handles_gone();
    run(job, job[rank].context->groups().collect());
  }
  Group* group = nullptr;
};

TEST(Missing, AMemberThatFreedTheGroupIsNamedWithinASecond) {
  SimJob job({0, 1, 2});
  std::deque<SubGroup> groups;
  for (int rank = 0; rank < 3; ++rank) groups.emplace_back(job, rank);
  for (int rank = 0; rank < 3; ++rank) groups[static_cast<std::size_t>(rank)].barrier(job, rank, seconds(100));
  job.finish();
  groups[1].free(job, 1);
  const Instant began = job.world.now();
  for (const int rank : {0, 2}) groups[static_cast<std::size_t>(rank)].barrier(job, rank, seconds(100));
  job.finish();
  EXPECT_LT(job.world.now() - began, seconds(1));
  for (const int rank : {0, 2}) {
    const Error error = error_of(*job[rank].operations.back());
    EXPECT_EQ(error.code(), Code::kMismatch) << error.message();
    EXPECT_EQ(error.peer(), 1);
    EXPECT_NE(error.message().find("rank 1 has freed the group"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("called barrier (operation 2"), std::string::npos) << error.message();
  }
}

// It ended the operation that others still wait in: that is nobody's fault but of who is late.
TEST(Missing, AMemberThatFreedTheGroupAfterItsPartIsNotToBlame) {
  SimJob job({0, 1, 2});
  std::deque<SubGroup> groups;
  for (int rank = 0; rank < 3; ++rank) groups.emplace_back(job, rank);
  std::vector<float> data(4);
  Call call;
  call.kind = Collective::kReduce;
  call.count = 4;
  call.root = 0;
  const auto reduce = [&](int rank) {
    CallOptions options;
    options.timeout = seconds(100);
    const Buffer nothing;
    job[rank].operations.push_back(groups[static_cast<std::size_t>(rank)].group->prepare(
        call, buffer_of(data), rank == 0 ? buffer_of(data) : nothing, &options));
    job[rank].lane.start(*job[rank].operations.back());
  };
  reduce(1);
  job.finish();
  groups[1].free(job, 1);
  reduce(0);
  job.world.run_until(after(job.world.now(), seconds(10)));
  EXPECT_FALSE(job[0].operations.back()->done());
  reduce(2);
  job.finish();
  EXPECT_EQ(error_of(*job[0].operations.back()).message(), "");
}

class OtherCalls : public testing::TestWithParam<int> {};  // how many calls the member had made

// Its first had no elements and exchanged nothing, so no message shows that the others call another operation.
TEST_P(OtherCalls, OfAMemberThatFreedTheGroupAreNamedWithinASecond) {
  SimJob job({0, 1});
  std::deque<SubGroup> groups;
  for (int rank = 0; rank < 2; ++rank) groups.emplace_back(job, rank);
  std::vector<float> data(4);
  const auto broadcast = [&](int rank, std::size_t count) {
    Call call;
    call.kind = Collective::kBroadcast;
    call.count = count;
    CallOptions options;
    options.timeout = seconds(100);
    const Buffer part = buffer_of(data).slice(0, count * sizeof(float));
    job[rank].operations.push_back(groups[static_cast<std::size_t>(rank)].group->prepare(call, part, part, &options));
    job[rank].lane.start(*job[rank].operations.back());
    job.finish();
  };
  broadcast(0, 0);
  if (GetParam() == 2) broadcast(0, 4);
  groups[0].free(job, 0);
  const Instant began = job.world.now();
  broadcast(1, 4);
  EXPECT_LT(job.world.now() - began, seconds(1));
  const Error error = error_of(*job[1].operations.back());
  EXPECT_EQ(error.code(), Code::kMismatch) << error.message();
  EXPECT_NE(error.message().find("rank 0 has freed the group"), std::string::npos) << error.message();
}

INSTANTIATE_TEST_SUITE_P(Missing, OtherCalls, testing::Values(1, 2));

TEST(Missing, AMemberThatNeverMadeTheGroupIsNamedAtTheDeadline) {
  SimJob job({0, 1});
  SubGroup group(job, 0);
  group.barrier(job, 0, seconds(3));
  job.finish();
  const Error error = error_of(*job[0].operations.back());
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_EQ(error.peer(), 1);
  EXPECT_NE(error.message().find("rank 1 has not"), std::string::npos) << error.message();
}

}  // namespace
}  // namespace aiacc::sim
