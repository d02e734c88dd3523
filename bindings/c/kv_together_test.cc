// Pushes and pulls of long values through the C ABI, with threads as ranks: the same values whether workers or servers sum them.
#include <algorithm>
#include <vector>

#include "bindings/c/kv_world_test.h"
#include "include/aiacc/kv.h"
#include "tests/abi_world.h"

namespace aiacc {
namespace {

using kv_test::set_updater;
using kv_test::Values;
using test::expect;
using test::World;

constexpr std::size_t kLong = 200'000;

class KvTogether : public ::testing::TestWithParam<std::size_t> {
 protected:
  static aiacc_kv_t make(aiacc_group_t group, aiacc_kv_attr_t attr = {}) {
    attr.size = sizeof attr;
    aiacc_kv_t kv = AIACC_NULL;
    EXPECT_AIACC(aiacc_kv_create(group, &attr, &kv));
    return kv;
  }
  static void begin(aiacc_kv_t kv, int64_t key) {
    const Values zeros(kLong);
    EXPECT_AIACC(aiacc_kv_init(kv, {nullptr, key}, AIACC_FLOAT32, kLong, 1, zeros.data(), nullptr, nullptr));
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, KvTogether, ::testing::Values(1, 2, 3, 4));

TEST_P(KvTogether, WorkersMayCallInAnyOrder) {
  const World world(GetParam());
  const int n = static_cast<int>(GetParam());
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group);
    for (int64_t key = 0; key < 4; ++key) begin(kv, key);
    for (int step = 0; step < 6; ++step) {
      const Values gradient(kLong, static_cast<float>(rank + step));
      std::vector<Values> read(4, Values(kLong, -1.0f));
      std::vector<aiacc_request_t> requests;
      for (int i = 0; i < 4; ++i) {
        const int64_t key = (i + rank) % 4;
        float* const out = read[static_cast<std::size_t>(key)].data();
        requests.push_back(AIACC_NULL);
        if (step % 2 == 0 || rank != n - 1) {
          EXPECT_AIACC(aiacc_kv_pushpull(kv, {nullptr, key}, kLong, gradient.data(), out, nullptr, &requests.back()));
          continue;
        }
        EXPECT_AIACC(aiacc_kv_push(kv, {nullptr, key}, kLong, gradient.data(), nullptr, &requests.back()));
        requests.push_back(AIACC_NULL);
        EXPECT_AIACC(aiacc_kv_pull(kv, {nullptr, key}, kLong, out, nullptr, &requests.back()));
      }
      EXPECT_AIACC(aiacc_wait_all(requests.size(), requests.data(), AIACC_FOREVER));
      const Values want(kLong, static_cast<float>(n * step) + static_cast<float>(n * (n - 1)) / 2);
      for (const Values& each : read) EXPECT_EQ(each, want) << step;
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

TEST_P(KvTogether, AnOptimizerTakesItsPlaceAndGoesAgain) {
  const World world(GetParam());
  const auto n = static_cast<float>(GetParam());
  world.run([&](int, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group);
    begin(kv, 1);
    const Values ones(kLong, 1.0f);
    Values out(kLong);
    float want = 0;
    for (const int kind : {AIACC_KV_ASSIGN, AIACC_KV_SUM, AIACC_KV_SUM, AIACC_KV_ASSIGN}) {
      set_updater(kv, kind);
      want = kind == AIACC_KV_SUM ? want + n : n;
      EXPECT_AIACC(aiacc_kv_pushpull(kv, {nullptr, 1}, kLong, ones.data(), out.data(), nullptr, nullptr));
      EXPECT_EQ(out, Values(kLong, want));
      const int64_t row = kLong - 1;
      float last = 0;
      EXPECT_AIACC(aiacc_kv_pull_rows(kv, {nullptr, 1}, 1, &row, &last, nullptr, nullptr));
      EXPECT_EQ(last, want);
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

// A rank that is neither a worker nor a server ends the call when the servers have their updater, but before all ranks know of it.
TEST_P(KvTogether, WorkersSumNothingWhenNobodyKnowsWhichUpdatersThereAre) {
  if (GetParam() < 2) return;
  const World world(GetParam());
  const int last = static_cast<int>(GetParam()) - 1;
  world.run([&](int rank, aiacc_group_t group) {
    aiacc_kv_attr_t attr{};
    std::vector<int> others;
    for (int other = 0; other < last; ++other) others.push_back(other);
    attr.n_servers = attr.n_workers = others.size();
    attr.servers = attr.workers = others.data();
    const aiacc_kv_t kv = make(group, attr);
    if (rank == last) {
      EXPECT_AIACC(aiacc_kv_load(kv, "/nonexistent"));  // as many barriers, and no server's file
      EXPECT_NE(aiacc_kv_save(kv, "/nonexistent"), AIACC_OK);
    } else {
      begin(kv, 1);
      aiacc_kv_updater_t updater{};
      updater.size = sizeof updater;
      updater.kind = AIACC_KV_SUM;
      expect(aiacc_kv_set_updater(kv, &updater), AIACC_ERR_MISMATCH, "barrier");
      const Values ones(kLong, 1.0f);
      for (int step = 1; step < 4; ++step) {
        Values out(kLong);
        EXPECT_AIACC(aiacc_kv_pushpull(kv, {nullptr, 1}, kLong, ones.data(), out.data(), nullptr, nullptr));
        EXPECT_EQ(out, Values(kLong, static_cast<float>(step * last)));
      }
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

TEST_P(KvTogether, AServerThatIsNoWorkerHasTheSums) {
  if (GetParam() < 3) return;
  const World world(GetParam());
  const int n = static_cast<int>(GetParam());
  world.run([&](int rank, aiacc_group_t group) {
    aiacc_kv_attr_t attr{};
    std::vector<int> workers;
    for (int worker = 1; worker < n; ++worker) workers.push_back(worker);
    const int server = 0;
    attr.n_servers = 1;
    attr.servers = &server;
    attr.n_workers = workers.size();
    attr.workers = workers.data();
    const aiacc_kv_t kv = make(group, attr);
    if (rank > 0) {
      begin(kv, 1);
      const Values gradient(kLong, static_cast<float>(rank));
      const Values want(kLong, static_cast<float>(n * (n - 1)) / 2);
      for (int step = 0; step < 3; ++step) {
        Values out(kLong), pulled(kLong);
        EXPECT_AIACC(aiacc_kv_pushpull(kv, {nullptr, 1}, kLong, gradient.data(), out.data(), nullptr, nullptr));
        EXPECT_AIACC(aiacc_kv_pull(kv, {nullptr, 1}, kLong, pulled.data(), nullptr, nullptr));
        EXPECT_EQ(out, want);
        EXPECT_EQ(pulled, want);
      }
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
  });
}

// A rank frees the store while its call waits for the others.
TEST_P(KvTogether, FreeingEndsWhatIsOutstanding) {
  if (GetParam() < 2) return;
  const World world(GetParam());
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_kv_t kv = make(group);
    begin(kv, 1);
    const Values ones(kLong, 1.0f);
    Values out(kLong);
    aiacc_request_t request = AIACC_NULL;
    if (rank == 0) {
      EXPECT_AIACC(aiacc_kv_pushpull(kv, {nullptr, 1}, kLong, ones.data(), out.data(), nullptr, &request));
    }
    EXPECT_AIACC(aiacc_kv_free(kv));
    if (rank == 0) expect(aiacc_wait(request), AIACC_ERR_ABORTED, "the key-value store");
  });
}

}  // namespace
}  // namespace aiacc
