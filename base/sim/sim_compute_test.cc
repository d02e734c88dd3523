#include "base/sim/sim_compute.h"

#include "base/data/compute_conformance.h"
#include "base/task/scope.h"

namespace aiacc {
namespace {

class SimUnderTest final : public ComputeUnderTest {
 public:
  Compute& compute() override { return compute_; }
  void run(Task<void> task) override {
    struct Ended final : Root::Owner {
      void root_ended(Root&, std::exception_ptr failure) noexcept override { error = std::move(failure); }
      std::exception_ptr error;
    } ended;
    Root root(loop_, std::move(task), ended);
    root.start();
    world_.run();
    if (ended.error) std::rethrow_exception(ended.error);
  }

 private:
  sim::World world_{1};
  sim::SimLoop loop_{world_, "node"};
  sim::SimCompute compute_{loop_};
};

std::unique_ptr<ComputeUnderTest> make_sim() { return std::make_unique<SimUnderTest>(); }

INSTANTIATE_TEST_SUITE_P(Sim, ComputeConformance, ::testing::Values(&make_sim));

Task<void> two_copies(Compute& compute, Buffer buffer) {
  Stop stop;
  co_await compute.copy(buffer, buffer, stop);
  co_await compute.copy(buffer, buffer, stop);
}

Task<void> one_copy(Compute* compute, Buffer to, Buffer from, Stop* stop) { co_await compute->copy(to, from, *stop); }

// A caller that changes the source too early, or reads the result too early, gets wrong bytes.
TEST(SimCompute, TouchesNoByteBeforeTheTimeOfThePieceHasPassed) {
  for (const bool stopped : {false, true}) {
    sim::World world(1);
    sim::SimLoop loop(world, "node");
    sim::SimCompute compute(loop);
    std::vector<std::byte> from(1 << 20, std::byte{1}), to(from.size());
    struct Ended final : Root::Owner {
      void root_ended(Root&, std::exception_ptr failure) noexcept override {
        ended = true;
        error = std::move(failure);
      }
      bool ended = false;
      std::exception_ptr error;
    } ended;
    Stop stop;
    Root root(loop, one_copy(&compute, {to.data(), to.size()}, {from.data(), from.size()}, &stop), ended);
    root.start();
    EXPECT_EQ(to[0], std::byte{0});
    if (stopped) stop.request(std::make_exception_ptr(Error(Code::kAborted, "enough")));
    EXPECT_TRUE(world.run_while_not([&ended] { return ended.ended; }));
    EXPECT_GE(world.now().time_since_epoch(), std::chrono::microseconds(200)) << "a Stop waits for the memory";
    EXPECT_EQ(ended.error != nullptr, stopped);
    EXPECT_EQ(to == from, !stopped);
  }
}

TEST(SimCompute, ChargesForElidedBytes) {
  sim::World world(1);
  sim::SimLoop loop(world, "node");
  sim::SimCompute compute(loop, 1'000'000'000);
  struct Nobody final : Root::Owner {
    void root_ended(Root&, std::exception_ptr) noexcept override {}
  } nobody;
  Root root(loop, two_copies(compute, Buffer{nullptr, 500'000'000}), nobody);
  root.start();
  world.run();
  EXPECT_EQ(world.now().time_since_epoch(), std::chrono::seconds(2));
}

}  // namespace
}  // namespace aiacc
