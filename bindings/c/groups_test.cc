// Groups: created from ranks, split, translated, aborted and freed; many concurrent ones, each with its own errors.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <string>

#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::expect;
using test::group_of;
using test::says;
using test::World;

aiacc_group_attr_t named(const char* name) {
  aiacc_group_attr_t attr = {};
  attr.size = sizeof attr;
  attr.name = name;
  return attr;
}

// The sum of `value` over the group, in `count` elements.
std::int64_t group_sum(aiacc_group_t group, std::int64_t value, std::size_t count = 1) {
  std::vector<std::int64_t> data(count, value);
  EXPECT_AIACC(aiacc_allreduce(data.data(), data.data(), count, AIACC_INT64, AIACC_SUM, group, nullptr, nullptr));
  EXPECT_EQ(data.front(), data.back());
  return data.front();
}

bool is_in(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

TEST(Groups, HaveTheRanksInTheGivenOrder) {
  World world(5);
  const std::vector<int> ranks = {4, 0, 3};
  world.run([&](int rank, aiacc_group_t all) {
    if (!is_in(ranks, rank)) return;
    const aiacc_group_t group = group_of(all, ranks);
    int mine = -1;
    int size = -1;
    EXPECT_AIACC(aiacc_rank(group, &mine));
    EXPECT_AIACC(aiacc_size(group, &size));
    EXPECT_EQ(ranks[static_cast<std::size_t>(mine)], rank);
    EXPECT_EQ(size, 3);
    for (const std::size_t count : {1, 100, 100'000}) EXPECT_EQ(group_sum(group, rank, count), 7);
    int from[3] = {};
    EXPECT_AIACC(aiacc_allgather(&rank, from, 1, AIACC_INT32, group, nullptr, nullptr));
    EXPECT_EQ(std::vector<int>(from, from + 3), ranks);
    int word = rank == 4 ? 17 : 0;
    if (mine == 0) {
      EXPECT_AIACC(aiacc_send(&word, 1, AIACC_INT32, 2, 9, group, nullptr, nullptr));
    }
    if (mine == 2) {
      EXPECT_AIACC(aiacc_recv(&word, 1, AIACC_INT32, 0, 9, group, nullptr, nullptr));
    }
    EXPECT_EQ(word, mine == 1 ? 0 : 17);
    EXPECT_AIACC(aiacc_group_free(group));
    EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_INVALID_HANDLE);
  });
}

TEST(Groups, OfEqualMembersDiffer) {
  World world(2);
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_t first = group_of(all, {0, 1});
    const aiacc_group_t second = group_of(all, {0, 1});
    EXPECT_NE(first, second);
    // Each rank uses another order: in one group this would be a mismatch.
    int one = 1;
    std::vector<double> other(1000, 1.0);
    aiacc_request_t requests[2];
    const auto on_first = [&] {
      EXPECT_AIACC(aiacc_allreduce(&one, &one, 1, AIACC_INT32, AIACC_SUM, first, nullptr, &requests[0]));
    };
    if (rank == 0) on_first();
    EXPECT_AIACC(aiacc_allreduce(other.data(), other.data(), other.size(), AIACC_FLOAT64, AIACC_SUM, second, nullptr,
                                 &requests[1]));
    if (rank == 1) on_first();
    EXPECT_AIACC(aiacc_wait(requests[0]));
    EXPECT_AIACC(aiacc_wait(requests[1]));
    EXPECT_EQ(one, 2);
    EXPECT_EQ(other[999], 2.0);
  });
}

TEST(Groups, OfGroupsAndOfOne) {
  World world(4);
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_t alone = group_of(all, {rank});
    EXPECT_EQ(group_sum(alone, 5), 5);
    if (rank == 0) return;
    const aiacc_group_t outer = group_of(all, {3, 2, 1});
    if (rank == 2) return;
    const aiacc_group_t inner = group_of(outer, {2, 0});  // ranks 1 and 3 of the world
    EXPECT_EQ(group_sum(inner, rank), 4);
    const int from[3] = {0, 1, 2};
    int to[3] = {7, 7, 7};
    EXPECT_AIACC(aiacc_group_translate(outer, 3, from, inner, to));
    EXPECT_EQ(to[0], 1);
    EXPECT_EQ(to[1], -1);
    EXPECT_EQ(to[2], 0);
    EXPECT_AIACC(aiacc_group_translate(inner, 2, from, all, to));
    EXPECT_EQ(to[0], 1);
    EXPECT_EQ(to[1], 3);
    EXPECT_AIACC(aiacc_group_translate(inner, 0, nullptr, all, nullptr));
    EXPECT_AIACC(aiacc_group_free(outer)) << "the inner one lives on";
    EXPECT_EQ(group_sum(inner, 1), 2);
  });
}

TEST(Groups, Split) {
  World world(6);
  world.run([&](int rank, aiacc_group_t all) {
    aiacc_group_t group = AIACC_NULL;
    const aiacc_group_attr_t attr = named("halves");
    EXPECT_AIACC(aiacc_group_split(all, rank % 2, -rank, &attr, &group));
    int mine = -1;
    EXPECT_AIACC(aiacc_rank(group, &mine));
    EXPECT_EQ(mine, (5 - rank) / 2) << "by key: the highest first";
    EXPECT_EQ(group_sum(group, rank), rank % 2 == 0 ? 6 : 9);
    aiacc_group_t some = 77;
    EXPECT_AIACC(aiacc_group_split(all, rank < 2 ? AIACC_NO_COLOR : 4, 0, nullptr, &some));
    if (rank < 2) {
      EXPECT_EQ(some, AIACC_NULL);
    } else {
      EXPECT_AIACC(aiacc_rank(some, &mine));
      EXPECT_EQ(mine, rank - 2) << "equal keys: by rank";
      EXPECT_EQ(group_sum(some, 1), 4);
    }
  });
}

TEST(Groups, AreRefusedWithASentence) {
  World world(2);
  World other(1);
  constexpr auto kBad = AIACC_ERR_INVALID_ARGUMENT;
  const aiacc_group_t all = world.group(0);
  const int ranks[3] = {0, 1, 0};
  const int far[2] = {0, 2};
  const int foreign[1] = {1};
  aiacc_group_t group = 77;
  expect(aiacc_group_create(AIACC_NULL, 1, ranks, nullptr, &group), AIACC_ERR_INVALID_HANDLE, "AIACC_NULL");
  expect(aiacc_group_create(12345, 1, ranks, nullptr, &group), AIACC_ERR_INVALID_HANDLE, "not the handle of a group");
  expect(aiacc_group_create(all, 0, ranks, nullptr, &group), kBad, "n is 0");
  expect(aiacc_group_create(all, 2, nullptr, nullptr, &group), kBad, "ranks is NULL");
  expect(aiacc_group_create(all, 2, ranks, nullptr, nullptr), kBad, "group is NULL");
  expect(aiacc_group_create(all, 3, ranks, nullptr, &group), kBad, "n is 3");
  expect(aiacc_group_create(all, 2, far, nullptr, &group), kBad, "ranks[1] is 2");
  const int twice[2] = {0, 0};
  expect(aiacc_group_create(all, 2, twice, nullptr, &group), kBad, "ranks[0] and ranks[1] are both 0");
  expect(aiacc_group_create(all, 1, foreign, nullptr, &group), kBad, "not among");
  aiacc_group_attr_t attr = named("x");
  attr.size = 4;
  expect(aiacc_group_create(all, 2, ranks, &attr, &group), kBad, "sizeof(aiacc_group_attr_t)");
  attr.size = sizeof attr;
  attr.timeout_ms = -2;
  expect(aiacc_group_create(all, 2, ranks, &attr, &group), kBad, "timeout_ms");
  expect(aiacc_group_split(all, -3, 0, nullptr, &group), kBad, "color is -3");
  expect(aiacc_group_split(all, 0, 0, nullptr, nullptr), kBad, "group is NULL");
  EXPECT_EQ(group, 77u);
  expect(aiacc_group_free(all), kBad, "the world");
  expect(aiacc_group_free(AIACC_NULL), AIACC_ERR_INVALID_HANDLE, "AIACC_NULL");
  int translated[2];
  expect(aiacc_group_translate(all, 1, foreign, other.group(0), translated), kBad, "two contexts");
  expect(aiacc_group_translate(all, 1, nullptr, all, translated), kBad, "ranks is NULL");
  expect(aiacc_group_translate(all, 2, far, all, translated), kBad, "ranks[1] is 2");
  expect(aiacc_group_translate(all, 1, foreign, all, nullptr), kBad, "translated is NULL");
  expect(aiacc_group_sequence(all, nullptr), kBad, "sequence is NULL");
  ASSERT_AIACC(aiacc_group_create(all, 1, ranks, nullptr, &group));
  EXPECT_AIACC(aiacc_group_free(group));
  expect(aiacc_group_free(group), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
  expect(aiacc_group_abort(group, "x"), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
  expect(aiacc_group_create(group, 1, ranks, nullptr, &group), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
}

TEST(Groups, CountTheirCollectives) {
  World world(2);
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_t group = group_of(all, {0, 1});
    std::uint64_t sequence = 77;
    EXPECT_AIACC(aiacc_group_sequence(group, &sequence));
    EXPECT_EQ(sequence, 0u);
    for (const std::size_t count : {1, 1, 5000}) group_sum(group, 1, count);
    int word = 0;
    if (rank == 0) {
      EXPECT_AIACC(aiacc_send(&word, 1, AIACC_INT32, 1, 0, group, nullptr, nullptr));
    }
    if (rank == 1) {
      EXPECT_AIACC(aiacc_recv(&word, 1, AIACC_INT32, 0, 0, group, nullptr, nullptr));
    }
    EXPECT_AIACC(aiacc_group_sequence(group, &sequence));
    EXPECT_EQ(sequence, 3u) << "messages are not collectives";
  });
}

TEST(Groups, AnErrorEndsOneAndNoOther) {
  World world(3);
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_t parent = group_of(all, {0, 1, 2});
    const aiacc_group_attr_t attr = named("wrong");
    const aiacc_group_t group = group_of(parent, {0, 1, 2}, &attr);
    const aiacc_group_t sibling = group_of(parent, {0, 1, 2});
    const aiacc_group_t child = group_of(group, {0, 1, 2});
    float data[2] = {1, 1};
    EXPECT_EQ(aiacc_allreduce(data, data, rank == 0 ? 1 : 2, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr),
              AIACC_ERR_MISMATCH)
        << aiacc_last_error();
    EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_ABORTED);
    EXPECT_TRUE(says("group 'wrong' of 3 ranks was aborted earlier")) << aiacc_last_error();
    for (const aiacc_group_t other : {all, parent, sibling, child}) EXPECT_EQ(group_sum(other, 1), 3);
    EXPECT_AIACC(aiacc_group_free(group));
    const aiacc_group_t again = group_of(parent, {0, 1, 2}, &attr);
    EXPECT_EQ(group_sum(again, rank, 1000), 3) << "a new group instead of the one that ended";
  });
}

TEST(Groups, AbortReachesMembersThatWaitAndThoseThatCome) {
  World world(4);
  std::atomic<int> waiting{0};
  std::atomic<bool> over{false};
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_attr_t attr = named("doomed");
    const aiacc_group_t group = group_of(all, {0, 1, 2, 3}, &attr);
    group_sum(group, 1, 1000);
    if (rank == 0) {
      while (waiting.load() < 3) std::this_thread::yield();
      EXPECT_AIACC(aiacc_group_abort(group, "the data ran out"));
      over = true;
      EXPECT_AIACC(aiacc_group_abort(group, "again")) << "the first counts";
    } else if (rank == 3) {
      ++waiting;
      while (!over) std::this_thread::yield();
    } else {
      ++waiting;
    }
    std::vector<float> data(100'000);
    EXPECT_EQ(aiacc_allreduce(data.data(), data.data(), data.size(), AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr),
              AIACC_ERR_ABORTED);
    EXPECT_TRUE(says("rank 0 aborted group 'doomed' of 4 ranks: the data ran out")) << aiacc_last_error();
    EXPECT_EQ(aiacc_last_error_rank(), 0);
    EXPECT_EQ(group_sum(all, 1), 4);
  });
}

TEST(Groups, AMemberThatDoesNotMakeItIsNamed) {
  World world(3);
  std::atomic<bool> made{false};  // by rank 1
  std::atomic<int> failed{0};
  world.run([&](int rank, aiacc_group_t all) {
    aiacc_group_attr_t attr = named("pair");
    attr.timeout_ms = rank == 0 ? 100 : 100'000;  // the time-out of its operations
    if (rank == 2) {
      while (failed.load() < 2) std::this_thread::yield();
      const aiacc_group_t late = group_of(all, {0, 1, 2}, &attr);
      EXPECT_EQ(aiacc_barrier(late, nullptr, nullptr), AIACC_ERR_TIMEOUT) << "the first error, for whoever comes late";
      return;
    }
    const aiacc_group_t group = group_of(all, {0, 1, 2}, &attr);
    if (rank == 1) made = true;
    while (!made) std::this_thread::yield();
    EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_TIMEOUT) << aiacc_last_error();
    EXPECT_TRUE(says("barrier (operation 1 of group 'pair' of 3 ranks)") && says("rank 2 has not made this group"))
        << aiacc_last_error();
    ++failed;
  });
}

TEST(Groups, OperationsBeforeAllMembersAreThereKeepTheirOrder) {
  World world(3);
  std::atomic<bool> made{false};
  world.run([&](int rank, aiacc_group_t all) {
    if (rank == 2) {
      while (!made) std::this_thread::yield();
    }
    const aiacc_group_t group = group_of(all, {0, 1, 2});
    std::vector<std::vector<int>> data(20);
    std::vector<aiacc_request_t> requests(data.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i].assign(1 + i * 97, rank + static_cast<int>(i));
      EXPECT_AIACC(aiacc_allreduce(data[i].data(), data[i].data(), data[i].size(), AIACC_INT32, AIACC_SUM, group,
                                   nullptr, &requests[i]));
    }
    made = true;
    for (std::size_t i = 0; i < data.size(); ++i) {
      EXPECT_AIACC(aiacc_wait(requests[i]));
      EXPECT_EQ(data[i].back(), 3 + 3 * static_cast<int>(i));
    }
  });
}

TEST(Groups, AreFreedWhileOthersStillUseThem) {
  World world(2);
  world.run([&](int rank, aiacc_group_t all) {
    for (int i = 0; i < 20; ++i) {
      const aiacc_group_t group = group_of(all, {0, 1});
      std::vector<int> data(20'000, 1);
      aiacc_request_t request = AIACC_NULL;
      EXPECT_AIACC(
          aiacc_allreduce(data.data(), data.data(), data.size(), AIACC_INT32, AIACC_SUM, group, nullptr, &request));
      if (rank == 0) {
        EXPECT_AIACC(aiacc_group_free(group)) << "what runs goes on";
      }
      EXPECT_AIACC(aiacc_wait(request));
      EXPECT_EQ(data.back(), 2);
      if (rank == 1) {
        EXPECT_AIACC(aiacc_group_free(group));
      }
    }
  });
}

TEST(Groups, HaveATrafficClass) {
  World world(2);
  world.run([&](int rank, aiacc_group_t all) {
    aiacc_group_attr_t attr = named("copies");
    attr.traffic_class = AIACC_TRAFFIC_BACKGROUND;
    const aiacc_group_t group = group_of(all, {0, 1}, &attr);
    EXPECT_EQ(group_sum(group, rank), 1);
    attr.traffic_class = 5;
    const int ranks[] = {0, 1};
    aiacc_group_t none = AIACC_NULL;
    EXPECT_EQ(aiacc_group_create(all, 2, ranks, &attr, &none), AIACC_ERR_INVALID_ARGUMENT);
    EXPECT_TRUE(says("traffic_class in aiacc_group_attr_t is 5: values are 0")) << aiacc_last_error();
    attr.size = offsetof(aiacc_group_attr_t, traffic_class);  // of a program that was compiled before
    EXPECT_EQ(group_sum(group_of(all, {0, 1}, &attr), rank), 1);
  });
}

TEST(Groups, AMemberThatFreedItIsNamed) {
  World world(2);
  std::atomic<bool> freed{false};
  world.run([&](int rank, aiacc_group_t all) {
    aiacc_group_attr_t attr = named("short");
    attr.timeout_ms = 100'000;
    const aiacc_group_t group = group_of(all, {0, 1}, &attr);
    EXPECT_EQ(group_sum(group, 1), 2);
    if (rank == 0) {
      EXPECT_AIACC(aiacc_group_free(group));
      freed = true;
      return;
    }
    while (!freed) std::this_thread::yield();
    EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_MISMATCH);
    EXPECT_TRUE(says("rank 0 has freed the group") && says("called barrier (operation 2")) << aiacc_last_error();
  });
}

// Without shared pages: the segment's lines are used one after another up to its end, so their number grows.
std::size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoul(line.substr(8));
  }
  return 0;
}

// A rank may be far ahead of another one; it waits when the host's segment is full.
TEST(Groups, ComeAndGoTenThousandTimesWithoutGrowth) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer keeps what was freed";
  World world(2);
  std::vector<std::size_t> before(2);
  std::vector<std::size_t> after(2);
  world.run([&](int rank, aiacc_group_t all) {
    for (int i = 0; i < 10'000; ++i) {
      if (i == 1000) before[static_cast<std::size_t>(rank)] = resident_kib();
      const aiacc_group_t group = group_of(all, {1, 0});
      if (i % 50 == 0) {
        EXPECT_EQ(group_sum(group, i, i % 100 == 0 ? 1 : 20'000), 2 * i);
      }
      ASSERT_AIACC(aiacc_group_free(group));
    }
    after[static_cast<std::size_t>(rank)] = resident_kib();
    EXPECT_EQ(group_sum(all, 1), 2);
  });
  EXPECT_LT(after[0], before[0] + 4096) << "KiB";
  EXPECT_LT(after[1], before[1] + 4096) << "KiB";
}

TEST(Groups, MoreThanFitAreRefusedAndTheOthersGoOn) {
  World world(2);
  world.run([&](int rank, aiacc_group_t all) {
    std::vector<aiacc_group_t> groups;
    aiacc_group_t group = AIACC_NULL;
    const int ranks[2] = {0, 1};
    aiacc_status_t status = AIACC_OK;
    while (groups.size() < 5000 && (status = aiacc_group_create(all, 2, ranks, nullptr, &group)) == AIACC_OK)
      groups.push_back(group);
    EXPECT_EQ(status, AIACC_ERR_OUT_OF_MEMORY);
    EXPECT_GT(groups.size(), 200u);
    EXPECT_TRUE(says("too many groups")) << aiacc_last_error();
    EXPECT_EQ(group_sum(groups.back(), rank), 1);
    for (const aiacc_group_t each : groups) EXPECT_AIACC(aiacc_group_free(each));
    EXPECT_EQ(group_sum(group_of(all, {0, 1}), 1), 2);
  });
}

// Each thread of each rank has a group of its own; the progress of one group does not depend on another.
TEST(Groups, MakeProgressOnTheirOwn) {
  World world(2);
  constexpr int kGroups = 8;
  world.run([&](int rank, aiacc_group_t all) {
    std::vector<aiacc_group_t> groups;
    for (int i = 0; i < kGroups; ++i) groups.push_back(group_of(all, {0, 1}));
    std::vector<std::vector<int>> data(kGroups, std::vector<int>(3000, rank + 1));
    std::vector<aiacc_request_t> requests(kGroups);
    for (int i = 0; i < kGroups; ++i) {
      const auto at = static_cast<std::size_t>(rank == 0 ? i : kGroups - 1 - i);  // in opposite orders
      EXPECT_AIACC(aiacc_allreduce(data[at].data(), data[at].data(), 3000, AIACC_INT32, AIACC_SUM, groups[at], nullptr,
                                   &requests[at]));
      if (i == 3) {
        EXPECT_EQ(group_sum(all, 1), 2) << "a blocking call in between";
      }
    }
    for (std::size_t i = kGroups; i-- > 0;) {
      EXPECT_AIACC(aiacc_wait(requests[i]));
      EXPECT_EQ(data[i].back(), 3);
    }
  });
}

TEST(Groups, GoWithTheirContext) {
  World world(2);
  world.forget();
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_t group = group_of(all, {0, 1});
    const aiacc_group_t unused = group_of(all, {1, 0});
    std::vector<int> data(50'000, rank);
    aiacc_request_t request = AIACC_NULL;
    EXPECT_AIACC(
        aiacc_allreduce(data.data(), data.data(), data.size(), AIACC_INT32, AIACC_SUM, group, nullptr, &request));
    EXPECT_AIACC(aiacc_context_destroy(world.context(rank)));
    EXPECT_AIACC(aiacc_wait(request)) << "it was waited for";
    EXPECT_EQ(data.back(), 1);
    expect(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_INVALID_HANDLE, "any more");
    expect(aiacc_group_free(unused), AIACC_ERR_INVALID_HANDLE, "any more");
  });
}

}  // namespace
}  // namespace aiacc
