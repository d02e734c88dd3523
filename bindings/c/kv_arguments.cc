#include "bindings/c/kv_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "bindings/c/arguments.h"
#include "bindings/c/sized.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/real_context.h"

namespace aiacc::abi {
namespace {

constexpr std::size_t kLongestStoreName = 200;
constexpr std::size_t kLongestKey = 1000;

std::vector<int> checked_ranks(const char* member, std::size_t n, const int* ranks, int size) {
  std::vector<int> checked;
  if (n == 0) {
    for (int rank = 0; rank < size; ++rank) checked.push_back(rank);
    return checked;
  }
  if (ranks == nullptr) refuse(fmt::format("{} in aiacc_kv_attr_t is NULL, but n_{} is {}", member, member, n));
  for (std::size_t i = 0; i < n; ++i) {
    if (ranks[i] < 0 || ranks[i] >= size || (i > 0 && ranks[i] <= ranks[i - 1]))
      refuse(fmt::format("{}[{}] in aiacc_kv_attr_t is {}: ranks ascend, from 0 to {}", member, i, ranks[i], size - 1));
    checked.push_back(ranks[i]);
  }
  return checked;
}

// The roles of the job, for a store that names none: its last ranks only serve. A group without both of them shares the work.
void take_roles_of_job(kv::StoreOptions& options, RealContext& context, Group& group) {
  const View& world = *context.world().team().view;
  if (const int servers = context.context().config().kv_servers; servers >= world.size()) {
    refuse(fmt::format("AIACC_KV_SERVERS is {}, and there {} {} rank{}: one at least is left to train", servers,
                       world.size() == 1 ? "is" : "are", world.size(), world.size() == 1 ? "" : "s"));
  }
  const int first_server = world.size() - context.context().config().kv_servers;
  std::vector<int> servers, workers;
  for (int rank = 0; rank < group.size(); ++rank) {
    const bool serves = world.rank_of(group.team().view->member(rank)) >= first_server;
    (serves ? servers : workers).push_back(rank);
  }
  if (servers.empty() || workers.empty()) return;
  options.servers = std::move(servers);
  options.workers = std::move(workers);
}

double checked_number(const char* member, double number, double otherwise) {
  if (!std::isfinite(number))
    refuse(fmt::format("{} in aiacc_kv_updater_t is {}: give a finite number", member, number));
  return number == 0 ? otherwise : number;
}

}  // namespace

std::string checked_key(const aiacc_kv_key_t& key) {
  if (key.name == nullptr) return kv::key_of(key.number);
  const std::size_t length = strnlen(key.name, kLongestKey + 1);
  if (length == 0) refuse("name in aiacc_kv_key_t is empty");
  if (length > kLongestKey) refuse(fmt::format("name in aiacc_kv_key_t has more than {} bytes", kLongestKey));
  return kv::key_of(std::string_view(key.name, length));
}

kv::Encoding kv_encoding(int wire) {
  if (wire < AIACC_KV_WIRE_PLAIN || wire > AIACC_KV_WIRE_2BIT)
    refuse(fmt::format("wire of a key-value store is {}: pass one of AIACC_KV_WIRE_", wire));
  return static_cast<kv::Encoding>(wire);
}

float checked_threshold(double threshold) {
  if (threshold == 0) return 0.5F;
  if (!(threshold > 0) || !std::isfinite(static_cast<float>(threshold)) || static_cast<float>(threshold) == 0)
    refuse(fmt::format("threshold of 2-bit gradients is {}: give a finite number above 0", threshold));
  return static_cast<float>(threshold);
}

int position_among(const std::vector<int>& ranks, int rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

KvAttributes read_kv_attr(const aiacc_kv_attr_t* attr, RealContext& context, Group& group) {
  const int size = group.size();
  KvAttributes checked;
  aiacc_kv_attr_t given{};
  if (attr != nullptr) given = read_sized(*attr, sizeof(aiacc_kv_attr_t), "aiacc_kv_attr_t");
  if (given.name != nullptr) checked.options.name.assign(given.name, strnlen(given.name, kLongestStoreName));
  if (given.mode < AIACC_KV_SYNC || given.mode > AIACC_KV_BOUNDED) {
    refuse(fmt::format("mode in aiacc_kv_attr_t is {}: pass AIACC_KV_SYNC, AIACC_KV_ASYNC or AIACC_KV_BOUNDED",
                       given.mode));
  }
  checked.options.mode = static_cast<kv::Mode>(given.mode);
  if (given.staleness > INT64_MAX) refuse("staleness in aiacc_kv_attr_t is no number of pushes");
  checked.options.staleness = given.staleness;
  checked.options.encoding = kv_encoding(given.wire);
  checked.options.threshold = checked_threshold(given.threshold);
  if (given.split_elements != 0) checked.options.split_elements = given.split_elements;
  checked.options.servers = checked_ranks("servers", given.n_servers, given.servers, size);
  checked.options.workers = checked_ranks("workers", given.n_workers, given.workers, size);
  if (given.n_servers == 0 && given.n_workers == 0) take_roles_of_job(checked.options, context, group);
  if (given.replicas < 0 || given.replicas > 2)
    refuse(fmt::format("replicas in aiacc_kv_attr_t is {}: one or two servers have a value", given.replicas));
  if (given.replicas == 2 && checked.options.servers.size() < 2)
    refuse("replicas in aiacc_kv_attr_t is 2, and one server only: two need two servers");
  checked.options.replicas = std::max(given.replicas, 1);
  checked.options.traffic = checked_traffic_class(given.traffic_class, "aiacc_kv_attr_t").value_or(TrafficClass::kBulk);
  checked.rounds = checked_traffic_class(given.traffic_class, "aiacc_kv_attr_t");
  checked.timeout = checked_timeout(given.timeout_ms, "aiacc_kv_attr_t");
  return checked;
}

kv::UpdaterOptions checked_updater(const aiacc_kv_updater_t* updater, KvEntry::Updater& callback, void* arg) {
  if (updater == nullptr) refuse("updater is NULL");
  const aiacc_kv_updater_t given = read_sized(*updater, sizeof(aiacc_kv_updater_t), "aiacc_kv_updater_t");
  if (given.kind < AIACC_KV_ASSIGN || given.kind > AIACC_KV_CALLBACK)
    refuse(
        fmt::format("kind in aiacc_kv_updater_t is {}: pass one of AIACC_KV_ASSIGN to AIACC_KV_CALLBACK", given.kind));
  if ((given.kind == AIACC_KV_CALLBACK) != (given.update != nullptr))
    refuse("update in aiacc_kv_updater_t goes with kind AIACC_KV_CALLBACK, and no other");
  kv::UpdaterOptions options;
  options.kind = static_cast<kv::UpdaterOptions::Kind>(given.kind);
  options.rate = checked_number("rate", given.rate, options.rate);
  options.momentum = checked_number("momentum", given.momentum, 0);
  options.beta1 = checked_number("beta1", given.beta1, options.beta1);
  options.beta2 = checked_number("beta2", given.beta2, options.beta2);
  options.epsilon = checked_number("epsilon", given.epsilon, options.epsilon);
  options.decay = checked_number("weight_decay", given.weight_decay, 0);
  options.rescale = checked_number("rescale", given.rescale, 1);
  options.clip = checked_number("clip", given.clip, 0);
  callback.update = given.update;
  callback.arg = given.arg;
  options.function = &KvEntry::Updater::call;
  options.arg = arg;
  return options;
}

}  // namespace aiacc::abi
