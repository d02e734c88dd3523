// The arguments of the key-value store's calls, checked and in the store's own terms. Each function throws kInvalidArgument with a
// sentence that names the argument (bindings/c/arguments.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bindings/c/kv.h"

namespace aiacc::abi {

struct KvAttributes {
  kv::StoreOptions options;
  std::optional<TrafficClass> rounds;  // the class of those that the workers sum
  Duration timeout{};
};

// Where no servers and workers are given, those of the job (AIACC_KV_SERVERS).
KvAttributes read_kv_attr(const aiacc_kv_attr_t* attr, RealContext& context, Group& group);
std::string checked_key(const aiacc_kv_key_t& key);
kv::Encoding kv_encoding(int wire);
float checked_threshold(double threshold);
// `callback` gets the caller's function, which the store calls with `arg`.
kv::UpdaterOptions checked_updater(const aiacc_kv_updater_t* updater, KvEntry::Updater& callback, void* arg);

// -1: it is none of them.
int position_among(const std::vector<int>& ranks, int rank);

}  // namespace aiacc::abi
