// The generated matrix: every collective × sizes around the edges of chunks × numbers of ranks × in place or not ×
// shared or private memory, through the C ABI with threads as ranks. Types, operators, roots, odd addresses and
// asynchronous calls alternate. SURFACE_MATRIX=full runs all combinations with types and operators, which takes many
// minutes.
#include <cstdlib>

#include "tests/abi_world.h"
#include "tests/surface_cases.h"

namespace aiacc::surface {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1300} << 10;  // of one buffer

// Bytes of a block: none, one element, a cache line, and around the limits of small calls and of staging slots.
constexpr std::array<std::size_t, 7> kSizes{0, 8, 63, 16 << 10, (16 << 10) + 24, (64 << 10) + 8, (128 << 10) + 40};

std::vector<Case> cases_for(int ranks, bool full) {
  std::vector<Case> cases;
  unsigned turn = static_cast<unsigned>(ranks);
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const std::size_t bytes : kSizes) {
      for (const bool in_place : {false, true}) {
        for (const bool shared : {false, true}) {
          const int variants = full ? kDTypes * kReduceOps : 1;
          for (int variant = 0; variant < variants; ++variant) {
            ++turn;
            Case test;
            test.kind = static_cast<Kind>(kind);
            test.type = static_cast<DType>((full ? static_cast<unsigned>(variant) / kReduceOps : turn * 7) % kDTypes);
            test.op = static_cast<ReduceOp>((full ? static_cast<unsigned>(variant) : turn * 3) % kReduceOps);
            if (!supports(test.op, test.type)) test.op = ReduceOp::kSum;
            const std::size_t element = size_of(test.type);
            // An odd number of elements, or none.
            test.count = bytes == 0 ? 0 : bytes / element | 1;
            const bool all_pairs = kind >= static_cast<int>(Kind::kAllgather);
            const std::size_t blocks = all_pairs ? static_cast<std::size_t>(ranks) : 1;
            while (test.count * 2 * blocks * element > kMostBytes) test.count = test.count / 2 | 1;
            test.root = static_cast<int>(turn % static_cast<unsigned>(ranks));
            test.in_place = in_place;
            test.shared = shared;
            test.asynchronous = turn % 4 == 0;
            test.skew = turn % 3 == 0 ? 0 : turn % 3 == 1 ? element : 1;
            cases.push_back(test);
          }
        }
      }
    }
  }
  return cases;
}

class Matrix : public ::testing::TestWithParam<int> {};

TEST_P(Matrix, EveryRankFindsWhatItShould) {
  const int ranks = GetParam();
  if (test::kSanitized && ranks > 5) GTEST_SKIP() << "takes minutes under a sanitizer";
  const char* wanted = std::getenv("SURFACE_MATRIX");  // NOLINT(concurrency-mt-unsafe)
  const std::vector<Case> cases = cases_for(ranks, wanted != nullptr && std::string_view(wanted) == "full");
  const test::World world(static_cast<std::size_t>(ranks));
  constexpr std::size_t kAtOnce = 16;  // cases whose inputs exist at the same time
  std::vector<std::unique_ptr<Arena>> arenas;
  for (int rank = 0; rank < ranks; ++rank) {
    arenas.push_back(std::make_unique<Arena>(world.context(rank), kMostBytes + 1024));
    ASSERT_TRUE(arenas.back()->good()) << aiacc_last_error();
  }
  for (std::size_t first = 0; first < cases.size(); first += kAtOnce) {
    const std::size_t last = std::min(cases.size(), first + kAtOnce);
    std::vector<std::vector<Part>> parts;
    for (std::size_t i = first; i < last; ++i) parts.push_back(parts_of(cases[i], ranks));
    world.run([&](int rank, aiacc_group_t group) {
      for (std::size_t i = first; i < last; ++i) {
        const Part& part = parts[i - first][static_cast<std::size_t>(rank)];
        const std::string wrong = run(cases[i], part, rank, *arenas[static_cast<std::size_t>(rank)], group);
        EXPECT_EQ(wrong, "") << cases[i].describe() << ": rank " << rank << " of " << ranks;
        if (!wrong.empty()) return;
      }
    });
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Matrix, ::testing::Values(1, 2, 3, 4, 5, 7, 8, 16));

}  // namespace
}  // namespace aiacc::surface
