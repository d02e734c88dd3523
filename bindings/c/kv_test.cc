// The key-value store through the C ABI, with threads as ranks: values against a sequential model, and what is refused.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/c/kv_world_test.h"
#include "include/aiacc/kv.h"
#include "tests/abi_world.h"

namespace aiacc {
namespace {

using namespace kv_test;
using test::expect;
using test::World;

class KvStores : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, KvStores, ::testing::Values(1, 2, 3, 4));

TEST_P(KvStores, SyncPullsSeeTheRoundsThatTheyFollow) {
  const World world(GetParam());
  const auto n = static_cast<float>(GetParam());
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group);
    for (const std::size_t count : {std::size_t{1}, std::size_t{999}, std::size_t{100'000}, std::size_t{0}}) {
      const auto key = number(static_cast<int64_t>(count));
      begin(kv, key, Values(count, static_cast<float>(rank + 7)));
      EXPECT_EQ(pulled(kv, key, count), Values(count, 7.0f)) << "the first worker's";
      const Values mine(count, static_cast<float>(rank + 1));
      EXPECT_AIACC(aiacc_kv_push(kv, key, count, mine.data(), nullptr, nullptr));
      EXPECT_EQ(pulled(kv, key, count), Values(count, n * (n + 1) / 2)) << "the sum of all";
    }
    set_updater(kv, AIACC_KV_SGD, 0.5, 0.5);
    begin(kv, name("7"), {1, 2, 3});
    float value = 1, moved = 0;
    for (int step = 0; step < 4; ++step) {
      const Values gradient(3, static_cast<float>(step + rank));
      Values after(3);
      EXPECT_AIACC(aiacc_kv_pushpull(kv, name("7"), 3, gradient.data(), after.data(), nullptr, nullptr));
      value += moved = 0.5f * moved - 0.5f * (n * static_cast<float>(step) + n * (n - 1) / 2);
      EXPECT_EQ(after, (Values{value, value + 1, value + 2})) << step;
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

TEST_P(KvStores, RequestsNeedNoWaitingInBetween) {
  const World world(GetParam());
  const int n = static_cast<int>(GetParam());
  constexpr std::size_t kCount = 5000;
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group);
    set_updater(kv, AIACC_KV_SUM);
    std::vector<aiacc_request_t> requests;
    const Values zero(kCount, 0.0f), mine(kCount, static_cast<float>(rank + 1));
    std::vector<Values> read(20, Values(kCount));
    const auto started = [&](aiacc_status_t status) { ASSERT_EQ(status, AIACC_OK) << aiacc_last_error(); };
    for (int64_t key = 0; key < 4; ++key) {
      requests.push_back(AIACC_NULL);
      started(aiacc_kv_init(kv, number(key), AIACC_FLOAT32, kCount, 1, zero.data(), nullptr, &requests.back()));
    }
    for (std::size_t step = 0; step < 5; ++step) {
      for (std::size_t i = 0; i < 4; ++i) {
        const auto key = static_cast<int64_t>((i + static_cast<std::size_t>(rank)) % 4);  // each in an order of its own
        requests.push_back(AIACC_NULL);
        started(aiacc_kv_push(kv, number(key), kCount, mine.data(), nullptr, &requests.back()));
        requests.push_back(AIACC_NULL);
        started(aiacc_kv_pull(kv, number(key), kCount, read[step * 4 + static_cast<std::size_t>(key)].data(), nullptr,
                              &requests.back()));
      }
    }
    EXPECT_AIACC(aiacc_wait_all(requests.size(), requests.data(), AIACC_FOREVER));
    for (std::size_t i = 0; i < read.size(); ++i) {
      const int sum = (static_cast<int>(i) / 4 + 1) * n * (n + 1) / 2;
      EXPECT_EQ(read[i], Values(kCount, static_cast<float>(sum))) << i;
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

TEST_P(KvStores, RowsArePushedAndPulledAlone) {
  const World world(GetParam());
  const auto n = static_cast<float>(GetParam());
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group);
    constexpr std::size_t kRows = 1000, kEach = 5;
    const Values first(kRows * kEach, 1.0f);
    EXPECT_AIACC(aiacc_kv_init(kv, name("rows"), AIACC_FLOAT32, kRows, kEach, first.data(), nullptr, nullptr));
    set_updater(kv, AIACC_KV_SUM);
    const std::vector<int64_t> push{999, rank, 3, 3};
    const Values gradient(push.size() * kEach, 2.0f);
    EXPECT_AIACC(aiacc_kv_push_rows(kv, name("rows"), push.size(), push.data(), gradient.data(), nullptr, nullptr));
    const std::vector<int64_t> pull{3, 500, 999, 3};
    Values rows(pull.size() * kEach);
    EXPECT_AIACC(aiacc_kv_pull_rows(kv, name("rows"), pull.size(), pull.data(), rows.data(), nullptr, nullptr));
    const float third = 1 + 4 * n + (n > 3 ? 2.0f : 0.0f);
    for (std::size_t i = 0; i < kEach; ++i) {
      EXPECT_EQ(rows[i], third);
      EXPECT_EQ(rows[kEach + i], 1.0f);
      EXPECT_EQ(rows[2 * kEach + i], 1 + 2 * n);
      EXPECT_EQ(rows[3 * kEach + i], third);
    }
    const int64_t beyond = 1000, below = -1;
    expect(aiacc_kv_pull_rows(kv, name("rows"), 1, &beyond, rows.data(), nullptr, nullptr), AIACC_ERR_INVALID_ARGUMENT,
           "row 1000 of key 'rows': it has 1000 rows");
    expect(aiacc_kv_pull_rows(kv, name("rows"), 1, &below, rows.data(), nullptr, nullptr), AIACC_ERR_INVALID_ARGUMENT,
           "row -1");
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

TEST_P(KvStores, PushesTravelIn16And2Bits) {
  const World world(GetParam());
  const auto n = static_cast<float>(GetParam());
  world.run([&](int, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group);
    begin(kv, name("w"), Values(5000, 0.0f));
    const auto sum_of = [&](const Values& gradient) {
      Values after(gradient.size());
      EXPECT_AIACC(aiacc_kv_pushpull(kv, name("w"), gradient.size(), gradient.data(), after.data(), nullptr, nullptr));
      return after;
    };
    EXPECT_AIACC(aiacc_kv_set_wire(kv, AIACC_KV_WIRE_FLOAT16, 0));
    EXPECT_EQ(sum_of(Values(5000, 1.0f + 1.0f / 4096)), Values(5000, n)) << "rounded to fp16, and summed in fp32";
    EXPECT_AIACC(aiacc_kv_set_wire(kv, AIACC_KV_WIRE_BFLOAT16, 0));
    EXPECT_EQ(sum_of(Values(5000, 3.0f)), Values(5000, 3 * n));
    EXPECT_AIACC(aiacc_kv_set_wire(kv, AIACC_KV_WIRE_2BIT, 0.25));
    EXPECT_EQ(sum_of(Values(5000, 0.375f)), Values(5000, 0.25f * n));
    EXPECT_EQ(sum_of(Values(5000, 0.125f)), Values(5000, 0.25f * n)) << "with the residual";
    EXPECT_EQ(sum_of(Values(5000, -0.125f)), Values(5000, 0.0f));
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

// Each rank's pushes and those of others sum up, whatever the order.
TEST_P(KvStores, AsyncAppliesEachPush) {
  const World world(GetParam());
  const auto n = static_cast<float>(GetParam());
  for (const int mode : {AIACC_KV_ASYNC, AIACC_KV_BOUNDED}) {
    world.run([&](int rank, aiacc_group_t group) {
      aiacc_kv_attr_t attr = kv_attributes(mode);
      attr.staleness = 2;
      const aiacc_kv_t kv = make(group, attr);
      set_updater(kv, AIACC_KV_SUM);
      begin(kv, number(1), {0});
      float least = 0;
      for (int step = 0; step < 50; ++step) {
        const Values one{1.0f};
        EXPECT_AIACC(aiacc_kv_push(kv, number(1), 1, one.data(), nullptr, nullptr));
        const float now = pulled(kv, number(1), 1)[0];
        EXPECT_GE(now, least + 1) << "its own push is in it";
        if (mode == AIACC_KV_BOUNDED) {
          EXPECT_GE(now, static_cast<float>(step + 1) + (n - 1) * static_cast<float>(std::max(0, step + 1 - 2)));
        }
        least = now;
      }
      EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
      EXPECT_EQ(pulled(kv, number(1), 1)[0], 50 * n) << rank;
      EXPECT_AIACC(aiacc_kv_free(kv));
    });
  }
}

TEST_P(KvStores, AnUpdaterOfTheCallerRunsOnTheServers) {
  const World world(GetParam());
  const auto n = static_cast<float>(GetParam());
  std::atomic<int> failing{0};
  world.run([&](int, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group);
    begin(kv, name("w"), Values(2000, 1.0f));
    aiacc_kv_updater_t updater{};
    updater.size = sizeof updater;
    updater.kind = AIACC_KV_CALLBACK;
    struct Given {
      std::atomic<int>& result;
      aiacc_group_t group;
    } given{failing, group};
    updater.arg = &given;
    updater.update = [](void* arg, aiacc_kv_key_t key, size_t first, size_t count, aiacc_dtype_t dtype,
                        const void* gradient, void* value) {
      EXPECT_STREQ(key.name, "w");
      EXPECT_EQ(dtype, AIACC_FLOAT32);
      const Given& its = *static_cast<const Given*>(arg);
      expect(aiacc_barrier(its.group, nullptr, nullptr), AIACC_ERR_INVALID_STATE, "would block");
      for (size_t i = 0; i < count; ++i)
        static_cast<float*>(value)[i] += static_cast<const float*>(gradient)[i] * static_cast<float>(first + i);
      return its.result.load();
    };
    EXPECT_AIACC(aiacc_kv_set_updater(kv, &updater));
    const Values gradient(2000, 1.0f);
    EXPECT_AIACC(aiacc_kv_push(kv, name("w"), 2000, gradient.data(), nullptr, nullptr));
    const Values after = pulled(kv, name("w"), 2000);
    for (std::size_t i = 0; i < after.size(); ++i) ASSERT_EQ(after[i], 1 + n * static_cast<float>(i));
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
    failing = 5;
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
    expect(aiacc_kv_push(kv, name("w"), 2000, gradient.data(), nullptr, nullptr), AIACC_ERR_ABORTED,
           "the updater returned 5 for key 'w'");
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
    updater.update = [](void*, aiacc_kv_key_t, size_t, size_t, aiacc_dtype_t, const void*, void*) -> int {
      throw std::runtime_error("out of patience");
    };
    EXPECT_AIACC(aiacc_kv_set_updater(kv, &updater));
    expect(aiacc_kv_push(kv, name("w"), 2000, gradient.data(), nullptr, nullptr), AIACC_ERR_ABORTED,
           "the updater threw 'out of patience' for key 'w'");
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

// Training goes on from a saved state with the bits of one that was not interrupted.
TEST_P(KvStores, SavedStateGoesOnWhereItWas) {
  const World world(GetParam());
  const std::string path = ::testing::TempDir() + "/aiacc-kv-state";
  world.run([&](int rank, aiacc_group_t group) {
    const Values first(3000, 1.0f), gradient(3000, 0.3f);
    const auto begun = [&](const char* store) {
      aiacc_kv_attr_t attr = kv_attributes();
      attr.name = store;
      const aiacc_kv_t kv = make(group, attr);
      begin(kv, name("w"), first);
      set_updater(kv, AIACC_KV_ADAM, 0.1);
      return kv;
    };
    const auto step = [&](aiacc_kv_t kv) {
      Values after(3000);
      EXPECT_AIACC(aiacc_kv_pushpull(kv, name("w"), 3000, gradient.data(), after.data(), nullptr, nullptr));
      return after;
    };
    const aiacc_kv_t one = begun("one");
    step(one);
    step(one);
    EXPECT_AIACC(aiacc_kv_save(one, path.c_str()));
    const Values want = step(one);
    const aiacc_kv_t other = begun("other");
    EXPECT_AIACC(aiacc_kv_load(other, path.c_str()));
    EXPECT_EQ(step(other), want);
    begin(other, name("another"), first);
    const std::string own = path + "." + std::to_string(rank);
    expect(aiacc_kv_load(other, path.c_str()), AIACC_ERR_INVALID_ARGUMENT, "initialise the same keys first");
    EXPECT_EQ(truncate(own.c_str(), 100), 0);
    expect(aiacc_kv_load(one, path.c_str()), AIACC_ERR_INVALID_ARGUMENT,
           (own + ": it is damaged or incomplete").c_str());
    EXPECT_EQ(unlink(own.c_str()), 0);
    expect(aiacc_kv_load(one, path.c_str()), AIACC_ERR_SYSTEM, own.c_str());
    EXPECT_AIACC(aiacc_kv_free(one));
    EXPECT_AIACC(aiacc_kv_free(other));
  });
}

TEST(KvStore, ServersAndWorkersMayBeSomeRanks) {
  const World world(4);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group, {1, 3}, {0, 2}, kv_attributes());
    int roles[4] = {7, 7, 7, 7};
    EXPECT_AIACC(aiacc_kv_roles(kv, &roles[0], &roles[1], &roles[2], &roles[3]));
    EXPECT_EQ(roles[0], rank % 2 == 0 ? rank / 2 : -1);
    EXPECT_EQ(roles[2], rank % 2 == 1 ? rank / 2 : -1);
    EXPECT_TRUE(roles[1] == 2 && roles[3] == 2);
    EXPECT_AIACC(aiacc_kv_roles(kv, nullptr, nullptr, nullptr, nullptr));
    if (rank % 2 == 0) {
      begin(kv, number(-1), Values(3000, 1.0f));
      const Values gradient(3000, static_cast<float>(rank + 1));
      EXPECT_AIACC(aiacc_kv_push(kv, number(-1), 3000, gradient.data(), nullptr, nullptr));
      EXPECT_EQ(pulled(kv, number(-1), 3000), Values(3000, 4.0f));
    } else {
      const Values none(1);
      expect(aiacc_kv_push(kv, number(-1), 1, none.data(), nullptr, nullptr), AIACC_ERR_INVALID_STATE, "no worker");
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

TEST_P(KvStores, ReplicasLeaveValuesAsTheyAre) {
  if (GetParam() < 2) return;
  const World world(GetParam());
  const auto n = static_cast<float>(GetParam());
  world.run([&](int, aiacc_group_t group) {
    aiacc_kv_attr_t attr = kv_attributes();
    attr.replicas = 2;
    const aiacc_kv_t kv = make(group, attr);
    constexpr std::size_t kCount = 300'000;
    begin(kv, name("w"), Values(kCount, 1.0f));
    set_updater(kv, AIACC_KV_SGD, 0.5, 0.5);
    Values gradient(kCount, 1.0f), out(kCount);
    EXPECT_AIACC(aiacc_kv_pushpull(kv, name("w"), kCount, gradient.data(), out.data(), nullptr, nullptr));
    EXPECT_EQ(out, Values(kCount, 1 - 0.5f * n));
    const std::vector<int64_t> rows{7, kCount - 1};
    EXPECT_AIACC(aiacc_kv_push_rows(kv, name("w"), 2, rows.data(), gradient.data(), nullptr, nullptr));
    EXPECT_AIACC(aiacc_kv_pull_rows(kv, name("w"), 2, rows.data(), out.data(), nullptr, nullptr));
    EXPECT_EQ(out[1], 1 - 1.25f * n);
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

TEST(KvStore, WrongUsesAreRefusedAndLeaveTheStoreUsable) {
  const World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    aiacc_kv_t kv = AIACC_NULL;
    aiacc_kv_attr_t other = kv_attributes();
    other.staleness = static_cast<uint64_t>(rank);
    expect(aiacc_kv_create(group, &other, &kv), AIACC_ERR_MISMATCH, "ranks 0 and 1");
    other = kv_attributes(17);
    expect(aiacc_kv_create(group, &other, &kv), AIACC_ERR_INVALID_ARGUMENT, "mode in aiacc_kv_attr_t is 17");
    other = kv_attributes();
    other.traffic_class = 5;
    expect(aiacc_kv_create(group, &other, &kv), AIACC_ERR_INVALID_ARGUMENT, "traffic_class in aiacc_kv_attr_t is 5");
    other.traffic_class = AIACC_TRAFFIC_BACKGROUND;
    other.replicas = 3;
    expect(aiacc_kv_create(group, &other, &kv), AIACC_ERR_INVALID_ARGUMENT, "replicas in aiacc_kv_attr_t is 3");
    const int server = 0;
    other.replicas = 2;
    other.n_servers = 1;
    other.servers = &server;
    expect(aiacc_kv_create(group, &other, &kv), AIACC_ERR_INVALID_ARGUMENT, "two need two servers");
    kv = make(group);
    Values value(10, 1.0f);
    expect(aiacc_kv_push(kv, name("w"), 10, value.data(), nullptr, nullptr), AIACC_ERR_INVALID_STATE,
           "key 'w' was not initialised");
    begin(kv, name("w"), value);
    expect(aiacc_kv_init(kv, name("w"), AIACC_FLOAT32, 10, 1, value.data(), nullptr, nullptr), AIACC_ERR_INVALID_STATE,
           "initialised already");
    expect(aiacc_kv_push(kv, name("w"), 11, value.data(), nullptr, nullptr), AIACC_ERR_INVALID_ARGUMENT,
           "the gradient has 11 elements, and key 'w' is 10 fp32");
    expect(aiacc_kv_pull(kv, name(""), 1, value.data(), nullptr, nullptr), AIACC_ERR_INVALID_ARGUMENT, "is empty");
    const std::size_t elements = rank == 0 ? 10 : 9;
    const aiacc_status_t shaped =
        aiacc_kv_init(kv, name("s"), AIACC_FLOAT32, elements, 1, value.data(), nullptr, nullptr);
    if (rank == 0) {
      EXPECT_EQ(shaped, AIACC_OK);
    } else {
      expect(shaped, AIACC_ERR_MISMATCH, "key 's' is 10 fp32 on rank 0, and 9 fp32 on rank 1");
    }
    const aiacc_dtype_t type = rank == 0 ? AIACC_FLOAT32 : AIACC_INT32;
    const aiacc_status_t status = aiacc_kv_init(kv, name("t"), type, 10, 1, value.data(), nullptr, nullptr);
    if (rank == 0) {
      EXPECT_EQ(status, AIACC_OK);
    } else {
      expect(status, AIACC_ERR_MISMATCH, "key 't' is 10 fp32 on rank 0, and 10 int32 on rank 1");
    }
    EXPECT_AIACC(aiacc_kv_pushpull(kv, name("w"), 10, value.data(), value.data(), nullptr, nullptr));
    EXPECT_EQ(value, Values(10, 2.0f));
    aiacc_attr_t soon{};
    soon.size = sizeof soon;
    soon.timeout_ms = 50;
    if (rank == 0)
      expect(aiacc_kv_push(kv, name("w"), 10, value.data(), &soon, nullptr), AIACC_ERR_TIMEOUT, "a push to key 'w'");
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));  // who frees the store ends the push
    EXPECT_AIACC(aiacc_kv_free(kv));
    expect(aiacc_kv_push(kv, name("w"), 10, value.data(), nullptr, nullptr), AIACC_ERR_INVALID_HANDLE,
           "does not exist any more");
  });
}

}  // namespace
}  // namespace aiacc
