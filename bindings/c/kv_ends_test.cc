// Key-value stores that end, through the C ABI with threads as ranks: who waits for whom, and what calls are told that come too late or
// outlive their store.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <vector>

#include "bindings/c/kv_world_test.h"
#include "include/aiacc/kv.h"
#include "tests/abi_world.h"

namespace aiacc {
namespace {

using namespace kv_test;
using test::expect;
using test::group_of;
using test::World;

// For calls of which the time-out of a test is no part.
constexpr aiacc_attr_t patient_attributes() {
  aiacc_attr_t attr{};
  attr.size = sizeof attr;
  attr.timeout_ms = 100'000;
  return attr;
}
constexpr aiacc_attr_t kPatient = patient_attributes();

// attempt(milliseconds) with a time-out that is a part of the test and holds for the creation of the store too: again with a longer one
// where this machine was too slow for that, of which attempt() tells with false.
template <class Attempt>
void with_time_out(Attempt attempt) {
  bool made = false;
  for (const std::int64_t ms : {500, 3'000, 20'000}) {
    made = attempt(ms);
    if (made) break;
  }
  EXPECT_TRUE(made);
}

// A rank that only serves waits for as long as the others train, whatever the time-out, and is told if they cannot end in order.
TEST(KvEnds, WhoOnlyServesWaitsForTheWorkers) {
  for (const bool in_order : {true, false}) {
    with_time_out([in_order](std::int64_t ms) {
      const World world(3);
      std::atomic<int> trained{0};
      std::atomic<bool> left{false};
      std::atomic<bool> made{true};
      world.run([&](int rank, aiacc_group_t group) {
        aiacc_kv_attr_t attr = kv_attributes(AIACC_KV_ASYNC);
        attr.timeout_ms = rank == 2 || (rank == 0 && !in_order) ? ms : 100'000;
        const aiacc_kv_t kv = made_in_time(group, {2}, {0, 1}, attr);
        if (kv == AIACC_NULL) {
          made = false;
          left = true;
          return;
        }
        if (rank == 2) {
          const aiacc_status_t status = aiacc_kv_free(kv);
          EXPECT_TRUE(!made || (status == AIACC_OK) == in_order) << aiacc_last_error();
          return;
        }
        if (in_order) {
          usleep(static_cast<useconds_t>(2'000 * ms));
          if (!made) return;
          begin(kv, number(1), {1, 2});
          for (++trained; trained < 2;) usleep(1'000);
        }
        while (rank == 1 && !in_order && !left) usleep(1'000);
        if (!made) return;
        EXPECT_AIACC(aiacc_kv_free(kv));  // rank 0 waits for its time-out
        left = true;
      });
      return made.load();
    });
  }
}

TEST(KvEnds, ALatePushToAnAsyncStoreIsNotToldOfOtherWorkers) {
  const World world(2);
  std::atomic<bool> over{false};  // the push
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group, {1}, {0, 1}, kv_attributes(AIACC_KV_ASYNC));
    const Values value(10, 1.0f);
    begin(kv, name("w"), value);
    aiacc_kv_updater_t slow{};
    slow.size = sizeof slow;
    slow.kind = AIACC_KV_CALLBACK;
    slow.arg = &over;
    slow.update = [](void* arg, aiacc_kv_key_t, std::size_t, std::size_t, aiacc_dtype_t, const void*, void*) {
      while (!*static_cast<std::atomic<bool>*>(arg)) usleep(1'000);
      return 0;
    };
    EXPECT_AIACC(aiacc_kv_set_updater(kv, &slow));
    aiacc_attr_t brief{};
    brief.size = sizeof brief;
    brief.timeout_ms = 50;
    if (rank == 0) {
      expect(aiacc_kv_push(kv, name("w"), 10, value.data(), &brief, nullptr), AIACC_ERR_TIMEOUT,
             "a server of it has not answered");
      over = true;
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

TEST(KvEnds, AWorkerOfASyncStoreThatFreesItIsNamedToThoseThatPushMoreOften) {
  const World world(3);
  world.run([&](int rank, aiacc_group_t group) {
    aiacc_kv_attr_t attr = kv_attributes(AIACC_KV_SYNC);
    attr.timeout_ms = 100'000;
    const aiacc_kv_t kv = make(group, {0, 2}, {0, 1, 2}, attr);
    Values value(10, 1.0f);
    begin(kv, name("w"), value);
    EXPECT_AIACC(aiacc_kv_push(kv, name("w"), 10, value.data(), nullptr, nullptr));
    if (rank != 1) {
      expect(aiacc_kv_push(kv, name("w"), 10, value.data(), nullptr, nullptr), AIACC_ERR_ABORTED, "rank 1 frees");
      EXPECT_EQ(aiacc_last_error_rank(), 1);
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

// A server that leaves without waiting for the others, as one does whose time-out is over or who has lost a rank.
TEST(KvEnds, ACallAfterItsServerHasFreedTheStoreSaysSo) {
  with_time_out([](std::int64_t ms) {
    const World world(2);
    std::atomic<int> begun{0};
    std::atomic<bool> freed{false};
    std::atomic<bool> made{true};
    world.run([&](int rank, aiacc_group_t group) {
      aiacc_kv_attr_t attr = kv_attributes(AIACC_KV_ASYNC);
      attr.name = "short";
      attr.timeout_ms = rank == 1 ? ms : 100'000;
      const aiacc_kv_t kv = made_in_time(group, {1}, {0, 1}, attr);
      if (kv == AIACC_NULL) {
        made = false;
        return;
      }
      const Values value(10, 1.0f);
      const aiacc_status_t status =
          aiacc_kv_init(kv, name("w"), AIACC_FLOAT32, value.size(), 1, value.data(), &kPatient, nullptr);
      EXPECT_TRUE(status == AIACC_OK || !made) << aiacc_last_error();
      for (++begun; begun < 2 && made;) usleep(1'000);
      if (rank == 1) {
        aiacc_kv_free(kv);
        freed = true;
      }
      while (!freed && made) usleep(1'000);
      if (!made) return;
      if (rank == 0) {
        expect(aiacc_kv_push(kv, name("w"), 10, value.data(), nullptr, nullptr), AIACC_ERR_ABORTED,
               "rank 1 has freed the key-value store 'short'");
      }
      EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
    });
    return made.load();
  });
}

// A rank that leaves without waiting for the others is not waited for: by a round, by the steps of a bounded store, for the first value
// of a key, and as a server; whether a call waits already when it leaves, or comes later.
struct Left {
  int mode;
  std::vector<int> servers;
  bool before;  // the calls are made before the rank leaves
};

void PrintTo(const Left& left, std::ostream* out) {
  *out << "mode " << left.mode << ", " << left.servers.size() << " servers from " << left.servers.front()
       << (left.before ? ", before" : ", after");
}

class KvEndsLeft : public ::testing::TestWithParam<Left> {};

TEST_P(KvEndsLeft, WhatNeedsARankThatHasFreedTheStoreSaysSo) {
  const Left& its = GetParam();
  with_time_out([&its](std::int64_t ms) {
    const World world(2);
    std::atomic<bool> called{false}, freed{false};
    std::atomic<bool> made{true};
    world.run([&](int rank, aiacc_group_t group) {
      aiacc_kv_attr_t attr = kv_attributes(its.mode);
      attr.name = "left";
      attr.timeout_ms = rank == 0 ? ms : 100'000;
      const aiacc_kv_t kv = made_in_time(group, its.servers, {0, 1}, attr);
      if (kv == AIACC_NULL) made = false;
      const Values value(200'000, 1.0f);  // of all servers, and long enough for allreduces
      const auto begun = [&](int64_t key, aiacc_request_t* request) {
        return aiacc_kv_init(kv, number(key), AIACC_FLOAT32, value.size(), 1, value.data(), &kPatient, request);
      };
      const auto push = [&](aiacc_request_t* request) {
        return aiacc_kv_push(kv, number(1), value.size(), value.data(), nullptr, request);
      };
      if (made && begun(1, nullptr) != AIACC_OK) made = false;
      std::vector<aiacc_request_t> requests(its.before && rank == 1 && made ? 3 : 0);
      if (!requests.empty()) {
        EXPECT_AIACC(begun(2, &requests[0]));
        EXPECT_AIACC(push(&requests[1]));
        EXPECT_AIACC(push(&requests[2]));
      }
      if (rank == 1) called = true;
      while (!called) usleep(1'000);
      if (rank == 0) {
        if (kv != AIACC_NULL) aiacc_kv_free(kv);
        freed = true;
      }
      while (rank == 1 && requests.empty() && !freed) usleep(1'000);
      if (!made) {
        for (const aiacc_request_t request : requests) aiacc_wait(request);
        return;
      }
      if (rank == 0) return;
      const char* const why = "the key-value store 'left'";
      const auto expect_left = [&](aiacc_status_t status) {
        expect(status, AIACC_ERR_ABORTED, why);
        EXPECT_EQ(aiacc_last_error_rank(), 0);
      };
      const bool served = its.servers.front() == 0;
      const bool needed = its.mode == AIACC_KV_SYNC || (its.mode == AIACC_KV_BOUNDED && served && !its.before);
      const auto expect_pushed = [&](aiacc_status_t status) {
        if (needed) return expect_left(status);
        // Without waiting for others it may have been applied in time.
        if (served && status != AIACC_OK) return expect_left(status);
        EXPECT_AIACC(status);
      };
      expect_left(its.before ? aiacc_wait(requests[0]) : begun(2, nullptr));
      for (std::size_t i = 0; i < 2; ++i) expect_pushed(its.before ? aiacc_wait(requests[i + 1]) : push(nullptr));
    });
    return made.load();
  });
}

std::vector<Left> ways_to_leave() {
  std::vector<Left> ways;
  for (const int mode : {AIACC_KV_SYNC, AIACC_KV_ASYNC, AIACC_KV_BOUNDED}) {
    for (const std::vector<int>& servers : std::vector<std::vector<int>>{{0}, {1}, {0, 1}}) {
      for (const bool before : {false, true}) ways.push_back({mode, servers, before});
    }
  }
  return ways;
}

INSTANTIATE_TEST_SUITE_P(All, KvEndsLeft, ::testing::ValuesIn(ways_to_leave()));

// Rank 2 only serves, and ends with the group, which rank 0 does not wait for.
TEST(KvEnds, ACallAfterARankThatOnlyServesHasLeftSaysSo) {
  with_time_out([](std::int64_t ms) {
    const World world(3);
    std::atomic<bool> freed{false};
    std::atomic<int> begun{0};
    std::atomic<bool> made{true};
    world.run([&](int rank, aiacc_group_t group) {
      aiacc_kv_attr_t attr = kv_attributes(AIACC_KV_ASYNC);
      attr.name = "served";
      attr.timeout_ms = rank == 0 ? ms : 100'000;
      const aiacc_kv_t kv = made_in_time(group, {2}, {0, 1}, attr);
      if (kv == AIACC_NULL) made = false;
      const Values value(10, 1.0f);
      if (made && rank != 2 &&
          aiacc_kv_init(kv, number(1), AIACC_FLOAT32, value.size(), 1, value.data(), &kPatient, nullptr) != AIACC_OK)
        made = false;
      for (++begun; begun < 3;) usleep(1'000);
      if (kv != AIACC_NULL && rank != 1) {
        const aiacc_status_t status = aiacc_kv_free(kv);
        EXPECT_TRUE(!made || (status == AIACC_OK) == (rank == 0)) << aiacc_last_error();
      }
      if (rank == 2) freed = true;
      while (rank == 1 && !freed) usleep(1'000);
      if (!made || rank != 1) return;
      expect(aiacc_kv_push(kv, number(1), value.size(), value.data(), nullptr, nullptr), AIACC_ERR_ABORTED,
             "rank 2 has freed the key-value store 'served' and did not wait");
      EXPECT_EQ(aiacc_last_error_rank(), 2);
    });
    return made.load();
  });
}

// Rank 1 leaves stores to its context. Rank 0 ends those without a time-out only after it has heard that rank 1 leaves the others,
// one of which comes later in the order of the handles.
TEST(KvEnds, EachStoreOfAContextThatEndsIsLeftAtItsOwnTime) {
  for (const int replicas : {1, 2}) {
    with_time_out([replicas](std::int64_t ms) {
      World world(2);
      std::atomic<bool> made{true}, ordered{false};
      world.run([&](int rank, aiacc_group_t group) {
        std::vector<aiacc_kv_t> endless, brief;
        const Values value(10, 1.0f);
        while (made && !ordered) {
          ASSERT_LT(brief.size(), std::size_t{100});
          aiacc_kv_attr_t attr = kv_attributes();
          attr.timeout_ms = -1;
          attr.replicas = replicas;
          endless.push_back(made_in_time(group, {0, 1}, {0, 1}, attr));
          attr.timeout_ms = rank == 1 ? ms : 100'000;
          attr.replicas = 1;
          brief.push_back(made_in_time(group, {0, 1}, {0, 1}, attr));
          if (brief.back() == AIACC_NULL) made = false;
          const auto begun = [&] {
            return aiacc_kv_init(brief.back(), number(1), AIACC_FLOAT32, 10, 1, value.data(), nullptr, nullptr);
          };
          if (made && begun() != AIACC_OK) made = false;
          if (rank == 1)
            ordered = *std::min_element(endless.begin(), endless.end()) < *std::max_element(brief.begin(), brief.end());
          EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
        }
        for (std::size_t i = 0; i < brief.size() && rank == 0 && made; ++i) {
          const aiacc_status_t status = aiacc_kv_push(brief[i], number(1), 10, value.data(), nullptr, nullptr);
          EXPECT_TRUE(!made || status == AIACC_ERR_ABORTED) << aiacc_last_error();
          EXPECT_TRUE(!made || aiacc_last_error_rank() == 1) << aiacc_last_error();
        }
        EXPECT_AIACC(aiacc_context_destroy(world.context(rank)));
      });
      world.forget();
      return made.load();
    });
  }
}

TEST(KvEnds, WhatIsOutstandingEndsWithTheStore) {
  const World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group);
    const Values value(10, 1.0f);
    begin(kv, name("w"), value);
    aiacc_request_t request = AIACC_NULL;
    if (rank == 0) {
      EXPECT_AIACC(aiacc_kv_push(kv, name("w"), 10, value.data(), nullptr, &request));
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
    if (rank == 0) expect(aiacc_wait(request), AIACC_ERR_ABORTED, "the key-value store");
  });
}

// Contexts find what is left by its handles, whose order is not that of making where handles were freed before.
TEST(KvEnds, StoresThatAreLeftEndWithTheirContextsWhateverTheOrderOfTheirHandles) {
  constexpr std::size_t kMost = 1'000;
  const World world(2);
  std::array<std::vector<aiacc_kv_t>, 2> left;
  const auto order = [&left](std::size_t rank) {
    std::vector<std::size_t> places(left[rank].size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    std::sort(places.begin(), places.end(),
              [&](std::size_t a, std::size_t b) { return left[rank][a] < left[rank][b]; });
    return places;
  };
  while (order(0) == order(1)) {
    ASSERT_LT(left[0].size(), kMost);
    world.run([&](int rank, aiacc_group_t group) {
      if (rank == 0) {
        const aiacc_group_t own = group_of(group, {0});
        const aiacc_kv_t freed = make(own);
        EXPECT_AIACC(aiacc_kv_free(freed));
        EXPECT_AIACC(aiacc_group_free(own));
      }
      EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
      for (const int replicas : {1, 2}) {
        aiacc_kv_attr_t attr = kv_attributes(AIACC_KV_ASYNC);
        attr.replicas = replicas;
        attr.timeout_ms = -1;
        left[static_cast<std::size_t>(rank)].push_back(make(group, attr));
      }
    });
  }
}  // the contexts end

}  // namespace
}  // namespace aiacc
