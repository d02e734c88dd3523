// The steps of ranks that are all here: each is carried out for all of them at once.
#include "groupcomm/gradient/row_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/data/cpu_compute.h"
#include "base/error.h"
#include "base/sim/random.h"

namespace aiacc::gradient {
namespace {

constexpr std::size_t kElements = 3;

Kind table_kind(ReduceOp op) {
  Kind kind;
  kind.op = op;
  kind.row_elements = kElements;
  return kind;
}

struct Exchanges {
  Exchanges(int count, ReduceOp op, std::size_t portion_bytes) : kind(table_kind(op)), memory(nullptr) {
    for (int rank = 0; rank < count; ++rank)
      ranks.push_back(std::make_unique<RowExchange>(kind, rank, count, memory, portion_bytes));
  }
  void allgather(std::vector<RowExchange::Step>& steps) {
    for (std::size_t to = 0; to < steps.size(); ++to) {
      for (std::size_t from = 0; from < steps.size(); ++from) {
        const Call& call = steps[from].call;
        const std::size_t element = size_of(call.reduction.type);
        const Extent block = call.block(static_cast<int>(from));
        ASSERT_EQ(steps[from].send.bytes, block.count * element);
        ASSERT_LE((block.begin + block.count) * element, steps[to].recv.bytes);
        std::byte* const place = steps[to].recv.data + block.begin * element;
        if (place != steps[from].send.data) std::memcpy(place, steps[from].send.data, block.count * element);
      }
    }
  }
  void allreduce(std::vector<RowExchange::Step>& steps) {
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (const RowExchange::Step& step : steps) {
      from.push_back(step.send.data);
      to.push_back(step.recv.data);
    }
    CpuCompute().reduce_now(to, from, steps.front().call.count, steps.front().call.reduction,
                            static_cast<int>(steps.size()));
  }
  // Of one call on each rank.
  void run(std::vector<RowExchange::Step>& steps) {
    for (const RowExchange::Step& step : steps)
      ASSERT_EQ(step.call.fingerprint(), steps.front().call.fingerprint()) << "the same call on all ranks";
    steps.front().call.kind == Collective::kAllgather ? allgather(steps) : allreduce(steps);
  }
  // Returns the number of portions.
  int run_all(std::size_t piece_bytes) {
    std::vector<RowExchange::Step> counts;
    for (const auto& rank : ranks) counts.push_back(rank->count());
    run(counts);
    int portions = 0;
    do {
      ++portions;
      std::vector<std::vector<RowExchange::Step>> of_ranks;
      for (const auto& rank : ranks) of_ranks.push_back(rank->move(piece_bytes));
      for (std::size_t call = 0; call < of_ranks.front().size(); ++call) {
        std::vector<RowExchange::Step> steps;
        for (const auto& of : of_ranks) steps.push_back(of.at(call));
        run(steps);
      }
    } while (ranks.front()->has_more());
    for (const auto& rank : ranks) rank->finish();
    return portions;
  }

  const Kind kind;
  LaunchMemory memory;
  std::vector<std::unique_ptr<RowExchange>> ranks;
};

Rows rows_of(const std::map<std::int64_t, float>& given) {
  std::vector<std::int64_t> numbers;
  std::vector<float> elements;
  for (const auto& [number, value] : given) {
    numbers.push_back(number);
    for (std::size_t at = 0; at < kElements; ++at) elements.push_back(value + static_cast<float>(at));
  }
  Rows rows;
  rows.collect(DType::kFloat32, kElements, {numbers, reinterpret_cast<const std::byte*>(elements.data())});
  return rows;
}

TEST(GradientRowExchange, SumsTablesOfAnyLengthInPortions) {
  sim::Random random(5);
  int most = 0;
  for (int turn = 0; turn < 400; ++turn) {
    const std::size_t count = 1 + random.below(5), tables = 1 + random.below(6);
    Exchanges exchanges(static_cast<int>(count), ReduceOp::kSum, 1 + random.below(3000));
    std::vector<std::vector<Rows>> given(count);
    for (auto& of_rank : given) of_rank.reserve(tables);                      // views of them stay
    std::vector<std::map<std::int64_t, std::pair<float, int>>> sums(tables);  // and of how many ranks
    for (std::size_t table = 0; table < tables; ++table) {
      const std::uint64_t rows = random.below(100);
      for (std::size_t rank = 0; rank < count; ++rank) {
        std::map<std::int64_t, float> own;
        const std::uint64_t one_in = 1 + random.below(8);
        for (std::uint64_t row = 0; row < rows; ++row) {
          if (random.below(one_in) == 0)
            own.try_emplace(static_cast<std::int64_t>(row), static_cast<float>(random.below(50)) - 20);
        }
        for (const auto& [row, value] : own) {
          sums[table][row].first += value;
          ++sums[table][row].second;
        }
        given[rank].push_back(rows_of(own));
        exchanges.ranks[rank]->add(rows, given[rank].back().view());
      }
    }
    most = std::max(most, exchanges.run_all(1 + random.below(500)));
    if (HasFatalFailure()) return;
    for (std::size_t rank = 0; rank < count; ++rank) {
      for (std::size_t table = 0; table < tables; ++table) {
        const Rows& sum = exchanges.ranks[rank]->sum(table);
        ASSERT_EQ(sum.size(), sums[table].size());
        std::size_t at = 0;
        for (const auto& [row, expected] : sums[table]) {
          float last = 0;
          ASSERT_EQ(sum.numbers()[at], row);
          std::memcpy(&last, sum.elements() + (++at * kElements - 1) * sizeof last, sizeof last);
          ASSERT_EQ(last, expected.first + static_cast<float>(2 * expected.second)) << "rank " << rank;
        }
      }
    }
  }
  EXPECT_GE(most, 4) << "portions";
}

TEST(GradientRowExchange, SpeaksOfARankThatHasMoreRowsThanThereAre) {
  Exchanges exchanges(2, ReduceOp::kSum, 1000);
  const Rows three = rows_of({{0, 1.0F}, {1, 1.0F}, {2, 1.0F}});
  exchanges.ranks[0]->add(2, {});
  exchanges.ranks[1]->add(3, three.view());
  std::vector<RowExchange::Step> counts;
  for (const auto& rank : exchanges.ranks) counts.push_back(rank->count());
  exchanges.allgather(counts);
  try {
    static_cast<void>(exchanges.ranks[0]->move(100));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kProtocol);
    EXPECT_EQ(error.message(), "rank 1 says that it has 3 rows of a table of 2");
    EXPECT_EQ(error.peer(), 1);
  }
}

TEST(GradientRowExchange, AndThatSendsOthersThanThereAre) {
  Exchanges exchanges(2, ReduceOp::kSum, 1000);
  const Rows far = rows_of({{70, 1.0F}});
  exchanges.ranks[0]->add(50, {});
  exchanges.ranks[1]->add(100, far.view());
  std::vector<RowExchange::Step> counts, rows;
  for (const auto& rank : exchanges.ranks) counts.push_back(rank->count());
  exchanges.allgather(counts);
  for (const auto& rank : exchanges.ranks) rows.push_back(rank->move(100).at(0));
  exchanges.allgather(rows);
  try {
    exchanges.ranks[0]->finish();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kProtocol);
    EXPECT_EQ(error.message(), "rank 1 sends rows of a table of 50 rows that are not ascending numbers of it: 70");
  }
}

}  // namespace
}  // namespace aiacc::gradient
