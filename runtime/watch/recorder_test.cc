// The recorder by itself, and that it tells of operations of a context as they are.
#include "runtime/watch/recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/sim_job.h"

namespace aiacc {
namespace {

using std::chrono::milliseconds;

const RecordedGroup kWorld{7, Label<48>("the world")};

Call allreduce_of(std::size_t count) {
  Call call;
  call.kind = Collective::kAllreduce;
  call.count = count;
  return call;
}

TEST(Recorder, KeepsTheLastInTheirOrder) {
  Recorder recorder;
  EXPECT_TRUE(recorder.last().empty());
  const Instant start{};
  const std::uint64_t first = recorder.begin(kWorld, 1, allreduce_of(1), "", start);
  for (std::uint64_t i = 1; i < 3 * Recorder::kRecords; ++i) {
    recorder.end(recorder.begin(kWorld, i + 1, allreduce_of(i + 1), "", start), Code::kOk, start);
  }
  recorder.end(first, Code::kTimeout, start);  // its place is another's now
  const std::vector<Record> all = recorder.last();
  ASSERT_EQ(all.size(), Recorder::kRecords);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].sequence, 2 * Recorder::kRecords + i + 1);
    EXPECT_EQ(all[i].call.count, all[i].sequence);
    EXPECT_EQ(all[i].outcome.code, Code::kOk);
  }
  const std::uint64_t runs = recorder.begin(kWorld, 300, Call{}, "long", start + milliseconds(7));
  recorder.add(kWorld, 301, allreduce_of(3), start + milliseconds(4));  // by a clock that ticks every 4 ms
  recorder.end(runs, Code::kOk, start + milliseconds(8));
  const std::vector<Record> last = recorder.last(2);
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[1].began, last[0].began);
  EXPECT_EQ(last[1].call.count, 3u);
  EXPECT_EQ(last[1].name.text(), "") << "what stood in its place had one";
  EXPECT_EQ(last[0].ended - last[0].began, milliseconds(1));
}

TEST(Recorder, GivesAsManyAsAreAskedFor) {
  Recorder recorder;
  for (std::uint64_t i = 1; i <= 3; ++i) recorder.add(kWorld, i, allreduce_of(1), Instant{});
  EXPECT_EQ(recorder.last(5).size(), 3u);
  const std::vector<Record> two = recorder.last(2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].sequence, 3u);
}

// Entries are used again, and of most calls only what differs from the last one there is stored.
TEST(Recorder, TellsCallsApartThatShareAnEntry) {
  Recorder recorder;
  const RecordedGroup groups[] = {
      kWorld, {8, Label<48>("one group"), recorder.stamp()}, {9, Label<48>("another group"), recorder.stamp()}};
  std::vector<Call> calls(4);
  calls[0] = allreduce_of(5);
  calls[1].kind = Collective::kSend;
  calls[1].count = 7;
  calls[1].root = 3;
  calls[1].tag = 0xffffffff;
  calls[2].kind = Collective::kSendrecv;
  calls[2].recv_count = 9;
  calls[2].from = 2;
  calls[2].recv_tag = 4;
  calls[3] = allreduce_of(1);
  calls[3].reduction.op = ReduceOp::kMax;
  calls[3].reduction.type = DType::kInt64;
  calls[3].reduction.postscale = 0.5;
  for (std::size_t before = 0; before < 36; ++before) {
    for (std::size_t after = 0; after < 36; ++after) {
      const RecordedGroup& group = groups[after % 3];
      const std::string name = after % 9 >= 6 ? "named" : "";
      const Call& call = calls[after / 9];
      recorder.begin(groups[before % 3], 1, calls[before / 9], before % 9 >= 6 ? "a name" : "", Instant{});
      for (std::size_t i = 1; i < Recorder::kRecords; ++i) recorder.add(kWorld, 2, Call{}, Instant{});
      if (after % 9 < 3 && PlainCall::describes(call)) {
        recorder.add(group, 3, PlainCall::of(call), Instant{});
      } else {
        recorder.begin(group, 3, call, name, Instant{});
      }
      const std::vector<Record> last = recorder.last(1);
      ASSERT_EQ(last.size(), 1u);
      ASSERT_EQ(last[0].call.describe(), call.describe());
      ASSERT_EQ(last[0].group.id, group.id);
      ASSERT_EQ(last[0].group.name.text(), group.name.text());
      ASSERT_EQ(last[0].name.text(), name);
      for (std::size_t i = 1; i < Recorder::kRecords; ++i) recorder.add(kWorld, 2, Call{}, Instant{});
    }
  }
}

// What was prepared is recorded by add_prepared() alone, and what is recorded in its place leaves nothing of it.
TEST(Recorder, RecordsNothingBeforeWhatIsPreparedHasEnded) {
  Recorder recorder;
  Call uneven = allreduce_of(7);
  uneven.reduction.postscale = 0.5;
  recorder.prepare(kWorld, 1, uneven, Instant{} + milliseconds(5));
  EXPECT_TRUE(recorder.last().empty());
  recorder.begin(kWorld, 1, allreduce_of(3), "named", Instant{} + milliseconds(6));
  ASSERT_EQ(recorder.last().size(), 1u);
  EXPECT_EQ(recorder.last()[0].describe(Instant{} + milliseconds(6)),
            "allreduce of 3 fp32, sum 'named' (operation 1 of the world) has run for 0 s");
  recorder.prepare(kWorld, 2, uneven, Instant{} + milliseconds(7));
  ASSERT_EQ(recorder.last().size(), 1u);
  recorder.add_prepared();
  ASSERT_EQ(recorder.last().size(), 2u);
  EXPECT_EQ(recorder.last()[1].call.describe(), uneven.describe());
  EXPECT_EQ(recorder.last()[1].sequence, 2u);
  EXPECT_EQ(recorder.last()[1].outcome.state, Record::State::kEnded);
}

TEST(Recorder, DescribesWhatRunsAndWhatHasEnded) {
  Recorder recorder;
  const Instant start{};
  const std::uint64_t runs = recorder.begin(kWorld, 12, allreduce_of(1024), "gradients", start);
  recorder.end(recorder.begin(kWorld, 13, Call{}, "a name that is longer than is kept", start + milliseconds(100)),
               Code::kMismatch, start + milliseconds(250));
  const Instant now = start + milliseconds(500);
  std::vector<Record> records = recorder.last();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].describe(now),
            "allreduce of 1024 fp32, sum 'gradients' (operation 12 of the world) has run for 0.5 s");
  EXPECT_EQ(records[1].describe(now),
            "barrier 'a name that is longer th' (operation 13 of the world) ended with mismatch 0.25 s ago, "
            "after 0.15 s");
  recorder.end(runs, Code::kOk, now);
  records = recorder.last();
  EXPECT_EQ(records[0].describe(now),
            "allreduce of 1024 fp32, sum 'gradients' (operation 12 of the world) ended well 0 s ago, after 0.5 s");
  const Json json = records[1].to_json(now, 2'000'000'000);
  EXPECT_EQ(json["began_ns"].as_integer(), 1'600'000'000);
  EXPECT_EQ(json["ended_ns"].as_integer(), 1'750'000'000);
  EXPECT_EQ(json["status"].as_string(), "mismatch");
}

// Each operation's sequence, count and name say the same number: a copy that was torn would show two.
TEST(Recorder, IsReadWholeWhileItIsWritten) {
  Recorder recorder;
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !over; ++i) {
      const std::string name = std::to_string(i);
      recorder.end(recorder.begin(kWorld, i, allreduce_of(i), name, Instant{}), Code::kOk, Instant{});
    }
  });
  std::size_t seen = 0;
  for (int look = 0; look < 2000 || seen < 1000; ++look) {
    for (const Record& record : recorder.last()) {
      ++seen;
      ASSERT_EQ(record.call.count, record.sequence);
      ASSERT_EQ(record.name.text(), std::to_string(record.sequence));
    }
  }
  over = true;
  writer.join();
}

TEST(Recorder, KnowsTheOperationsOfItsContext) {
  sim::SimJob job({0, 0});
  CallOptions options;
  options.name = "first";
  options.timeout = milliseconds(300);
  job[0].sum(100, options);
  job[1].sum(100, options);
  job.finish();
  job[0].sum(5, options);
  job.finish();
  const std::vector<Record> records = job[0].context->recorder().last();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].name.text(), "first");
  EXPECT_EQ(records[0].group.id, job.view->id());
  EXPECT_EQ(records[0].outcome.code, Code::kOk);
  EXPECT_EQ(records[1].outcome.code, Code::kTimeout);
  EXPECT_EQ(records[1].ended - records[1].began, milliseconds(300));
  EXPECT_EQ(job[1].context->recorder().last().size(), 1u) << "it never called the second";
}

}  // namespace
}  // namespace aiacc
