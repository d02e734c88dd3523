// User-defined operators and grouped allreduces through the C ABI.
#include <cstring>
#include <numeric>
#include <string>

#include "tests/abi_world.h"
#include "tests/affine_op.h"

namespace aiacc {
namespace {

using affine::Map;
using test::expect;
using test::says;
using test::World;

class Operator {
 public:
  explicit Operator(const char* name, std::size_t bytes = sizeof(Map)) {
    aiacc_op_attr_t attr = {};
    attr.size = sizeof attr;
    attr.name = name;
    EXPECT_AIACC(aiacc_op_create(&affine::combine, nullptr, bytes, &attr, &op));
  }
  ~Operator() { EXPECT_AIACC(aiacc_op_free(op)); }
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  aiacc_op_t op{};
};

class Operators : public testing::TestWithParam<int> {};

TEST_P(Operators, CombineInTheOrderOfRanks) {
  const World world(static_cast<std::size_t>(GetParam()));
  const Operator affine("affine");
  const auto n = static_cast<std::size_t>(GetParam());
  for (const std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{999}, std::size_t{20'001}}) {
    const std::vector<Map> all = affine::composed(GetParam(), count * n);
    world.run([&](int rank, aiacc_group_t group) {
      for (const bool shared : {false, true}) {
        const std::vector<Map> input = affine::input(rank, count * n);
        void* memory = nullptr;
        ASSERT_AIACC(aiacc_mem_alloc(world.context(rank), 2 * count * n * sizeof(Map), &memory));
        std::vector<Map> mine(2 * count * n);
        Map* send = shared ? static_cast<Map*>(memory) : mine.data();
        Map* recv = send + count * n;
        const auto reset = [&] {
          std::copy(input.begin(), input.end(), send);
          std::fill(recv, recv + count * n, Map{});
        };
        const auto same = [&](const Map* from, std::size_t first, std::size_t length) {
          return std::equal(from, from + length, all.begin() + static_cast<std::ptrdiff_t>(first));
        };
        reset();
        EXPECT_AIACC(aiacc_allreduce(send, recv, count * n, AIACC_RECORD, affine.op, group, nullptr, nullptr));
        EXPECT_TRUE(same(recv, 0, count * n)) << count;
        aiacc_request_t request = AIACC_NULL;
        EXPECT_AIACC(aiacc_allreduce(send, send, count * n, AIACC_RECORD, affine.op, group, nullptr, &request));
        EXPECT_AIACC(aiacc_wait(request));
        EXPECT_TRUE(same(send, 0, count * n)) << "in place, " << count;
        reset();
        const int root = GetParam() / 2;
        EXPECT_AIACC(aiacc_reduce(send, recv, count, AIACC_RECORD, affine.op, root, group, nullptr, nullptr));
        if (rank == root) {
          EXPECT_TRUE(same(recv, 0, count)) << count;
        }
        reset();
        EXPECT_AIACC(aiacc_reduce_scatter(send, recv, count, AIACC_RECORD, affine.op, group, nullptr, nullptr));
        EXPECT_TRUE(same(recv, count * static_cast<std::size_t>(rank), count)) << count;
        std::vector<std::size_t> counts(n, count);
        counts.front() += count / 2;
        counts.back() -= n > 1 ? count / 2 : 0;
        if (n == 1) counts.front() = count;
        const std::size_t begin = std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
        reset();
        EXPECT_AIACC(
            aiacc_reduce_scatterv(send, recv, counts.data(), AIACC_RECORD, affine.op, group, nullptr, nullptr));
        EXPECT_TRUE(same(recv, begin, counts[static_cast<std::size_t>(rank)])) << count;
        EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
        EXPECT_AIACC(aiacc_mem_free(memory));
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Operators, testing::Values(1, 2, 3, 5, 8));

TEST(OperatorArguments, AreRefused) {
  World world(1);
  const aiacc_group_t group = world.group(0);
  aiacc_op_t op{};
  constexpr auto kBad = AIACC_ERR_INVALID_ARGUMENT;
  expect(aiacc_op_create(nullptr, nullptr, 12, nullptr, &op), kBad, "function is NULL");
  expect(aiacc_op_create(&affine::combine, nullptr, 12, nullptr, nullptr), kBad, "op is NULL");
  expect(aiacc_op_create(&affine::combine, nullptr, 0, nullptr, &op), kBad, "record_bytes is 0");
  expect(aiacc_op_create(&affine::combine, nullptr, 513, nullptr, &op), kBad, "record_bytes is 513");
  const aiacc_op_attr_t attr = {};
  expect(aiacc_op_create(&affine::combine, nullptr, 12, &attr, &op), kBad, "sizeof(aiacc_op_attr_t)");
  ASSERT_AIACC(aiacc_op_create(&affine::combine, nullptr, 12, nullptr, &op));
  Map map{2, 3, 7};
  expect(aiacc_allreduce(&map, &map, 1, AIACC_RECORD, AIACC_SUM, group, nullptr, nullptr), kBad, "AIACC_RECORD");
  expect(aiacc_allreduce(&map, &map, 1, AIACC_INT32, op, group, nullptr, nullptr), kBad, "AIACC_RECORD");
  expect(aiacc_broadcast(&map, 1, AIACC_RECORD, 0, group, nullptr, nullptr), kBad, "AIACC_RECORD");
  expect(aiacc_allreduce(&map, &map, SIZE_MAX / 4, AIACC_RECORD, op, group, nullptr, nullptr), kBad, "count");
  aiacc_attr_t scaled = {};
  scaled.size = sizeof scaled;
  scaled.postscale = 0.5;
  expect(aiacc_allreduce(&map, &map, 1, AIACC_RECORD, op, group, &scaled, nullptr), kBad, "postscale");
  EXPECT_AIACC(aiacc_allreduce(&map, &map, 1, AIACC_RECORD, op, group, nullptr, nullptr));
  EXPECT_AIACC(aiacc_op_free(op));
  expect(aiacc_op_free(op), AIACC_ERR_INVALID_HANDLE, "any more");
  expect(aiacc_op_free(AIACC_SUM), AIACC_ERR_INVALID_HANDLE, "does not exist");
  aiacc_op_t next{};
  ASSERT_AIACC(aiacc_op_create(&affine::combine, nullptr, 12, nullptr, &next));
  expect(aiacc_allreduce(&map, &map, 1, AIACC_RECORD, op, group, nullptr, nullptr), AIACC_ERR_INVALID_HANDLE,
         "any more");
  EXPECT_AIACC(aiacc_op_free(next));
}

TEST(OperatorArguments, ARunningOperationKeepsItsOperator) {
  World world(2);
  world.run([](int rank, aiacc_group_t group) {
    std::vector<Map> data = affine::input(rank, 50'000);
    aiacc_request_t request = AIACC_NULL;
    {
      const Operator affine("short-lived");
      ASSERT_AIACC(
          aiacc_allreduce(data.data(), data.data(), data.size(), AIACC_RECORD, affine.op, group, nullptr, &request));
    }
    ASSERT_AIACC(aiacc_wait(request));
    EXPECT_EQ(data, affine::composed(2, data.size()));
  });
}

TEST(OperatorArguments, OtherOperatorsAreAMismatch) {
  World world(2);
  const Operator one("moments"), other("softmax");
  world.run([&](int rank, aiacc_group_t group) {
    Map map;
    EXPECT_EQ(aiacc_allreduce(&map, &map, 1, AIACC_RECORD, rank == 0 ? one.op : other.op, group, nullptr, nullptr),
              AIACC_ERR_MISMATCH);
    EXPECT_TRUE(says("'moments'") && says("'softmax'") && says("12 bytes")) << aiacc_last_error();
  });
}

// --- grouped allreduce ------------------------------------------------------------------------------------------------

class Grouped : public testing::TestWithParam<int> {};

TEST_P(Grouped, EveryTensorIsReduced) {
  const World world(static_cast<std::size_t>(GetParam()));
  // Tensors of no element, of few elements, around the size of a pack, and larger than a pack.
  const std::vector<std::size_t> counts = {3, 0,      1000,   65'535, 1,      65'536, 300'001,
                                           7, 64'000, 64'000, 64'000, 64'000, 64'000, 9};
  world.run([&](int rank, aiacc_group_t group) {
    for (const bool asynchronous : {false, true}) {
      std::vector<std::vector<int>> sends, recvs;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        sends.emplace_back(counts[i]);
        std::iota(sends.back().begin(), sends.back().end(), rank * static_cast<int>(i + 1));
        recvs.emplace_back(counts[i], -1);
      }
      aiacc_request_t request = AIACC_NULL;
      {
        std::vector<const void*> from;
        std::vector<void*> into;
        for (std::size_t i = 0; i < counts.size(); ++i) {
          from.push_back(sends[i].data());
          into.push_back(i % 3 == 0 ? sends[i].data() : recvs[i].data());
        }
        std::vector<std::size_t> lengths = counts;
        ASSERT_AIACC(aiacc_allreduce_grouped(counts.size(), from.data(), into.data(), lengths.data(), AIACC_INT32,
                                             AIACC_SUM, group, nullptr, asynchronous ? &request : nullptr));
        lengths.assign(counts.size(), 1);
        into.assign(counts.size(), nullptr);
      }
      if (asynchronous) {
        ASSERT_AIACC(aiacc_wait(request));
      }
      const int n = GetParam();
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const std::vector<int>& result = i % 3 == 0 ? sends[i] : recvs[i];
        for (std::size_t k = 0; k < counts[i]; ++k) {
          ASSERT_EQ(result[k], n * static_cast<int>(k) + n * (n - 1) / 2 * static_cast<int>(i + 1)) << i << " " << k;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Grouped, testing::Values(1, 2, 3, 8));

TEST(GroupedArguments, AreRefusedAndOtherLengthsAreAMismatch) {
  World world(2);
  world.run([](int rank, aiacc_group_t group) {
    int a[8] = {}, b[8] = {};
    const void* sends[] = {a, b};
    void* recvs[] = {a, b};
    void* shifted[] = {a + 1, b};
    const size_t counts[] = {4, 4}, others[] = {5, 3}, huge[] = {SIZE_MAX / 8, SIZE_MAX / 8};
    const auto call = [&](size_t n, const void* const* from, void* const* into, const size_t* lengths) {
      return aiacc_allreduce_grouped(n, from, into, lengths, AIACC_INT32, AIACC_SUM, group, nullptr, nullptr);
    };
    expect(call(0, sends, recvs, counts), AIACC_ERR_INVALID_ARGUMENT, "n is 0");
    expect(call(2, nullptr, recvs, counts), AIACC_ERR_INVALID_ARGUMENT, "sends is NULL");
    expect(call(2, sends, recvs, nullptr), AIACC_ERR_INVALID_ARGUMENT, "counts is NULL");
    expect(call(2, sends, shifted, counts), AIACC_ERR_INVALID_ARGUMENT, "overlap");
    expect(call(2, sends, recvs, huge), AIACC_ERR_INVALID_ARGUMENT, "count");
    EXPECT_EQ(call(2, sends, recvs, rank == 0 ? counts : others), AIACC_ERR_MISMATCH);
    EXPECT_TRUE(says("grouped allreduce of 2 tensors")) << aiacc_last_error();
  });
}

}  // namespace
}  // namespace aiacc
