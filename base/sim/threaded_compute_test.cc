#include "base/sim/threaded_compute.h"

#include "base/data/compute_conformance.h"
#include "base/io/real_loop.h"
#include "base/task/scope.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using sim::ThreadedCompute;

class ThreadedUnderTest final : public ComputeUnderTest {
 public:
  Compute& compute() override { return compute_; }
  void run(Task<void> task) override { loop_.run(std::move(task)); }

 private:
  io::RealLoop loop_;
  ThreadedCompute compute_{loop_};
};

std::unique_ptr<ComputeUnderTest> make_threaded() { return std::make_unique<ThreadedUnderTest>(); }

INSTANTIATE_TEST_SUITE_P(Threaded, ComputeConformance, ::testing::Values(&make_threaded));

struct Copy {
  std::vector<std::byte> from = std::vector<std::byte>(1000, std::byte{1});
  std::vector<std::byte> to = std::vector<std::byte>(1000, std::byte{2});
  Buffer source() { return {from.data(), from.size()}; }
  Buffer destination() { return {to.data(), to.size()}; }
  bool done() const { return to == from; }
};

Task<void> run_copy(Compute* compute, Copy* copy, Stop* stop) {
  co_await compute->copy(copy->destination(), copy->source(), *stop);
}

std::string error_of(Task<void>& task) {
  try {
    task.take();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(ThreadedCompute, AFailureIsThrownWhereTheWorkIsAwaitedAndTheNextGoesOn) {
  io::RealLoop loop;
  ThreadedCompute compute(loop);
  compute.fail_after(1, std::make_exception_ptr(Error(Code::kSystem, "device 3 has fallen off the bus")));
  Stop stop;
  Copy first, second, third;
  loop.run(run_copy(&compute, &first, &stop));
  Task<void> failing = run_copy(&compute, &second, &stop);
  failing.start();
  loop.run_until([&failing] { return failing.done(); });
  EXPECT_EQ(error_of(failing), "device 3 has fallen off the bus");
  loop.run(run_copy(&compute, &third, &stop));
  EXPECT_TRUE(first.done() && !second.done() && third.done());
}

// A stop waits for a piece that has begun, and cancels one that has not at once.
TEST(ThreadedCompute, AStopEndsAWaitWhenTheMemoryIsLetGoOf) {
  io::RealLoop loop;
  ThreadedCompute compute(loop);
  Stop stop;
  Copy begun, queued;
  compute.hold();
  Task<void> first = run_copy(&compute, &begun, &stop);
  Task<void> second = run_copy(&compute, &queued, &stop);
  first.start();
  while (compute.begun() == 0) loop.look();  // polls without waking the thread
  second.start();
  stop.request(std::make_exception_ptr(Error(Code::kAborted, "enough")));
  loop.run_until([&second] { return second.done(); });
  EXPECT_EQ(error_of(second), "enough");
  for (int i = 0; i < 100; ++i) loop.look();
  EXPECT_FALSE(first.done()) << "the thread still has its memory";
  EXPECT_FALSE(begun.done());
  compute.proceed();
  loop.run_until([&first] { return first.done(); });
  EXPECT_EQ(error_of(first), "enough");
  EXPECT_TRUE(begun.done()) << "it was not to be stopped";
  EXPECT_FALSE(queued.done());
}

TEST(ThreadedCompute, AStopThatWasRequestedBeforeEndsTheWait) {
  io::RealLoop loop;
  ThreadedCompute compute(loop);
  Stop stop;
  stop.request(std::make_exception_ptr(Error(Code::kAborted, "enough")));
  Copy copy;
  Task<void> task = run_copy(&compute, &copy, &stop);
  task.start();
  loop.run_until([&task] { return task.done(); });
  EXPECT_EQ(error_of(task), "enough");
}

TEST(ThreadedCompute, ReachesMemoryThatNobodyElseDoes) {
  io::RealLoop loop;
  ThreadedCompute compute(loop);
  Copy copy;
  const Buffer device = compute.allocate_device(1000);
  EXPECT_DEATH((void)*const_cast<volatile std::byte*>(device.data), "");
  Stop stop;
  const auto there_and_back = [](Compute* through, Copy* bytes, Buffer memory, Stop* stopped) -> Task<void> {
    co_await through->copy(memory, bytes->source(), *stopped);
    co_await through->copy(bytes->destination(), memory, *stopped);
  };
  loop.run(there_and_back(&compute, &copy, device, &stop));
  EXPECT_TRUE(copy.done());
  CpuCompute cpu;
  EXPECT_THROW(cpu.scratch(device), Error);
  ScratchPool& pool = compute.scratch(device);
  const Buffer scratch = pool.take(10);
  EXPECT_EQ(scratch.kind, device.kind);
  pool.give_back(scratch);
}

}  // namespace
}  // namespace aiacc
