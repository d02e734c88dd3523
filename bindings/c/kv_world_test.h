// What tests of the key-value store through the C ABI have in common: stores of threads that are ranks, and values in them.
#pragma once

#include <cstdint>
#include <vector>

#include "include/aiacc/kv.h"
#include "tests/abi_world.h"

namespace aiacc::kv_test {

using Values = std::vector<float>;

inline aiacc_kv_key_t number(int64_t key) { return {nullptr, key}; }
inline aiacc_kv_key_t name(const char* key) { return {key, 0}; }

inline aiacc_kv_attr_t kv_attributes(int mode = AIACC_KV_SYNC) {
  aiacc_kv_attr_t attr{};
  attr.size = sizeof attr;
  attr.mode = mode;
  attr.split_elements = 1000;
  return attr;
}

inline aiacc_kv_t make(aiacc_group_t world, aiacc_kv_attr_t attr = kv_attributes()) {
  aiacc_kv_t kv = AIACC_NULL;
  EXPECT_AIACC(aiacc_kv_create(world, &attr, &kv));
  return kv;
}

// With these servers and workers. AIACC_NULL if a rank did not come within the time-out.
inline aiacc_kv_t made_in_time(aiacc_group_t world, const std::vector<int>& servers, const std::vector<int>& workers,
                               aiacc_kv_attr_t attr) {
  attr.servers = servers.data();
  attr.n_servers = servers.size();
  attr.workers = workers.data();
  attr.n_workers = workers.size();
  aiacc_kv_t kv = AIACC_NULL;
  const aiacc_status_t status = aiacc_kv_create(world, &attr, &kv);
  EXPECT_TRUE(status == AIACC_OK || status == AIACC_ERR_TIMEOUT || status == AIACC_ERR_ABORTED) << aiacc_last_error();
  return kv;
}

inline aiacc_kv_t make(aiacc_group_t world, const std::vector<int>& servers, const std::vector<int>& workers,
                       aiacc_kv_attr_t attr) {
  const aiacc_kv_t kv = made_in_time(world, servers, workers, attr);
  EXPECT_NE(kv, AIACC_NULL) << aiacc_last_error();
  return kv;
}

inline void set_updater(aiacc_kv_t kv, int kind, double rate = 0, double momentum = 0) {
  aiacc_kv_updater_t updater{};
  updater.size = sizeof updater;
  updater.kind = kind;
  updater.rate = rate;
  updater.momentum = momentum;
  EXPECT_AIACC(aiacc_kv_set_updater(kv, &updater));
}

inline void begin(aiacc_kv_t kv, aiacc_kv_key_t key, const Values& value) {
  EXPECT_AIACC(aiacc_kv_init(kv, key, AIACC_FLOAT32, value.size(), 1, value.data(), nullptr, nullptr));
}

inline Values pulled(aiacc_kv_t kv, aiacc_kv_key_t key, std::size_t count) {
  Values value(count, -1.0f);
  EXPECT_AIACC(aiacc_kv_pull(kv, key, count, value.data(), nullptr, nullptr));
  return value;
}

}  // namespace aiacc::kv_test
