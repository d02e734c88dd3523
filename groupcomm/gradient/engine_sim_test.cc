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
  bool in_place = false;    // results go where the gradients were, and there are long ones
  bool priorities = false;  // the first tensors', which are submitted last, are the highest
  bool alone() const { return std::adjacent_find(hosts.begin(), hosts.end()) == hosts.end(); }
};

constexpr std::size_t kTrainedTensors = 12;
constexpr std::size_t kLong = (256 << 10) / sizeof(float);  // elements of a tensor that may stay where it is
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
    options.fusion_bytes = plan.in_place ? 600'000 : 20'000;
    options.schedule_steps = 3;
    options.wire = plan.wire;
    options.timeout = seconds(100);
    engine = std::make_shared<Engine>(context.context->world(), options);
    engine->start();
    add(0, kTrainedTensors);
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
  std::uint64_t packed = 0;  // bytes, copied in and out

 private:
  bool departs() { return plan_.departs_one_in != 0 && random_.next() % (plan_.departs_one_in * kTrainedTensors) == 0; }
  // Neighbours in memory.
  void add(std::size_t first, std::size_t count) {
    std::vector<std::string> names;
    std::vector<TensorOrder> orders(count);
    for (std::size_t tensor = first; tensor < first + count; ++tensor)
      names.push_back("tensor " + std::to_string(tensor));
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t tensor = first + i;
      orders[i].name = names[i];
      orders[i].count = plan_.in_place && (tensor == 5 || tensor == 6) ? kLong + tensor : count_of(tensor);
      if (plan_.priorities) orders[i].priority = -static_cast<std::int32_t>(tensor);
      given_.emplace_back(orders[i].count);
      got_.emplace_back(orders[i].count);
    }
    numbers_.resize(first + count);
    engine->add(orders, &numbers_[first]);
  }
  // Mostly from the last to the first, as backward has it. From the middle on there is a tensor more, which comes first on some ranks.
  std::vector<std::size_t> order() {
    if (step_ == plan_.steps / 2) add(kTrainedTensors, 1);
    std::vector<std::size_t> found(numbers_.size());
    std::iota(found.begin(), found.end(), std::size_t{0});
    std::reverse(found.begin(), found.end());
    if (plan_.departs_one_in != 0 && random_.next() % plan_.departs_one_in == 0)
      std::rotate(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(random_.next() % found.size()),
                  found.end());
    return found;
  }
  void submit(std::size_t tensor) {
    std::vector<float>& given = plan_.in_place ? got_[tensor] : given_[tensor];
    for (std::size_t at = 0; at < given.size(); ++at) given[at] = value_of(rank_, tensor, step_, at);
    submissions_.push_back(std::make_unique<Submission>(engine));
    engine->submit(numbers_[tensor], given.data(), got_[tensor].data(), submissions_.back().get());
    const bool stays = plan_.in_place && plan_.alone() && given.size() >= kLong;
    EXPECT_EQ(engine->in_place(numbers_[tensor]), stays);
    if (!stays) packed += 2 * given.size() * sizeof(float);
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
    EXPECT_EQ(trainer->engine->count().packed_bytes, trainer->packed);
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

TEST(EngineSim, LongGradientsStayWhereTheyAreIfEachRankIsAloneOnItsHost) {
  std::uint64_t breaks = 0;
  for (const auto& hosts : {kPlaces[0], kPlaces[2], kPlaces[3], {0, 1, 2, 3}}) {
    breaks += train({.hosts = hosts, .in_place = true});
    if (HasFatalFailure()) return;
    train({.hosts = hosts, .departs_one_in = 0, .in_place = true});
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(breaks, 5u) << "departures";
}

TEST(EngineSim, AndByPriority) {
  std::uint64_t breaks = 0;
  for (const auto& hosts : kPlaces) {
    EXPECT_LE(train({.hosts = hosts, .departs_one_in = 0, .priorities = true}), 1u) << "the new tensor";
    if (HasFatalFailure()) return;
    breaks += train({.hosts = hosts, .seed = 4, .priorities = true});
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(breaks, 5u) << "departures";
}

// Submits long tensors, and a little later a short one. Counts the long ones that are reduced before it, in each step.
class Overtaker {
 public:
  static constexpr std::uint32_t kLong = 10;
  Overtaker(sim::SimContext& context, std::int32_t priority) : context_(context) {
    EngineOptions options;
    options.name = "sim";
    options.fusion_bytes = 400'000;
    options.in_flight = 1;
    options.schedule_steps = 3;
    options.timeout = seconds(100);
    engine = std::make_shared<Engine>(context.context->world(), options);
    engine->start();
    for (std::uint32_t tensor = 0; tensor <= kLong; ++tensor) {
      const std::string name = "tensor " + std::to_string(tensor);
      TensorOrder order;
      order.name = name;
      order.count = tensor < kLong ? 100'000 : 10;
      order.priority = tensor < kLong ? 0 : priority;
      std::uint32_t number = 0;
      engine->add({&order, 1}, &number);
    }
  }

  Task<void> run(Stop& stop) {
    for (int step = 0; step < 12; ++step) {
      std::vector<std::unique_ptr<Submission>> submissions;
      for (std::uint32_t tensor = 0; tensor <= kLong; ++tensor) {
        if (tensor == kLong) co_await sleep_for(context_.loop, microseconds(100), stop);
        submissions.push_back(std::make_unique<Submission>(engine));
        engine->submit(tensor, nullptr, nullptr, submissions.back().get());
      }
      engine->flush();
      while (!submissions.back()->done()) co_await sleep_for(context_.loop, microseconds(10), stop);
      const auto done = [](const auto& one) { return one->done(); };
      before.push_back(std::count_if(submissions.begin(), submissions.end() - 1, done));
      while (!std::all_of(submissions.begin(), submissions.end(), done))
        co_await sleep_for(context_.loop, microseconds(20), stop);
    }
  }

  std::shared_ptr<Engine> engine;
  std::vector<std::ptrdiff_t> before;

 private:
  sim::SimContext& context_;
};

TEST(EngineSim, AHighPriorityOvertakesWhatHasNotBegun) {
  for (const std::int32_t priority : {0, 1}) {
    for (const auto& hosts : {kPlaces[1], kPlaces[2], kPlaces[3]}) {
      sim::SimJob job(hosts, 1);
      std::vector<std::unique_ptr<Overtaker>> ranks;
      for (int rank = 0; rank < job.size(); ++rank) ranks.push_back(std::make_unique<Overtaker>(job[rank], priority));
      run_all(job, ranks, [](Overtaker& rank, Stop& stop) { return rank.run(stop); });
      if (HasFatalFailure()) return;
      for (const auto& rank : ranks) {
        EXPECT_TRUE(rank->engine->count().scheduled);
        EXPECT_EQ(rank->engine->count().breaks, 0u);
        for (const std::ptrdiff_t before : rank->before) {
          if (priority == 0) {
            EXPECT_EQ(before, std::ptrdiff_t{Overtaker::kLong});
          } else {
            EXPECT_LE(before, 4) << "one at work, one that may begin during a round, and what began in the meantime";
          }
        }
      }
      run_all(job, ranks, [](Overtaker& rank, Stop& stop) { return rank.engine->close(stop); });
    }
  }
}

// Steps whose gradients become ready one after the other: what is not reduced when the last of them is ready is exposed.
class Backward {
 public:
  static constexpr std::uint32_t kTensors = 100;
  static constexpr std::size_t kElements = 20'000;

  static EngineOptions plain() {
    EngineOptions options;
    options.name = "sim";
    options.fusion_bytes = 20 * kElements * sizeof(float);
    options.schedule_steps = 3;
    options.timeout = seconds(100);
    return options;
  }

  Backward(sim::SimContext& context, Duration gap, const EngineOptions& options, int count)
      : context_(context), gap_(gap), count_(count) {
    engine = std::make_shared<Engine>(context.context->world(), options);
    engine->start();
    for (std::uint32_t tensor = 0; tensor < kTensors; ++tensor) {
      const std::string name = "tensor " + std::to_string(tensor);
      TensorOrder order;
      order.name = name;
      order.count = kElements;
      std::uint32_t number = 0;
      engine->add({&order, 1}, &number);
    }
  }

  Task<void> run(Stop& stop) {
    for (int step = 0; step < count_; ++step) {
      const Instant began = context_.loop.now();
      std::vector<std::unique_ptr<Submission>> submissions;
      for (std::uint32_t tensor = 0; tensor < kTensors; ++tensor) {
        co_await sleep_for(context_.loop, gap_, stop);
        submissions.push_back(std::make_unique<Submission>(engine));
        engine->submit(tensor, nullptr, nullptr, submissions.back().get());
      }
      const Instant ready = context_.loop.now();
      engine->flush();
      const auto done = [](const auto& one) { return one->done(); };
      while (!std::all_of(submissions.begin(), submissions.end(), done))
        co_await sleep_for(context_.loop, microseconds(10), stop);
      exposed = context_.loop.now() - ready;
      steps.push_back(context_.loop.now() - began);
    }
  }

  std::shared_ptr<Engine> engine;
  Duration exposed{};  // of the last step
  std::vector<Duration> steps;

 private:
  sim::SimContext& context_;
  const Duration gap_;
  const int count_;
};

struct StepTime {
  double line_ns;  // that a host's line needs for a tensor
  double bound_ns, exposed_ns;
};

// Of steps whose gradients take `line` times as long on a host's line as to become ready.
StepTime time_steps(const std::vector<std::uint32_t>& hosts, double line, Duration latency) {
  sim::FabricModel model;
  model.between_hosts.bytes_per_second = 125'000'000;
  model.between_hosts.latency = latency;
  const auto count = static_cast<double>(hosts.size());
  StepTime time{};
  time.line_ns = 2 * (count - 1) / count * Backward::kElements * sizeof(float) / 125e6 * 1e9;
  // None travels before it is ready, and the last is ready last.
  time.bound_ns = time.line_ns * std::max(1.0, 1 / line + Backward::kTensors * (1 - 1 / line));
  sim::SimJob job(hosts, 1, model);
  std::vector<std::unique_ptr<Backward>> ranks;
  for (int rank = 0; rank < job.size(); ++rank)
    ranks.push_back(std::make_unique<Backward>(job[rank], Duration(static_cast<std::int64_t>(time.line_ns / line)),
                                               Backward::plain(), 8));
  run_all(job, ranks, [](Backward& rank, Stop& stop) { return rank.run(stop); });
  if (testing::Test::HasFatalFailure()) return time;
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank->engine->count().scheduled);
    time.exposed_ns = std::max(time.exposed_ns, static_cast<double>(rank->exposed.count()));
  }
  run_all(job, ranks, [](Backward& rank, Stop& stop) { return rank.engine->close(stop); });
  return time;
}

TEST(EngineSim, LittleIsLeftOfAStepWhenItsLastGradientIsReady) {
  for (const auto& hosts : {kPlaces[2], {0, 1, 2, 3}}) {
    for (const double line : {0.7, 1.2}) {
      for (const auto latency : {microseconds(5), microseconds(1000)}) {
        const StepTime step = time_steps(hosts, line, latency);
        if (HasFatalFailure()) return;
        // RTS, CTS and payload, twice one after the other.
        EXPECT_LE(step.exposed_ns - step.bound_ns,
                  2 * step.line_ns + 6 * static_cast<double>(Duration(latency).count()))
            << hosts.size() << " hosts, the line takes " << line << " times as long as backward, " << latency.count()
            << " us, of a tensor " << step.line_ns << " ns";
      }
    }
  }
}

struct Steps {
  std::vector<Duration> times;
  EngineStats stats;
};

// At 10 Gbit/s and 1 ms.
Steps run_steps(const EngineOptions& options, int count, const std::vector<std::uint32_t>& hosts = {0, 1}) {
  sim::FabricModel model;
  model.between_hosts.bytes_per_second = 1'250'000'000;
  model.between_hosts.latency = microseconds(1000);
  sim::SimJob job(hosts, 1, model);
  std::vector<std::unique_ptr<Backward>> ranks;
  for (int rank = 0; rank < job.size(); ++rank)
    ranks.push_back(std::make_unique<Backward>(job[rank], microseconds(96), options, count));
  run_all(job, ranks, [](Backward& rank, Stop& stop) { return rank.run(stop); });
  if (testing::Test::HasFatalFailure()) return {};
  Steps found{ranks.front()->steps, ranks.front()->engine->count()};
  run_all(job, ranks, [](Backward& rank, Stop& stop) { return rank.engine->close(stop); });
  return found;
}

TEST(EngineSim, TunesToWithinFivePercentOfTheBestFixedSetting) {
  EngineOptions options = Backward::plain();
  options.fusion_bytes = 1 << 20;
  Duration best = Duration::max(), start{};
  for (std::size_t bytes = 256 << 10; bytes <= 8 << 20; bytes *= 2) {
    for (int streams = 1; streams <= 16; streams *= 2) {
      EngineOptions fixed = options;
      fixed.fusion_bytes = bytes;
      fixed.in_flight = streams;
      const Steps steps = run_steps(fixed, 5);
      if (HasFatalFailure()) return;
      EXPECT_TRUE(steps.stats.scheduled);
      best = std::min(best, steps.times.back());
      if (bytes == options.fusion_bytes && streams == options.in_flight) start = steps.times.back();
    }
  }
  options.tunes = true;
  const Steps tuned = run_steps(options, 50);
  if (HasFatalFailure()) return;
  EXPECT_TRUE(tuned.stats.settled);
  EXPECT_LE(tuned.times.back() * 100, best * 105);
  EXPECT_GT(start * 100, best * 115) << "there was something to find";
}

// Six hosts are no power of two: selection takes the ring there, whose ten steps wait for ten latencies.
TEST(EngineSim, TunesTheAlgorithmToo) {
  const std::vector<std::uint32_t> hosts{0, 1, 2, 3, 4, 5};
  EngineOptions options = Backward::plain();
  options.fusion_bytes = 1 << 20;
  options.tunes = true;
  const Steps tuned = run_steps(options, 50, hosts);
  if (HasFatalFailure()) return;
  EXPECT_TRUE(tuned.stats.settled);
  EXPECT_STREQ(tuned.stats.algorithm, "double-tree");
  options.tunes = false;
  options.fusion_bytes = tuned.stats.setting.fusion_bytes;
  options.in_flight = tuned.stats.setting.in_flight;
  const Steps usual = run_steps(options, 5, hosts);
  if (HasFatalFailure()) return;
  EXPECT_EQ(usual.stats.algorithm, nullptr);
  EXPECT_LT(tuned.times.back() * 100, usual.times.back() * 75);
}

// Its pieces end one after the other, each well within that time.
TEST(EngineSim, ALongTensorMayTakeLongerThanTheTimeOfAnAllreduce) {
  sim::FabricModel model;
  model.between_hosts.bytes_per_second = 125'000'000;
  sim::SimJob job({0, 1}, 1, model);
  std::vector<std::shared_ptr<Engine>> engines;
  std::vector<std::unique_ptr<Submission>> submissions;
  for (int rank = 0; rank < 2; ++rank) {
    EngineOptions options;
    options.fusion_bytes = 256 << 10;
    options.timeout = std::chrono::milliseconds(100);
    engines.push_back(std::make_shared<Engine>(job[rank].context->world(), options));
    engines.back()->start();
    TensorOrder order;
    order.name = "tensor";
    order.count = 10'000'000;
    std::uint32_t number = 0;
    engines.back()->add({&order, 1}, &number);
    submissions.push_back(std::make_unique<Submission>(engines.back()));
    engines.back()->submit(number, nullptr, nullptr, submissions.back().get());
    engines.back()->flush();
  }
  ASSERT_TRUE(job.world.run_while_not([&] { return submissions[0]->done() && submissions[1]->done(); }));
  EXPECT_GT(job.elapsed(), 3 * std::chrono::milliseconds(100));
  for (const auto& one : submissions) EXPECT_FALSE(one->error()) << as_error(one->error()).message();
  Stop stop;
  std::vector<Task<void>> closing;
  for (const auto& engine : engines) closing.push_back(engine->close(stop));
  for (Task<void>& task : closing) task.start();
  EXPECT_TRUE(job.world.run_while_not([&] { return closing[0].done() && closing[1].done(); }));
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
