// Key-value stores that end, through the C ABI with threads as ranks: who waits for whom, and what calls are told that come too late or
// outlive their store.
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "bindings/c/kv_world_test.h"
#include "include/aiacc/kv.h"
#include "tests/abi_world.h"

namespace aiacc {
namespace {

using namespace kv_test;
using test::expect;
using test::World;

// A rank that only serves waits for as long as the others train, whatever the time-out, and is told if they cannot end in order.
TEST(KvEnds, WhoOnlyServesWaitsForTheWorkers) {
  for (const bool in_order : {true, false}) {
    const World world(3);
    std::atomic<int> trained{0};
    world.run([&](int rank, aiacc_group_t group) {
      aiacc_kv_attr_t attr = kv_attributes(AIACC_KV_ASYNC);
      attr.timeout_ms = 500;
      const aiacc_kv_t kv = make(group, {2}, {0, 1}, attr);
      if (rank == 2) {
        const aiacc_status_t status = aiacc_kv_free(kv);
        EXPECT_EQ(status == AIACC_OK, in_order) << aiacc_last_error();
        return;
      }
      if (rank == 1 || in_order) usleep(900'000);
      if (in_order) {
        begin(kv, number(1), {1, 2});
        for (++trained; trained < 2;) usleep(1'000);
      }
      EXPECT_AIACC(aiacc_kv_free(kv));  // the one that comes first waits for half a second
    });
  }
}

TEST(KvEnds, ALatePushToAnAsyncStoreIsNotToldOfOtherWorkers) {
  const World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group, {1}, {0, 1}, kv_attributes(AIACC_KV_ASYNC));
    const Values value(10, 1.0f);
    begin(kv, name("w"), value);
    aiacc_kv_updater_t slow{};
    slow.size = sizeof slow;
    slow.kind = AIACC_KV_CALLBACK;
    slow.update = [](void*, aiacc_kv_key_t, std::size_t, std::size_t, aiacc_dtype_t, const void*, void*) {
      usleep(300'000);
      return 0;
    };
    EXPECT_AIACC(aiacc_kv_set_updater(kv, &slow));
    aiacc_attr_t brief{};
    brief.size = sizeof brief;
    brief.timeout_ms = 50;
    if (rank == 0) {
      expect(aiacc_kv_push(kv, name("w"), 10, value.data(), &brief, nullptr), AIACC_ERR_TIMEOUT,
             "a server of it has not answered");
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

// A server that leaves without waiting for the others, as one does whose time-out is over or who has lost a rank.
TEST(KvEnds, ACallAfterItsServerHasFreedTheStoreSaysSo) {
  const World world(2);
  std::atomic<bool> freed{false};
  world.run([&](int rank, aiacc_group_t group) {
    aiacc_kv_attr_t attr = kv_attributes(AIACC_KV_ASYNC);
    attr.name = "short";
    attr.timeout_ms = rank == 1 ? 100 : 10'000;
    const aiacc_kv_t kv = make(group, {1}, {0, 1}, attr);
    const Values value(10, 1.0f);
    begin(kv, name("w"), value);
    if (rank == 1) {
      aiacc_kv_free(kv);
      freed = true;
      EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
      return;
    }
    while (!freed) usleep(1'000);
    expect(aiacc_kv_push(kv, name("w"), 10, value.data(), nullptr, nullptr), AIACC_ERR_ABORTED,
           "rank 1 has freed the key-value store 'short' already");
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
  });
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
    if (rank == 0) expect(aiacc_wait(request), AIACC_ERR_ABORTED, "was freed");
  });
}

}  // namespace
}  // namespace aiacc
