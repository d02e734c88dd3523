// Engines of simulated ranks that reduce rows of tables beside tensors: a few rows of long tables, most rows of short ones, none at all;
// by rounds and by recorded schedules, from which ranks depart. Each result has the rows that some rank has, and their sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "groupcomm/gradient/engine_wait.h"
#include "groupcomm/gradient/submission.h"
#include "tests/sim_job.h"

namespace aiacc::gradient {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

struct RowsPlan {
  std::vector<std::uint32_t> hosts;
  std::uint64_t seed = 1;
  int steps = 30;
  std::uint64_t departs_one_in = 10;  // rank and step; 0: none
  std::size_t fusion_bytes = 20'000;  // with several tables in a launch
  bool priorities = false;
};

struct TableShape {
  std::size_t rows, row_elements;
  std::uint64_t most;  // rows that a rank has in a step
};
// With so many bytes of fusion the last two move in portions of one launch.
constexpr std::size_t kInPortions = 8'192;
constexpr TableShape kTables[] = {{100'000, 8, 40}, {50, 8, 120},        {50, 3, 10},       {70, 8, 90},
                                  {1'000, 8, 0},    {100'000, 1, 3'000}, {90'000, 1, 3'000}};
constexpr std::size_t kTableCount = std::size(kTables);
constexpr std::size_t kTensors = 3;
constexpr std::size_t kTensorElements = 1000;

using Sums = std::map<std::int64_t, std::vector<float>>;

class RowsTrainer {
 public:
  RowsTrainer(sim::SimContext& context, int rank, const RowsPlan& plan)
      : context_(context), rank_(rank), plan_(plan), random_(plan.seed * 1000 + static_cast<std::uint64_t>(rank)) {
    EngineOptions options;
    options.name = "sim";
    options.fusion_bytes = plan.fusion_bytes;
    options.schedule_steps = 3;
    options.timeout = seconds(100);
    options.wire = WireType::kMixed;  // not of tables
    engine = std::make_shared<Engine>(context.context->world(), options);
    engine->start();
    std::vector<std::string> names;
    for (std::size_t i = 0; i < kTableCount + kTensors; ++i) names.push_back("tensor " + std::to_string(i));
    std::vector<TensorOrder> orders(names.size());
    for (std::size_t i = 0; i < orders.size(); ++i) {
      orders[i].name = names[i];
      orders[i].count = i < kTableCount ? kTables[i].rows : kTensorElements;
      if (i < kTableCount) orders[i].kind.row_elements = kTables[i].row_elements;
      if (plan.priorities) orders[i].priority = static_cast<std::int32_t>(i % 3);
    }
    numbers_.resize(orders.size());
    engine->add(orders, numbers_.data());
    elements_.resize(kTensors, std::vector<float>(kTensorElements));
  }

  Task<void> train(Stop& stop) {
    for (step_ = 0; step_ < plan_.steps; ++step_) {
      for (const std::size_t tensor : order()) {
        co_await sleep_for(context_.loop, microseconds(random_.next() % 40), stop);
        submit(tensor);
        if (departs(numbers_.size())) engine->flush();  // ends its step early: the rest comes late
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
  std::uint64_t submitted_bytes = 0;

 private:
  bool departs(std::size_t of) {
    return plan_.departs_one_in != 0 && random_.next() % (plan_.departs_one_in * of) == 0;
  }
  std::vector<std::size_t> order() {
    std::vector<std::size_t> found(numbers_.size());
    std::iota(found.begin(), found.end(), std::size_t{0});
    std::reverse(found.begin(), found.end());
    if (departs(1))
      std::rotate(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(random_.next() % found.size()),
                  found.end());
    return found;
  }
  // What a rank submits in a step follows from both, so that each rank knows the sums: small whole numbers.
  static std::vector<std::int64_t> rows_of(const RowsPlan& plan, int rank, int step, std::size_t table) {
    sim::Random random((plan.seed * 100 + static_cast<std::uint64_t>(rank)) * 1000 +
                       static_cast<std::uint64_t>(step) * 10 + table);
    TableShape shape = kTables[table];
    if (plan.fusion_bytes != kInPortions) shape.most = std::min<std::uint64_t>(shape.most, 200);
    std::vector<std::int64_t> rows(shape.most == 0 || random.below(8) == 0 ? 0 : random.below(shape.most));
    for (std::int64_t& row : rows) row = static_cast<std::int64_t>(random.below(shape.rows));
    return rows;
  }
  static float value_of(int rank, int step, std::int64_t row, std::size_t at) {
    return static_cast<float>((rank * 3 + step + row + static_cast<std::int64_t>(at)) % 8);
  }
  void submit(std::size_t tensor) {
    submissions_.push_back(std::make_unique<Submission>(engine));
    Submission* const submission = submissions_.back().get();
    if (tensor >= kTableCount) {
      std::vector<float>& elements = elements_[tensor - kTableCount];
      std::fill(elements.begin(), elements.end(), static_cast<float>(rank_ + step_));
      submitted_bytes += elements.size() * sizeof(float);
      return engine->submit(numbers_[tensor], elements.data(), elements.data(), submission);
    }
    const std::vector<std::int64_t> rows = rows_of(plan_, rank_, step_, tensor);
    const std::size_t row_elements = kTables[tensor].row_elements;
    std::vector<float> elements;
    for (const std::int64_t row : rows) {
      for (std::size_t at = 0; at < row_elements; ++at) elements.push_back(value_of(rank_, step_, row, at));
    }
    std::vector<std::int64_t> different = rows;
    std::sort(different.begin(), different.end());
    const auto count = static_cast<std::size_t>(std::unique(different.begin(), different.end()) - different.begin());
    submitted_bytes += count * (sizeof(std::int64_t) + row_elements * sizeof(float));
    engine->submit_rows(numbers_[tensor], {rows, reinterpret_cast<const std::byte*>(elements.data())}, submission);
  }
  void verify() {
    for (const auto& one : submissions_) {
      ASSERT_FALSE(one->error()) << as_error(one->error()).message();
    }
    submissions_.clear();
    const auto ranks = static_cast<int>(plan_.hosts.size());
    const int sum = ranks * (ranks - 1) / 2 + ranks * step_;
    for (const auto& elements : elements_) ASSERT_EQ(elements.front(), static_cast<float>(sum));
    for (std::size_t table = 0; table < kTableCount; ++table) verify(table, ranks);
  }
  void verify(std::size_t table, int ranks) {
    const std::size_t row_elements = kTables[table].row_elements;
    Sums sums;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const std::int64_t row : rows_of(plan_, rank, step_, table)) {
        std::vector<float>& sum = sums.try_emplace(row, row_elements).first->second;
        for (std::size_t at = 0; at < row_elements; ++at) sum[at] += value_of(rank, step_, row, at);
      }
    }
    const RowsView got = engine->rows(numbers_[table]);
    ASSERT_EQ(got.numbers.size(), sums.size()) << "rank " << rank_ << ", step " << step_ << ", table " << table;
    std::size_t at = 0;
    for (const auto& [row, sum] : sums) {
      ASSERT_EQ(got.numbers[at], row);
      std::vector<float> elements(row_elements);
      std::memcpy(elements.data(), got.elements + at++ * row_elements * sizeof(float), row_elements * sizeof(float));
      ASSERT_EQ(elements, sum) << "rank " << rank_ << ", step " << step_ << ", table " << table << ", row " << row;
    }
  }

  sim::SimContext& context_;
  const int rank_;
  const RowsPlan& plan_;
  sim::Random random_;
  int step_ = 0;
  std::vector<std::uint32_t> numbers_;
  std::vector<std::vector<float>> elements_;
  std::vector<std::unique_ptr<Submission>> submissions_;
};

// Returns how often a schedule ended early.
std::uint64_t train_rows(const RowsPlan& plan) {
  sim::SimJob job(plan.hosts, plan.seed);
  std::vector<std::unique_ptr<RowsTrainer>> trainers;
  for (int rank = 0; rank < job.size(); ++rank)
    trainers.push_back(std::make_unique<RowsTrainer>(job[rank], rank, plan));
  sim::run_all(job, trainers, [](RowsTrainer& trainer, Stop& stop) { return trainer.train(stop); });
  if (testing::Test::HasFatalFailure()) return 0;
  const std::uint64_t breaks = trainers.front()->engine->count().breaks;
  for (const auto& trainer : trainers) {
    const EngineStats stats = trainer->engine->count();
    EXPECT_EQ(stats.breaks, breaks) << "all depart together";
    EXPECT_TRUE(trainer->was_scheduled);
    EXPECT_EQ(stats.bytes, trainer->submitted_bytes);
    EXPECT_EQ(stats.tensors, static_cast<std::uint64_t>(plan.steps) * (kTableCount + kTensors));
  }
  sim::run_all(job, trainers, [](RowsTrainer& trainer, Stop& stop) { return trainer.engine->close(stop); });
  return breaks;
}

const std::vector<std::vector<std::uint32_t>> kRowPlaces = {{0}, {0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 0, 1, 2, 2}};

TEST(EngineRowsSim, FollowASchedule) {
  for (const auto& hosts : kRowPlaces) EXPECT_EQ(train_rows({.hosts = hosts, .departs_one_in = 0}), 0u);
}

TEST(EngineRowsSim, AreRightWhateverOrderAndHoweverLate) {
  constexpr std::size_t kFusionBytes[] = {100, 20'000, 100, kInPortions};
  std::uint64_t breaks = 0;
  for (const auto& hosts : kRowPlaces) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(seed);
      breaks +=
          train_rows({.hosts = hosts, .seed = seed, .fusion_bytes = kFusionBytes[seed % 4], .priorities = seed > 2});
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(breaks, 20u) << "departures";
}

// One table, as each rank submits it in some steps.
class OneTable {
 public:
  static constexpr std::size_t kRows = 1000, kElements = 4;
  struct Rank {
    std::shared_ptr<Engine> engine;
  };

  explicit OneTable(const std::vector<std::uint32_t>& hosts, Kind kind = {}, bool nan_check = false) : job(hosts, 1) {
    for (int rank = 0; rank < job.size(); ++rank) {
      EngineOptions options;
      options.nan_check = nan_check;
      options.timeout = seconds(100);
      ranks.push_back(std::make_unique<Rank>(std::make_shared<Engine>(job[rank].context->world(), options)));
      of(rank).start();
      kind.row_elements = kElements;
      add(rank, kind);
    }
  }
  ~OneTable() {
    sim::run_all(job, ranks, [](Rank& rank, Stop& stop) { return rank.engine->close(stop); });
  }
  Engine& of(int rank) { return *ranks[static_cast<std::size_t>(rank)]->engine; }
  std::uint32_t add(int rank, const Kind& kind, const char* name = "table") {
    TensorOrder order;
    order.name = name;
    order.count = kRows;
    order.kind = kind;
    std::uint32_t number = 0;
    of(rank).add({&order, 1}, &number);
    return number;
  }
  // The first `count` rows, of one value.
  void submit(int rank, std::size_t count, float value) {
    std::vector<std::int64_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
    const std::vector<float> elements(count * kElements, value);
    submissions.push_back(std::make_unique<Submission>(ranks[static_cast<std::size_t>(rank)]->engine));
    of(rank).submit_rows(0, {numbers, reinterpret_cast<const std::byte*>(elements.data())}, submissions.back().get());
    of(rank).flush();
  }
  // Returns the errors of the submissions since the last call.
  std::vector<Error> wait() {
    const auto done = [](const auto& one) { return one->done(); };
    EXPECT_TRUE(job.world.run_while_not([&] { return std::all_of(submissions.begin(), submissions.end(), done); }));
    std::vector<Error> errors;
    for (const auto& one : submissions) errors.push_back(sim::error_of(*one));
    submissions.clear();
    return errors;
  }
  void expect_rows(int rank, const std::vector<float>& first_elements) {
    const RowsView rows = of(rank).rows(0);
    ASSERT_EQ(rows.numbers.size(), first_elements.size());
    for (std::size_t row = 0; row < first_elements.size(); ++row) {
      float value = 0;
      std::memcpy(&value, rows.elements + row * kElements * sizeof value, sizeof value);
      EXPECT_EQ(rows.numbers[row], static_cast<std::int64_t>(row));
      EXPECT_EQ(value, first_elements[row]) << row;
    }
  }

  sim::SimJob job;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::unique_ptr<Submission>> submissions;
};

TEST(EngineRowsSim, TravelAsRowsOrAsAWholeTableWhicheverIsLess) {
  for (const auto& hosts : {kRowPlaces[1], kRowPlaces[2], kRowPlaces[3]}) {
    OneTable ranks(hosts);
    const std::size_t row = sizeof(std::int64_t) + OneTable::kElements * sizeof(float);
    const auto count = static_cast<float>(ranks.job.size());
    std::uint64_t before = 0;
    for (const std::size_t rows : {std::size_t{3}, OneTable::kRows}) {
      for (int rank = 0; rank < ranks.job.size(); ++rank) ranks.submit(rank, rows, static_cast<float>(rank));
      for (const Error& error : ranks.wait()) EXPECT_EQ(error.code(), Code::kOk);
      for (int rank = 0; rank < ranks.job.size(); ++rank)
        ranks.expect_rows(rank, std::vector<float>(rows, count * (count - 1) / 2));
      const std::uint64_t moved = ranks.of(0).count().wire_bytes - before;
      // Two ranks with all rows each: the numbers make the difference.
      EXPECT_EQ(moved, rows == 3 ? 3 * row : OneTable::kRows * (row - sizeof(std::int64_t)));
      before = ranks.of(0).count().wire_bytes;
    }
  }
}

TEST(EngineRowsSim, AreAveragedOverAllRanksAlsoThoseWithoutTheRow) {
  Kind kind;
  kind.op = ReduceOp::kAvg;
  kind.prescale = 0.5;
  kind.postscale = 8;
  OneTable ranks({0, 0, 1, 1}, kind);
  ranks.submit(0, 2, 10);
  ranks.submit(1, 1, 20);
  ranks.submit(2, 0, 0);
  ranks.submit(3, 3, 4);
  for (const Error& error : ranks.wait()) EXPECT_EQ(error.code(), Code::kOk);
  for (int rank = 0; rank < 4; ++rank) ranks.expect_rows(rank, {34, 14, 4});
}

TEST(EngineRowsSim, OfARankThatHasJoinedAreNone) {
  OneTable ranks({0, 1, 1});
  Engine::Wait join(ranks.of(2), true);
  ranks.job[2].lane.start(join);
  ranks.submit(0, 3, 1);
  ranks.submit(1, 2, 1);
  for (const Error& error : ranks.wait()) EXPECT_EQ(error.code(), Code::kOk);
  for (int rank = 0; rank < 2; ++rank) ranks.expect_rows(rank, {2, 2, 1});
  EXPECT_EQ(ranks.of(2).rows(0).numbers.size(), 0u);
  Engine::Wait first(ranks.of(0), true), second(ranks.of(1), true);
  ranks.job[0].lane.start(first);
  ranks.job[1].lane.start(second);
  EXPECT_TRUE(ranks.job.world.run_while_not([&] { return join.done() && first.done() && second.done(); }));
}

TEST(EngineRowsSim, ThatAreNotFiniteAreNamed) {
  for (const std::size_t rows : {std::size_t{2}, OneTable::kRows}) {
    OneTable ranks({0, 0, 1}, {}, true);
    for (int rank = 0; rank < 3; ++rank)
      ranks.submit(rank, rows, rank == 1 ? std::numeric_limits<float>::infinity() : 1);
    for (const Error& error : ranks.wait()) {
      EXPECT_EQ(error.code(), Code::kNotFinite);
      EXPECT_EQ(error.message(), "gradient 'table' of rank 1 is not finite: all ranks leave out this step");
      EXPECT_EQ(error.peer(), 1);
    }
    EXPECT_EQ(ranks.of(0).rows(0).numbers.size(), 0u) << "after an error";
    for (int rank = 0; rank < 3; ++rank) ranks.submit(rank, 1, 1);
    for (const Error& error : ranks.wait()) EXPECT_EQ(error.code(), Code::kOk);
    ranks.expect_rows(2, {3});
  }
}

template <class Call>
void expect_refused(const char* sentence, Code code, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "expected: " << sentence;
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), sentence);
    EXPECT_EQ(error.code(), code);
  }
}

TEST(EngineRowsSim, WhatIsNoRowOfTheTableIsRefused) {
  OneTable ranks({0, 1});
  const std::uint32_t plain = ranks.add(0, {}, "plain");
  EXPECT_EQ(ranks.add(1, {}, "plain"), plain);
  const std::vector<float> elements(2 * OneTable::kElements);
  const auto* const data = reinterpret_cast<const std::byte*>(elements.data());
  Engine& engine = ranks.of(0);
  const auto submit = [&](std::uint32_t tensor, const std::vector<std::int64_t>& rows) {
    return [&engine, tensor, rows, data] { engine.submit_rows(tensor, {rows, data}, nullptr); };
  };
  const std::string of = "the gradient engine of " + ranks.job[0].context->world().describe();
  const std::string refused = " is submitted of tensor 'table' of " + of + ", which is 1000 rows of 4 fp32, sum";
  expect_refused(("row 1000" + refused).c_str(), Code::kInvalidArgument, submit(0, {3, 1000}));
  expect_refused(("row -1" + refused).c_str(), Code::kInvalidArgument, submit(0, {-1, 3}));
  expect_refused(("tensor 'plain' of " + of + " is no table: it has elements, and row_elements was 0").c_str(),
                 Code::kInvalidArgument, submit(plain, {1}));
  expect_refused(("tensor 'plain' of " + of + " is no table: it has elements, and row_elements was 0").c_str(),
                 Code::kInvalidArgument, [&] { engine.rows(plain); });
  expect_refused(
      ("tensor 'table' of " + of + " is a table: rows of it are submitted (aiacc_gradient_submit_rows)").c_str(),
      Code::kInvalidArgument, [&] { engine.submit(0, nullptr, nullptr, nullptr); });
  ranks.submit(0, 2, 1);
  expect_refused(("tensor 'table' was submitted to " + of + " twice: the first submission is not reduced yet").c_str(),
                 Code::kInvalidState, submit(0, {1}));
  expect_refused(("tensor 'table' was submitted to " + of + " and is not reduced yet").c_str(), Code::kInvalidState,
                 [&] { engine.rows(0); });
  ranks.submit(1, 1, 1);
  for (const Error& error : ranks.wait()) EXPECT_EQ(error.code(), Code::kOk);
  for (int rank = 0; rank < 2; ++rank) ranks.expect_rows(rank, {2, 1});
}

TEST(EngineRowsSim, OfDifferentTablesEndTheEngine) {
  OneTable ranks({0, 1});
  Kind wide;
  wide.row_elements = 5;
  static_cast<void>(ranks.add(0, wide, "other"));
  wide.row_elements = 6;
  static_cast<void>(ranks.add(1, wide, "other"));
  ranks.submit(0, 1, 1);
  ranks.submit(1, 1, 1);
  for (const Error& error : ranks.wait()) {
    EXPECT_NE(error.message().find(
                  "gradient 'other' is 1000 rows of 6 fp32, sum on rank 1 and 1000 rows of 5 fp32, sum on rank 0"),
              std::string::npos)
        << error.message();
  }
}

}  // namespace
}  // namespace aiacc::gradient
