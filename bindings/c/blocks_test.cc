// The collectives with a block for each rank: arguments that are refused before anything starts, and errors of ranks
// that disagree.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::says;
using test::World;

void refused(aiacc_status_t have, const char* word) {
  EXPECT_EQ(have, AIACC_ERR_INVALID_ARGUMENT) << aiacc_last_error();
  EXPECT_TRUE(says(word)) << aiacc_last_error();
}

TEST(Blocks, WrongListsAreRefused) {
  World world(1);
  const aiacc_group_t group = world.group(0);
  float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float other[8] = {};
  const size_t four[] = {4}, huge[] = {SIZE_MAX / 2}, far[] = {SIZE_MAX - 2}, one[] = {1};
  constexpr aiacc_dtype_t kType = AIACC_FLOAT32;
  refused(aiacc_allgatherv(data, 4, other, nullptr, nullptr, kType, group, nullptr, nullptr), "counts is NULL");
  refused(aiacc_allgatherv(data, 3, other, four, nullptr, kType, group, nullptr, nullptr), "send_count is 3");
  refused(aiacc_allgatherv(data, SIZE_MAX / 2, other, huge, nullptr, kType, group, nullptr, nullptr), "counts[0]");
  refused(aiacc_allgatherv(data, 4, other, four, far, kType, group, nullptr, nullptr), "displacements");
  refused(aiacc_allgatherv(nullptr, 4, other, four, nullptr, kType, group, nullptr, nullptr), "send is NULL");
  refused(aiacc_allgatherv(data, 4, nullptr, four, nullptr, kType, group, nullptr, nullptr), "recv is NULL");
  refused(aiacc_allgatherv(data, 4, data + 1, four, nullptr, kType, group, nullptr, nullptr), "overlap");
  refused(aiacc_reduce_scatterv(data, other, nullptr, kType, AIACC_SUM, group, nullptr, nullptr), "counts is NULL");
  refused(aiacc_reduce_scatterv(data, data + 1, four, kType, AIACC_SUM, group, nullptr, nullptr), "overlap");
  refused(aiacc_reduce_scatterv(data, other, huge, kType, AIACC_SUM, group, nullptr, nullptr), "counts[0]");
  refused(aiacc_reduce_scatterv(data, other, four, kType, AIACC_BOR, group, nullptr, nullptr), "bitwise");
  refused(aiacc_alltoall(data, data + 2, 4, kType, group, nullptr, nullptr), "overlap");
  refused(aiacc_alltoall(nullptr, other, 4, kType, group, nullptr, nullptr), "send is NULL");
  refused(aiacc_alltoall(data, other, SIZE_MAX / 2, kType, group, nullptr, nullptr), "count");
  refused(aiacc_alltoallv(data, four, nullptr, other, nullptr, nullptr, kType, group, nullptr, nullptr), "recv_counts");
  refused(aiacc_alltoallv(data, nullptr, nullptr, other, four, nullptr, kType, group, nullptr, nullptr), "send_counts");
  refused(aiacc_alltoallv(data, four, nullptr, other, one, nullptr, kType, group, nullptr, nullptr), "recv_counts[0]");
  refused(aiacc_alltoallv(data, four, nullptr, data, four, nullptr, kType, group, nullptr, nullptr), "overlap");
  refused(aiacc_gather(data, other, 4, kType, 1, group, nullptr, nullptr), "root is 1");
  refused(aiacc_gather(data, nullptr, 4, kType, 0, group, nullptr, nullptr), "recv is NULL");
  refused(aiacc_gather(data, data + 1, 4, kType, 0, group, nullptr, nullptr), "overlap");
  refused(aiacc_gatherv(data, 3, other, four, nullptr, kType, 0, group, nullptr, nullptr), "send_count is 3");
  refused(aiacc_gatherv(data, 4, other, nullptr, nullptr, kType, 0, group, nullptr, nullptr), "counts is NULL");
  refused(aiacc_scatter(nullptr, other, 4, kType, 0, group, nullptr, nullptr), "send is NULL");
  refused(aiacc_scatter(data, other, 4, kType, -1, group, nullptr, nullptr), "root is -1");
  refused(aiacc_scatterv(data, four, nullptr, other, 5, kType, 0, group, nullptr, nullptr), "recv_count is 5");
  refused(aiacc_scatterv(data, four, nullptr, data + 1, 4, kType, 0, group, nullptr, nullptr), "overlap");
  EXPECT_AIACC(aiacc_alltoallv(data, four, nullptr, other, four, one, kType, group, nullptr, nullptr));
  EXPECT_EQ(other[1], 1) << "the group is usable";
}

TEST(Blocks, ReceivedBlocksThatOverlapAreRefused) {
  World world(3);
  world.run([](int rank, aiacc_group_t group) {
    int data[12] = {};
    int all[12] = {};
    const size_t counts[] = {2, 2, 2}, places[] = {4, 0, 5};
    refused(aiacc_allgatherv(data, 2, all, counts, places, AIACC_INT32, group, nullptr, nullptr),
            "ranks 0 and 2 overlap");
    if (rank == 1) {
      refused(aiacc_gatherv(data, 2, all, counts, places, AIACC_INT32, 1, group, nullptr, nullptr),
              "ranks 0 and 2 overlap");
    }
    refused(aiacc_alltoallv(data, counts, places, all, counts, places, AIACC_INT32, group, nullptr, nullptr),
            "overlap");
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
  });
}

TEST(Blocks, ListsMayGoWhenTheCallReturns) {
  World world(3);
  world.run([](int rank, aiacc_group_t group) {
    std::vector<int> send(300'000, rank), recv(300'000, -1);
    aiacc_request_t request = AIACC_NULL;
    {
      std::vector<size_t> counts(3, 100'000), places{200'000, 100'000, 0};
      ASSERT_AIACC(aiacc_alltoallv(send.data(), counts.data(), nullptr, recv.data(), counts.data(), places.data(),
                                   AIACC_INT32, group, nullptr, &request));
      counts.assign(3, 1);
      places.assign(3, 7);
    }
    ASSERT_AIACC(aiacc_wait(request));
    for (std::size_t i = 0; i < recv.size(); ++i) ASSERT_EQ(recv[i], 2 - static_cast<int>(i / 100'000)) << i;
  });
}

// Every rank calls; all must get kMismatch with both words, in this call or the next.
struct Disagreement {
  const char* name;
  std::vector<std::string> words;
  std::function<aiacc_status_t(int rank, int* data, aiacc_group_t group)> call;
};

TEST(Blocks, RanksThatDisagreeAreAllToldWithBothSides) {
  const size_t counts[] = {2, 3, 2}, others[] = {3, 2, 2};
  const std::vector<Disagreement> cases = {
      {"lengths of allgatherv",
       {"rank 0: allgatherv", "rank 1: allgatherv"},
       [&](int rank, int* data, aiacc_group_t group) {
         const size_t* mine = rank == 1 ? others : counts;
         return aiacc_allgatherv(data, mine[rank], data + 100, mine, nullptr, AIACC_INT32, group, nullptr, nullptr);
       }},
      {"lengths of reduce_scatterv",
       {"rank 0: reduce-scatterv", "rank 2: reduce-scatterv"},
       [&](int rank, int* data, aiacc_group_t group) {
         return aiacc_reduce_scatterv(data, data + 100, rank == 2 ? others : counts, AIACC_INT32, AIACC_SUM, group,
                                      nullptr, nullptr);
       }},
      {"a block of alltoallv",
       {"rank 2 sends rank 0 a block of 5", "rank 0 expects 4"},
       [](int rank, int* data, aiacc_group_t group) {
         const size_t four[] = {4, 4, 4}, five[] = {5, 4, 4};
         return aiacc_alltoallv(data, rank == 2 ? five : four, nullptr, data + 100, four, nullptr, AIACC_INT32, group,
                                nullptr, nullptr);
       }},
      {"a block of gatherv",
       {"rank 1 sends rank 2 a block of 4", "rank 2 expects 3"},
       [&](int rank, int* data, aiacc_group_t group) {
         return aiacc_gatherv(data, rank == 1 ? 4 : counts[rank], data + 100, counts, nullptr, AIACC_INT32, 2, group,
                              nullptr, nullptr);
       }},
      {"a block of scatterv",
       {"rank 0 sends rank 1 a block of 3", "rank 1 expects 0"},
       [&](int rank, int* data, aiacc_group_t group) {
         return aiacc_scatterv(data, counts, nullptr, data + 100, rank == 1 ? 0 : counts[rank], AIACC_INT32, 0, group,
                               nullptr, nullptr);
       }},
      {"even and uneven",
       {"alltoall of 4", "alltoallv of 12"},
       [](int rank, int* data, aiacc_group_t group) {
         const size_t four[] = {4, 4, 4};
         if (rank == 0) return aiacc_alltoall(data, data + 100, 4, AIACC_INT32, group, nullptr, nullptr);
         return aiacc_alltoallv(data, four, nullptr, data + 100, four, nullptr, AIACC_INT32, group, nullptr, nullptr);
       }},
      {"the root of gather",
       {"to root 0", "to root 1"},
       [](int rank, int* data, aiacc_group_t group) {
         return aiacc_gather(data, data + 100, 4, AIACC_INT32, rank == 1 ? 1 : 0, group, nullptr, nullptr);
       }},
      {"the root of scatter",
       {"from root 0", "from root 2"},
       [](int rank, int* data, aiacc_group_t group) {
         return aiacc_scatter(data, data + 100, 4, AIACC_INT32, rank == 2 ? 2 : 0, group, nullptr, nullptr);
       }},
      {"the root of a large scatterv",
       {"from root 0", "from root 1"},
       [](int rank, int* data, aiacc_group_t group) {
         const size_t many[] = {9000, 9000, 9000};
         return aiacc_scatterv(data, many, nullptr, data + 30'000, 9000, AIACC_INT32, rank == 0 ? 1 : 0, group, nullptr,
                               nullptr);
       }},
      {"the type",
       {"int32", "fp32"},
       [](int rank, int* data, aiacc_group_t group) {
         return aiacc_alltoall(data, data + 100, 4, rank == 1 ? AIACC_FLOAT32 : AIACC_INT32, group, nullptr, nullptr);
       }},
  };
  for (const Disagreement& one : cases) {
    World world(3);
    world.run([&](int rank, aiacc_group_t group) {
      std::vector<int> data(60'000);
      const auto begin = std::chrono::steady_clock::now();
      aiacc_status_t status = one.call(rank, data.data(), group);
      if (status == AIACC_OK)
        status = aiacc_barrier(group, nullptr, nullptr);  // who only sends a few bytes hears of it here
      EXPECT_EQ(status, AIACC_ERR_MISMATCH) << one.name << ": " << aiacc_last_error();
      for (const std::string& word : one.words) EXPECT_TRUE(says(word)) << one.name << ": " << aiacc_last_error();
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "a deadline has passed";
      EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_ABORTED) << one.name;
    });
  }
}

}  // namespace
}  // namespace aiacc
