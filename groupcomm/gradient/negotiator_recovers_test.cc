// After any departure ranks that run equal steps come to a schedule again.
#include <gtest/gtest.h>

#include <string>

#include "groupcomm/gradient/negotiator_world_test.h"

namespace aiacc::gradient::test {
namespace {

constexpr std::size_t kRecoveredTensors = 8;
constexpr int kEqualSteps = 60;

// What the last rank does once in place of a step.
enum class Departure { kNone, kOtherOrder, kLateTensor, kSecondFlush };

// One rank's program. It computes for a random time, and is faster or slower than others by its seed.
class Writer {
 public:
  explicit Writer(std::uint64_t seed)
      : random_(seed),
        slow_(random_.below(3) == 0   ? 300
              : random_.below(2) == 0 ? 20
                                      : 2) {}

  void compute(std::uint64_t most_us) {
    program_.push_back({Step::Kind::kCompute, 0, microseconds(1 + static_cast<int>(random_.below(most_us)))});
  }
  void submit(std::size_t tensor) {
    compute(slow_);
    program_.push_back({Step::Kind::kSubmit, tensor, {}});
  }
  void flush_and_wait() {
    program_.push_back({Step::Kind::kFlushAndWait, 0, {}});
    compute(300);
  }
  void step() {
    for (std::size_t tensor = 0; tensor < kRecoveredTensors; ++tensor) submit(tensor);
    flush_and_wait();
  }
  void depart(Departure how) {
    if (how == Departure::kNone) return step();
    for (std::size_t at = 0; at < kRecoveredTensors; ++at) {
      const std::size_t tensor = how == Departure::kOtherOrder ? kRecoveredTensors - 1 - at : at;
      if (how == Departure::kSecondFlush && tensor == 3) program_.push_back({Step::Kind::kFlush, 0, {}});
      if (how == Departure::kLateTensor && tensor == 5) continue;
      submit(tensor);
    }
    if (how == Departure::kLateTensor) {
      program_.push_back({Step::Kind::kFlush, 0, {}});
      submit(5);
    }
    flush_and_wait();
  }
  Program take() { return std::move(program_); }

 private:
  sim::Random random_;
  std::uint64_t slow_;
  Program program_;
};

class NegotiatorRecovers : public testing::TestWithParam<Departure> {};

TEST_P(NegotiatorRecovers, HasAScheduleAgainAfterSomeEqualSteps) {
  // With the last four, steps once stayed split where a rank had flushed once more than others.
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8, 247, 291, 480, 495}) {
    const std::size_t ranks = 2 + seed % 3;
    std::vector<TensorRecord> tensors;
    for (std::size_t tensor = 0; tensor < kRecoveredTensors; ++tensor)
      tensors.push_back({std::string(1, static_cast<char>('a' + tensor)), 100, 1, true, "float32"});
    std::vector<Program> programs;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      Writer writer(seed * 16 + rank);
      for (int departure = 0; departure < 3; ++departure) {
        for (int step = 0; step < kEqualSteps; ++step) writer.step();
        writer.depart(rank + 1 == ranks ? GetParam() : Departure::kNone);
      }
      for (int step = 0; step < 4 * kEqualSteps; ++step) writer.step();
      programs.push_back(writer.take());
    }
    NegotiatorOptions options;
    options.round_bytes = options.fusion_bytes = 300;
    options.schedule_steps = 2;
    World world(tensors, std::move(programs), options, seed);
    world.run();
    for (const std::string& fault : world.faults) ADD_FAILURE() << "seed " << seed << ": " << fault;
    EXPECT_TRUE(world.rank(0).scheduled())
        << "seed " << seed << ", " << ranks << " ranks, " << world.stats(0).breaks << " breaks";
  }
}

INSTANTIATE_TEST_SUITE_P(Departures, NegotiatorRecovers,
                         testing::Values(Departure::kNone, Departure::kOtherOrder, Departure::kLateTensor,
                                         Departure::kSecondFlush));

}  // namespace
}  // namespace aiacc::gradient::test
