// Whole engines of simulated ranks, on any placement: tensors of several steps in an order that may differ, that come late or are new
// on one rank first, by recorded schedules and by rounds. Each result is the sum of all ranks' gradients, and every step ends.
#include "groupcomm/gradient/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "groupcomm/gradient/submission.h"
#include "tests/sim_job.h"

namespace aiacc::gradient {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

struct Plan {
  std::vector<std::uint32_t> hosts;
  std::uint64_t seed = 1;
  int steps = 40;
  std::uint64_t departs_one_in = 25;  // rank and step; 0: none
  WireType wire = WireType::kFloat32;
};

constexpr std::size_t kTrainedTensors = 12;
std::size_t count_of(std::size_t tensor) { return tensor == 3 ? 0 : tensor == 7 ? 40'000 : 1 + tensor * tensor * 31; }
// Of small whole numbers, whose sums are exact in 16 bits.
float value_of(int rank, std::size_t tensor, int step, std::size_t at) {
  return static_cast<float>((static_cast<std::size_t>(rank * 3 + step) + tensor * 5 + at) % 8);
}

class Trainer {
 public:
  Trainer(sim::SimContext& context, int rank, const Plan& plan)
      : context_(context), rank_(rank), plan_(plan), random_(plan.seed * 1000 + static_cast<std::uint64_t>(rank)) {
    EngineOptions options;
    options.name = "sim";
    options.fusion_bytes = 20'000;
    options.schedule_steps = 3;
    options.wire = plan.wire;
    options.timeout = seconds(100);
    engine = std::make_shared<Engine>(context.context->world(), options);
    engine->start();
    for (std::size_t tensor = 0; tensor < kTrainedTensors; ++tensor) add(tensor);
  }

  Task<void> train(Stop& stop) {
    for (step_ = 0; step_ < plan_.steps; ++step_) {
      for (const std::size_t tensor : order()) {
        co_await sleep_for(context_.loop, microseconds(random_.next() % 40), stop);
        submit(tensor);
        if (departs()) engine->flush();  // ends its step early: the rest comes late
      }
      engine->flush();
      while (!std::all_of(submissions_.begin(), submissions_.end(), [](const auto& one) { return one->done(); }))
        co_await sleep_for(context_.loop, microseconds(20), stop);
      verify();
      was_scheduled = was_scheduled || engine->count().scheduled;
    }
  }

  std::shared_ptr<Engine> engine;
  bool was_scheduled = false;

 private:
  bool departs() { return plan_.departs_one_in != 0 && random_.next() % (plan_.departs_one_in * kTrainedTensors) == 0; }
  void add(std::size_t tensor) {
    const std::string name = "tensor " + std::to_string(tensor);
    TensorOrder order;
    order.name = name;
    order.count = count_of(tensor);
    engine->add({&order, 1}, &numbers_.emplace_back());
    given_.emplace_back(order.count);
    got_.emplace_back(order.count);
  }
  // Mostly from the last to the first, as backward has it. From the middle on there is a tensor more, which comes first on some ranks.
  std::vector<std::size_t> order() {
    if (step_ == plan_.steps / 2) add(kTrainedTensors);
    std::vector<std::size_t> found(numbers_.size());
    std::iota(found.begin(), found.end(), std::size_t{0});
    std::reverse(found.begin(), found.end());
    if (plan_.departs_one_in != 0 && random_.next() % plan_.departs_one_in == 0)
      std::rotate(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(random_.next() % found.size()),
                  found.end());
    return found;
  }
  void submit(std::size_t tensor) {
    for (std::size_t at = 0; at < given_[tensor].size(); ++at) given_[tensor][at] = value_of(rank_, tensor, step_, at);
    submissions_.push_back(std::make_unique<Submission>(engine));
    engine->submit(numbers_[tensor], given_[tensor].data(), got_[tensor].data(), submissions_.back().get());
  }
  void verify() {
    for (const auto& one : submissions_) {
      ASSERT_FALSE(one->error()) << as_error(one->error()).message();
    }
    submissions_.clear();
    for (std::size_t tensor = 0; tensor < got_.size(); ++tensor) {
      for (std::size_t at = 0; at < got_[tensor].size(); ++at) {
        float sum = 0;
        for (std::size_t of = 0; of < plan_.hosts.size(); ++of)
          sum += value_of(static_cast<int>(of), tensor, step_, at);
        ASSERT_EQ(got_[tensor][at], sum) << "rank " << rank_ << ", step " << step_ << ", tensor " << tensor;
      }
    }
  }

  sim::SimContext& context_;
  const int rank_;
  const Plan& plan_;
  sim::Random random_;
  int step_ = 0;
  std::vector<std::uint32_t> numbers_;
  std::vector<std::vector<float>> given_, got_;
  std::vector<std::unique_ptr<Submission>> submissions_;
};

template <class Make>
void run_all(sim::SimJob& job, std::vector<std::unique_ptr<Trainer>>& trainers, Make&& make) {
  Stop stop;
  std::vector<Task<void>> tasks;
  for (auto& trainer : trainers) tasks.push_back(make(*trainer, stop));
  for (Task<void>& task : tasks) task.start();
  const auto ended = [&] {
    return testing::Test::HasFatalFailure() ||
           std::all_of(tasks.begin(), tasks.end(), [](const Task<void>& task) { return task.done(); });
  };
  ASSERT_TRUE(job.world.run_while_not(ended)) << job.world.recent();
  for (Task<void>& task : tasks) task.take();
}

// Returns how often a schedule ended early.
std::uint64_t train(const Plan& plan) {
  sim::SimJob job(plan.hosts, plan.seed);
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (int rank = 0; rank < job.size(); ++rank) trainers.push_back(std::make_unique<Trainer>(job[rank], rank, plan));
  run_all(job, trainers, [](Trainer& trainer, Stop& stop) { return trainer.train(stop); });
  if (testing::Test::HasFatalFailure()) return 0;
  const EngineStats stats = trainers.front()->engine->count();
  for (const auto& trainer : trainers) {
    EXPECT_EQ(trainer->engine->count().breaks, stats.breaks) << "all depart together";
    EXPECT_TRUE(trainer->was_scheduled);
  }
  run_all(job, trainers, [](Trainer& trainer, Stop& stop) { return trainer.engine->close(stop); });
  return stats.breaks;
}

const std::vector<std::vector<std::uint32_t>> kPlaces = {{0}, {0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 0, 1, 2, 2}};

TEST(EngineSim, EqualStepsFollowASchedule) {
  for (const auto& hosts : kPlaces) EXPECT_LE(train({.hosts = hosts, .departs_one_in = 0}), 1u) << "the new tensor";
}

TEST(EngineSim, EveryStepIsRightWhateverOrderAndHoweverLate) {
  std::uint64_t breaks = 0;
  for (const auto& hosts : kPlaces) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(seed);
      breaks += train({.hosts = hosts, .seed = seed});
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(breaks, 20u) << "departures";
}

TEST(EngineSim, AndOn16Bits) {
  for (const WireType wire : {WireType::kFloat16, WireType::kMixed}) {
    for (const auto& hosts : {kPlaces[1], kPlaces[3]}) {
      train({.hosts = hosts, .seed = 7, .wire = wire});
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace aiacc::gradient
