// In virtual time: receives that wait without an operation keep every promise of one.
#include "base/data/cpu_compute.h"
#include "runtime/group/calls_test.h"
#include "runtime/group/waiting_receive.h"
#include "tests/sim_job.h"

namespace aiacc::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class WaitingReceivesOnAHost : public ::testing::Test {
 protected:
  Buffer memory(float value, std::size_t count = 1) {
    std::vector<float>& made = data_.emplace_back(count, value);
    return {reinterpret_cast<std::byte*>(made.data()), count * sizeof(float)};
  }
  // Returns the index of what it receives into.
  std::size_t recv(int rank, int from, std::uint32_t tag, std::size_t count = 1) {
    const Buffer into = memory(-1, count);
    std::unique_ptr<RequestedWork> receive = job_[rank].context->world().prepare_waiting(
        PlainCall::of(message_of(Collective::kRecv, from, tag, count)), {}, into);
    EXPECT_NE(receive, nullptr);
    if (receive != nullptr) job_[rank].lane.begin_here(*receives_.emplace_back(std::move(receive)));
    return data_.size() - 1;
  }
  std::size_t recv_by_operation(int rank, int from, std::uint32_t tag) {
    job_[rank].start(message_of(Collective::kRecv, from, tag), {}, memory(-1));
    job_.world.run_until(after(job_.world.now(), milliseconds(1)));
    return data_.size() - 1;
  }
  void send(int rank, int to, std::uint32_t tag, float value, std::size_t count = 1) {
    job_[rank].start(message_of(Collective::kSend, to, tag, count), memory(value, count), {});
  }
  void finish() {
    EXPECT_TRUE(job_.world.run_while_not([this] {
      return job_.all_done() && std::all_of(receives_.begin(), receives_.end(), [](auto& one) { return one->done(); });
    }));
  }
  Error error_of_receive(std::size_t i) const {
    EXPECT_TRUE(receives_[i]->done());
    return receives_[i]->error() ? as_error(receives_[i]->error()) : Error(Code::kOk, "");
  }
  float got(std::size_t i) const { return data_[i][0]; }

  CpuCompute compute_;
  std::deque<std::vector<float>> data_;
  SimJob job_{{0, 0, 0}, 1, {}, {}, &compute_};
  std::vector<std::unique_ptr<RequestedWork>> receives_;
};

TEST_F(WaitingReceivesOnAHost, TakeTheirMessagesInTheOrderOfTheirCallsAndOfOperations) {
  std::vector<std::size_t> of_one_tag;
  for (int i = 0; i < 30; ++i) {
    of_one_tag.push_back(i % 3 == 0 ? recv_by_operation(0, 1, 7) : recv(0, 1, 7));
  }
  const std::size_t other_tag = recv(0, 1, 8), other_sender = recv(0, 2, 7);
  job_.world.run_until(after(job_.began, milliseconds(100)));
  send(1, 0, 8, 108);
  send(2, 0, 7, 207);
  for (int i = 0; i < 30; ++i) send(1, 0, 7, static_cast<float>(i));
  finish();
  for (int i = 0; i < 30; ++i) EXPECT_EQ(got(of_one_tag[static_cast<std::size_t>(i)]), static_cast<float>(i));
  EXPECT_EQ(got(other_tag), 108);
  EXPECT_EQ(got(other_sender), 207);
  for (std::size_t i = 0; i < receives_.size(); ++i) EXPECT_EQ(error_of_receive(i).message(), "");
  EXPECT_EQ(job_[0].context->world().outstanding(), 0);
  EXPECT_TRUE(job_[0].context->watch().idle());
}

TEST_F(WaitingReceivesOnAHost, AreRecordedWhileTheyWaitAndWhenTheyHaveEnded) {
  recv(0, 1, 7);
  std::vector<Record> records = job_[0].context->recorder().last(1);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].outcome.state, Record::State::kRunning);
  EXPECT_EQ(records[0].call.describe(), message_of(Collective::kRecv, 1, 7).describe());
  EXPECT_EQ(records[0].sequence, receives_[0]->sequence());
  send(1, 0, 7, 1);
  finish();
  records = job_[0].context->recorder().last(1);
  EXPECT_EQ(records[0].outcome.state, Record::State::kEnded);
  EXPECT_EQ(records[0].outcome.code, Code::kOk);
}

TEST_F(WaitingReceivesOnAHost, OfAnotherLengthAreAMismatchThatEndsTheOthersToo) {
  recv(0, 1, 7, 4);
  for (std::uint32_t tag = 8; tag < 100; ++tag) recv(0, 2, tag);
  send(1, 0, 7, 1, 3);
  finish();
  EXPECT_EQ(error_of_receive(0).code(), Code::kMismatch);
  EXPECT_NE(error_of_receive(0).message().find("rank 1 sent 12 bytes"), std::string::npos)
      << error_of_receive(0).message();
  EXPECT_NE(error_of_receive(0).message().find("expects 16 bytes"), std::string::npos);
  for (std::size_t i = 1; i < receives_.size(); ++i) ASSERT_EQ(error_of_receive(i).code(), Code::kMismatch);
  EXPECT_TRUE(job_[0].context->world().aborted());
  EXPECT_EQ(job_[0].context->world().outstanding(), 0);
  const std::vector<Record> records = job_[0].context->recorder().last(1);
  EXPECT_EQ(records[0].outcome.state, Record::State::kEnded);
}

TEST_F(WaitingReceivesOnAHost, EndWhenTheGroupEndsAndWhenARankIsLost) {
  for (std::uint32_t tag = 0; tag < 1000; ++tag) recv(0, 1 + static_cast<int>(tag % 2), tag % 10);
  job_.world.run_until(after(job_.began, milliseconds(300)));  // the oldest ones are operations now
  job_[0].context->on_rank_lost(1, std::make_exception_ptr(Error(Code::kPeerFailed, "rank 1 has died", 1)));
  finish();
  for (std::size_t i = 0; i < receives_.size(); ++i) {
    ASSERT_EQ(error_of_receive(i).code(), Code::kPeerFailed) << i;
    ASSERT_EQ(error_of_receive(i).peer(), 1);
  }
  EXPECT_EQ(job_[0].context->world().outstanding(), 0);
  EXPECT_TRUE(job_[0].context->watch().idle());
}

TEST_F(WaitingReceivesOnAHost, MeetTheirDeadlineWithASentenceOfTheOldest) {
  for (std::uint32_t tag = 0; tag < 100; ++tag) recv(0, 1, tag);
  const Duration limit = job_[0].context->world().default_timeout();
  finish();
  EXPECT_EQ(error_of_receive(0).code(), Code::kTimeout);
  EXPECT_NE(error_of_receive(0).message().find("recv of 1 fp32 from rank 1, tag 0 (operation 1 of"), std::string::npos)
      << error_of_receive(0).message();
  EXPECT_GE(job_.elapsed(), limit);
  EXPECT_LE(job_.elapsed(), limit + milliseconds(10));
  for (std::size_t i = 1; i < receives_.size(); ++i) ASSERT_EQ(error_of_receive(i).code(), Code::kTimeout);
}

// One of each line is reported, and the next one when that has ended.
TEST_F(WaitingReceivesOnAHost, AreReportedByTheirOldest) {
  for (std::uint32_t tag = 0; tag < 100; ++tag) recv(0, 1, tag);
  job_[0].waits.reset();
  job_.world.run_until(after(job_.began, seconds(100)));
  ASSERT_EQ(job_[0].reports.size(), 1u);
  EXPECT_NE(job_[0].reports[0].sentence.find("(operation 1 of"), std::string::npos) << job_[0].reports[0].sentence;
  for (std::uint32_t tag = 0; tag < 50; ++tag) send(1, 0, tag, 1);
  job_.world.run_until(after(job_.began, seconds(200)));
  ASSERT_EQ(job_[0].reports.size(), 2u);
  EXPECT_NE(job_[0].reports[1].sentence.find("(operation 51 of"), std::string::npos) << job_[0].reports[1].sentence;
  for (std::uint32_t tag = 50; tag < 100; ++tag) send(1, 0, tag, 1);
  finish();
  for (std::size_t i = 0; i < receives_.size(); ++i) ASSERT_EQ(error_of_receive(i).message(), "");
}

TEST_F(WaitingReceivesOnAHost, InACircleAreToldOnceWithinTwoSeconds) {
  for (int rank = 0; rank < 3; ++rank) recv(rank, (rank + 1) % 3, 7);
  job_.world.run_until(after(job_.began, seconds(2)));
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(job_[rank].reports.size(), 1u) << "rank " << rank;
    EXPECT_NE(job_[rank].reports[0].sentence.find("They wait until"), std::string::npos);
  }
  for (int rank = 0; rank < 3; ++rank) send(rank, (rank + 2) % 3, 7, 1);
  finish();
}

TEST_F(WaitingReceivesOnAHost, AreNotForWhatNeedsAnOperation) {
  Group& world = job_[0].context->world();
  const Buffer into = memory(-1);
  EXPECT_EQ(world.prepare_waiting(PlainCall::of(message_of(Collective::kSend, 1, 7)), {}, into), nullptr);
  EXPECT_EQ(world.prepare_waiting(PlainCall::of(message_of(Collective::kRecv, 0, 7)), {}, into), nullptr)
      << "from itself";
  EXPECT_EQ(world.prepare_waiting(PlainCall::of(message_of(Collective::kRecvAny, 1, 7)), {}, into), nullptr);
  Buffer device = into;
  device.kind = MemoryKind::kCuda;
  EXPECT_EQ(world.prepare_waiting(PlainCall::of(message_of(Collective::kRecv, 1, 7)), {}, device), nullptr);
  world.abort_by_user("enough");
  EXPECT_EQ(world.prepare_waiting(PlainCall::of(message_of(Collective::kRecv, 1, 7)), {}, into), nullptr)
      << "it is to say why";
}

}  // namespace
}  // namespace aiacc::sim
