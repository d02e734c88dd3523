// In virtual time: messages between hosts that wait without an operation keep every promise of one.
#include "runtime/group/remote_message.h"

#include "base/data/cpu_compute.h"
#include "runtime/group/calls_test.h"
#include "tests/sim_job.h"

namespace aiacc::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Messages {
 public:
  explicit Messages(std::uint64_t seed = 1) : job({0, 1, 2}, seed, {}, {}, &compute_) {}

  struct One {
    std::vector<float> data;
    std::unique_ptr<RequestedWork> work;
    bool is_record = false;
    bool done() const { return work->done(); }
    Error error() const { return work->error() ? as_error(work->error()) : Error(Code::kOk, ""); }
  };
  // As bindings/c does: a record if it can be one, and otherwise an operation.
  One& start(Collective kind, int rank, int other, std::uint32_t tag, float value, std::size_t count) {
    One& one = *all.emplace_back(std::make_unique<One>());
    one.data.assign(count, value);
    const Buffer memory{reinterpret_cast<std::byte*>(one.data.data()), count * sizeof(float)};
    const bool sends = kind == Collective::kSend;
    const Call call = message_of(kind, other, tag, count);
    Group& world = job[rank].context->world();
    one.work = world.prepare_waiting(PlainCall::of(call), sends ? memory : Buffer{}, sends ? Buffer{} : memory);
    one.is_record = one.work != nullptr;
    if (!one.is_record) {
      one.work = world.prepare(call, sends ? memory : Buffer{}, sends ? Buffer{} : memory, nullptr);
    }
    const FramePool::Use frames(job[rank].lane.frames());
    job[rank].lane.begin_here(*one.work);
    return one;
  }
  One& recv(int rank, int from, std::uint32_t tag, std::size_t count = 1) {
    return start(Collective::kRecv, rank, from, tag, -1, count);
  }
  One& send(int rank, int to, std::uint32_t tag, float value, std::size_t count = 1) {
    return start(Collective::kSend, rank, to, tag, value, count);
  }
  void pass(Duration time) { job.world.run_until(after(job.world.now(), time)); }
  void finish() {
    EXPECT_TRUE(job.world.run_while_not([this] {
      return std::all_of(all.begin(), all.end(), [](const auto& one) { return one->done(); });
    })) << job.world.recent();
  }
  void expect_idle(int rank) {
    EXPECT_EQ(job[rank].context->world().outstanding(), 0);
    EXPECT_TRUE(job[rank].context->watch().idle());
  }

 private:
  CpuCompute compute_;

 public:
  SimJob job;
  std::vector<std::unique_ptr<One>> all;
};

TEST(RemoteMessages, AreTakenInTheOrderOfTheirCalls) {
  Messages messages;
  std::vector<Messages::One*> receives;
  for (int i = 0; i < 20; ++i) receives.push_back(&messages.recv(0, 1, 7));
  Messages::One& other_tag = messages.recv(0, 1, 8);
  Messages::One& other_sender = messages.recv(0, 2, 7);
  messages.pass(milliseconds(100));
  messages.send(1, 0, 8, 108);
  messages.send(2, 0, 7, 207);
  for (int i = 0; i < 40; ++i) messages.send(1, 0, 7, static_cast<float>(i));
  messages.pass(milliseconds(100));
  for (int i = 20; i < 40; ++i) receives.push_back(&messages.recv(0, 1, 7));  // their messages are unexpected
  messages.finish();
  for (const auto& one : messages.all) {
    EXPECT_TRUE(one->is_record);
    EXPECT_EQ(one->error().message(), "");
  }
  for (int i = 0; i < 40; ++i) EXPECT_EQ(receives[static_cast<std::size_t>(i)]->data[0], static_cast<float>(i));
  EXPECT_EQ(other_tag.data[0], 108);
  EXPECT_EQ(other_sender.data[0], 207);
  for (int rank = 0; rank < 3; ++rank) messages.expect_idle(rank);
}

// 64 KiB each: the first four have credit, the others begin with an RTS.
TEST(RemoteMessages, WithoutCreditMeetReceivesThatWait) {
  constexpr std::size_t kCount = Mailbox::kEagerBytes / sizeof(float);
  Messages messages;
  std::vector<Messages::One*> receives, sends;
  for (std::uint32_t tag = 0; tag < 10; ++tag) receives.push_back(&messages.recv(0, 1, tag, kCount));
  messages.pass(milliseconds(1));
  for (std::uint32_t tag = 0; tag < 10; ++tag) {
    sends.push_back(&messages.send(1, 0, tag, static_cast<float>(tag), kCount));
  }
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(receives[i]->is_record);
    EXPECT_EQ(sends[i]->is_record, i < 4) << i;
  }
  EXPECT_FALSE(messages.recv(0, 1, 99, kCount + 1).is_record) << "it gets an RTS";
  messages.send(1, 0, 99, 1, kCount + 1);
  messages.finish();
  for (const auto& one : messages.all) EXPECT_EQ(one->error().message(), "");
  for (std::size_t i = 0; i < 10; ++i) {
    ASSERT_EQ(receives[i]->data, std::vector<float>(kCount, static_cast<float>(i)));
  }
  messages.expect_idle(0);
  messages.expect_idle(1);
}

TEST(RemoteMessages, OfAnotherCallAreAMismatchThatEndsTheOthersToo) {
  for (const bool late : {false, true}) {
    Messages messages;
    if (late) messages.send(1, 0, 7, 1, 3);
    if (late) messages.pass(milliseconds(10));
    Messages::One& mine = messages.recv(0, 1, 7, 4);
    for (std::uint32_t tag = 8; tag < 100; ++tag) messages.recv(0, 2, tag);
    if (!late) messages.send(1, 0, 7, 1, 3);
    messages.finish();
    EXPECT_EQ(mine.error().code(), Code::kMismatch);
    EXPECT_NE(mine.error().message().find("recv of 4 fp32 from rank 1, tag 7"), std::string::npos)
        << mine.error().message();
    EXPECT_NE(mine.error().message().find("send of 3 fp32 to rank 0, tag 7"), std::string::npos);
    for (const auto& one : messages.all) {
      if (one->data[0] == -1) {
        ASSERT_EQ(one->error().code(), Code::kMismatch);
      }
    }
    messages.expect_idle(0);
    EXPECT_EQ(messages.job[0].context->recorder().last(1)[0].outcome.state, Record::State::kEnded);
  }
}

TEST(RemoteMessages, EndWhenARankDies) {
  Messages messages;
  for (std::uint32_t tag = 0; tag < 1000; ++tag) messages.recv(0, 1 + static_cast<int>(tag % 2), tag % 10);
  messages.pass(milliseconds(300));  // the oldest ones are operations now
  messages.job.world.kill(messages.job[1].loop.node());
  messages.finish();
  for (const auto& one : messages.all) {
    ASSERT_EQ(one->error().code(), Code::kPeerFailed);
    ASSERT_EQ(one->error().peer(), 1);
  }
  messages.expect_idle(0);
}

TEST(RemoteMessages, MeetTheirDeadlineWithASentenceOfTheOldest) {
  Messages messages;
  for (std::uint32_t tag = 0; tag < 100; ++tag) messages.recv(0, 1, tag);
  const Duration limit = messages.job[0].context->world().default_timeout();
  messages.finish();
  const Error first = messages.all[0]->error();
  EXPECT_EQ(first.code(), Code::kTimeout);
  EXPECT_NE(first.message().find("recv of 1 fp32 from rank 1, tag 0 (operation 1 of"), std::string::npos)
      << first.message();
  EXPECT_NE(first.message().find("rank 1 has not made this call"), std::string::npos) << first.message();
  EXPECT_GE(messages.job.elapsed(), limit);
  EXPECT_LE(messages.job.elapsed(), limit + milliseconds(10));
  for (const auto& one : messages.all) ASSERT_EQ(one->error().code(), Code::kTimeout);
}

// Rank 0 waits for rank 1, which waits for rank 2 without an operation: it is rank 2 that is named.
TEST(RemoteMessages, AreFollowedByTheDiagnosisOfOtherRanks) {
  Messages messages;
  messages.recv(1, 2, 7);
  messages.recv(0, 1, 7);
  messages.job[0].waits.reset();
  messages.job[1].waits.reset();
  messages.pass(seconds(100));
  ASSERT_EQ(messages.job[0].reports.size(), 1u);
  EXPECT_NE(messages.job[0].reports[0].sentence.find("rank 2 has not made this call"), std::string::npos)
      << messages.job[0].reports[0].sentence;
  messages.send(2, 1, 7, 1);
  messages.send(1, 0, 7, 1);
  messages.finish();
  for (const auto& one : messages.all) EXPECT_EQ(one->error().message(), "");
}

TEST(RemoteMessages, InACircleAreToldOnceWithinTwoSeconds) {
  Messages messages;
  for (int rank = 0; rank < 3; ++rank) messages.recv(rank, (rank + 1) % 3, 7);
  messages.pass(seconds(2));
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(messages.job[rank].reports.size(), 1u) << "rank " << rank;
    EXPECT_NE(messages.job[rank].reports[0].sentence.find("They wait until"), std::string::npos);
  }
  for (int rank = 0; rank < 3; ++rank) messages.send(rank, (rank + 2) % 3, 7, 1);
  messages.finish();
}

// Nobody touches a buffer after its owner was told, whenever the group ends: also while the port fills or reads it.
TEST(RemoteMessages, GiveTheirMemoryBackBeforeTheyAreTold) {
  constexpr std::size_t kCount = 8192;
  int ended_well = 0, aborted = 0;
  for (int step = 0; step < 120; ++step) {
    Messages messages(static_cast<std::uint64_t>(step) + 1);
    for (std::uint32_t tag = 0; tag < 6; ++tag) messages.recv(0, 1, tag, kCount);
    for (std::uint32_t tag = 0; tag < 6; ++tag) messages.send(1, 0, tag, 5, kCount);
    messages.pass(microseconds(step));
    messages.job[step % 2].context->world().abort_by_user("enough");
    for (bool all = false; !all;) {
      all = true;
      for (const auto& one : messages.all) {
        if (!one->done()) {
          all = false;
        } else if (one->data[0] != 99) {
          (one->error().code() == Code::kOk ? ended_well : aborted)++;
          std::fill(one->data.begin(), one->data.end(), 99.0f);
        }
      }
      messages.pass(std::chrono::nanoseconds(100));
      ASSERT_LE(messages.job.elapsed(), seconds(1));
    }
    messages.pass(seconds(1));
    for (const auto& one : messages.all) ASSERT_EQ(one->data, std::vector<float>(kCount, 99.0f)) << "step " << step;
    messages.expect_idle(0);
    messages.expect_idle(1);
  }
  EXPECT_GT(ended_well, 0);
  EXPECT_GT(aborted, 0);
}

// A stalled send is an operation after a while, and goes on: the path between the two hosts is cut and comes back.
TEST(RemoteMessages, GoOnWhenTheirPathComesBack) {
  Messages messages;
  for (std::uint32_t tag = 0; tag < 4; ++tag) messages.recv(0, 1, tag, 8192);
  messages.job.fabric->cut(0, 1);
  for (std::uint32_t tag = 0; tag < 4; ++tag) messages.send(1, 0, tag, 5, 8192);
  messages.pass(seconds(2));
  messages.job.fabric->heal(0, 1);
  messages.finish();
  for (const auto& one : messages.all) {
    ASSERT_EQ(one->error().message(), "");
    ASSERT_EQ(one->data, std::vector<float>(8192, 5.0f));
  }
}

}  // namespace
}  // namespace aiacc::sim
