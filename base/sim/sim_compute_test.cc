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
  co_await compute.copy(buffer, buffer);
  co_await compute.copy(buffer, buffer);
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
