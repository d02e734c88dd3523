// The calls on the key-value store. Not here: what their arguments may be (kv_arguments.h), state in files (kv_saved.cc), a store's end
// (kv_ends.cc).
#include "bindings/c/kv.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/hash.h"
#include "bindings/c/arguments.h"
#include "bindings/c/callbacks.h"
#include "bindings/c/guard.h"
#include "bindings/c/kv_arguments.h"
#include "bindings/c/submit.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/groups.h"
#include "runtime/lane_task.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

using kv::Order;
using kv::Store;

std::uint64_t hash_of(const kv::StoreOptions& options) {
  Hash64 hash;
  hash.add(static_cast<std::uint64_t>(options.mode)).add(options.staleness).add(options.split_elements);
  hash.add(static_cast<std::uint64_t>(options.encoding)).add(static_cast<std::uint64_t>(options.threshold * 65536.0F));
  hash.add(static_cast<std::uint64_t>(options.replicas)).add(static_cast<std::uint64_t>(options.traffic));
  for (const auto* ranks : {&options.servers, &options.workers}) {
    hash.add(ranks->size());
    for (const int rank : *ranks) hash.add(static_cast<std::uint64_t>(rank));
  }
  return hash.value();
}

// All have subscribed afterwards, and with the same attributes.
void agree(Group& group, const kv::StoreOptions& options) {
  const std::uint64_t mine = hash_of(options);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
  group.run(call_of(Collective::kAllgather, 1, DType::kUInt64), buffer_of(&mine, sizeof mine),
            buffer_of(all.data(), all.size() * sizeof mine), nullptr);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    throw Error(Code::kMismatch,
                fmt::format("ranks 0 and {} make a key-value store with different attributes (aiacc_kv_attr_t)", rank),
                static_cast<int>(rank));
  }
}

Task<void> make_store_on_lane(KvEntry* entry, kv::StoreOptions options) {
  Context& context = entry->context->context();
  entry->store = std::make_shared<Store>(context.lane(), context.services(), entry->group.group.team().view,
                                         entry->group.group.rank(), std::move(options));
  if (entry->workers) entry->store->reduce_in(entry->workers->group);
  entry->store->report_to([&context](const std::string& sentence) { context.report_late(sentence); });
  co_return;
}

Task<void> set_on_lane(KvEntry* entry, const KvEntry::Updater* updater, const kv::UpdaterOptions* options) {
  entry->store->set_updater(*options);
  entry->updater = *updater;
  co_return;
}

Task<void> meet_on_lane(Store* store, Stop& stop, const char* call, bool* wrong) {
  *wrong = co_await store->barrier(stop, call, *wrong);
}

Task<void> count_lost_on_lane(Store* store, std::size_t* lost) {
  *lost = store->lost_ranks();
  co_return;
}

Task<void> set_all_assign_on_lane(Store* store, std::optional<bool> all_assign) {
  store->set_all_assign(all_assign);
  co_return;
}

// After an updater was set, or refused on some rank. Without an agreement, as after a loss, servers may have different updaters.
void agree_on_assigning(KvEntry& entry) {
  on_lane(entry, [&] { return set_all_assign_on_lane(entry.store.get(), std::nullopt); });
  const std::uint64_t mine = entry.store->server().updater().kind == kv::UpdaterOptions::Kind::kAssign ? 0 : 1;
  std::uint64_t most = 0;
  Call call = call_of(Collective::kAllreduce, 1, DType::kUInt64);
  call.reduction.op = ReduceOp::kMax;
  entry.group.group.run(call, buffer_of(&mine, sizeof mine), buffer_of(&most, sizeof most), nullptr);
  on_lane(entry, [&] { return set_all_assign_on_lane(entry.store.get(), most == 0); });
}

// A group of the workers alone, made by each of them.
void make_workers(KvEntry& entry, Group& parent, const kv::StoreOptions& options, GroupOrder order) {
  if (options.mode != kv::Mode::kSync || options.workers.size() < 2 || options.replicas > 1) return;
  if (position_among(options.workers, parent.rank()) < 0) return;
  order.name = "the workers of " + order.name;
  order.key = Hash64().add("kv workers").add(options.name).value();
  order.ranks = options.workers;
  entry.workers.emplace(entry.context, entry.context->make_group(parent, std::move(order)));
}

Task<void> set_wire_on_lane(Store* store, kv::Encoding encoding, float threshold) {
  store->set_encoding(encoding, threshold);
  co_return;
}

void begin(KvPin& pin, Order order, const aiacc_attr_t* attr, aiacc_request_t* request, const char* name) {
  Call call;
  CallOptions options;
  read_attr(attr, call, options);
  if (options.callback != nullptr) refuse(fmt::format("{} has no callback: pass a request, and wait for it", name));
  if (call.reduction.prescale != 1.0 || call.reduction.postscale != 1.0)
    refuse(fmt::format("prescale and postscale mean nothing to {}: updaters have rescale", name));
  order.priority = options.priority;
  order.timeout =
      options.timeout != CallOptions::kDefaultTimeout ? options.timeout : pin->group.group.default_timeout();
  Lane& lane = pin->context->context().lane();
  if (request == nullptr) {
    refuse_to_block(name);
    kv::Operation operation(pin->store, std::move(order));
    lane.run(operation);
    if (operation.error()) std::rethrow_exception(operation.error());
    return;
  }
  RequestTable::Place place(state().requests);
  place.object().emplace(pin->context);
  const std::uint64_t handle = place.handle();
  auto entry = place.name_and_pin();
  try {
    lane.ensure_helper();
    auto operation = std::make_unique<kv::Operation>(pin->store, std::move(order));
    kv::Operation& started = *operation;
    entry->operation = std::move(operation);
    lane.start(started);
  } catch (...) {
    entry->operation.reset();
    entry.remove();
    throw;
  }
  *request = handle;
}

std::vector<std::uint64_t> checked_rows(std::size_t n, const std::int64_t* rows) {
  check_buffer("rows", rows, n);
  return std::vector<std::uint64_t>(rows, rows + n);
}

}  // namespace

namespace aiacc::abi {

KvPin pinned_store(aiacc_kv_t handle) {
  KvPin pin = state().stores.find(handle);
  if (pin) return pin;
  refuse_forked();
  throw Error(Code::kInvalidHandle, is_kind(handle, HandleKind::kKv)
                                        ? fmt::format("key-value store {:#x} does not exist any more", handle)
                                        : fmt::format("{:#x} is not a handle of aiacc_kv_create", handle));
}

bool barrier(KvEntry& entry, const char* call, bool wrong) {
  if (entry.store->options().replicas == 1) {
    pass_barrier(entry.group.group);
    return false;
  }
  LaneTask::run(entry.context->context().lane(), entry.group.group.default_timeout(), call,
                [&](Stop& stop) { return meet_on_lane(entry.store.get(), stop, call, &wrong); });
  return wrong;
}

std::size_t lost_ranks(KvEntry& entry) {
  std::size_t lost = 0;
  on_lane(entry, [&] { return count_lost_on_lane(entry.store.get(), &lost); });
  return lost;
}

void pass_barrier(Group& group) { group.run(call_of(Collective::kBarrier, 0, DType::kUInt8), {}, {}, nullptr); }

int KvEntry::Updater::call(void* arg, std::string_view key, std::uint64_t first, std::size_t count, DType type,
                           const void* gradient, void* value) {
  const Updater& its = static_cast<const KvEntry*>(arg)->updater;
  const std::string name(key.substr(1));
  aiacc_kv_key_t given{};
  if (key.front() == 's') {
    given.name = name.c_str();
  } else {
    given.number = std::stoll(name);
  }
  const InsideCallback inside;
  return its.update(its.arg, given, static_cast<std::size_t>(first), count, static_cast<aiacc_dtype_t>(type), gradient,
                    value);
}

}  // namespace aiacc::abi

extern "C" {

aiacc_status_t aiacc_kv_create(aiacc_group_t group, const aiacc_kv_attr_t* attr, aiacc_kv_t* kv) {
  return guarded([&] {
    refuse_to_block("aiacc_kv_create");
    GroupPin pin = pinned(group);
    if (kv == nullptr) refuse("kv is NULL: pass where the handle shall go");
    RealContext& context = *pin->context;
    KvAttributes given = read_kv_attr(attr, context, pin->group);
    GroupOrder order;
    order.sort = GroupOrder::Sort::kEngine;
    order.name = given.options.name.empty() ? "the key-value store" : "the key-value store " + given.options.name;
    order.key = Hash64().add("kv").add(given.options.name).value();
    order.timeout = given.timeout;
    for (int rank = 0; rank < pin->group.size(); ++rank) order.ranks.push_back(rank);
    auto entry = std::make_unique<KvEntry>(pin->context, context.make_group(pin->group, order));
    order.traffic_class = given.rounds;
    const kv::StoreOptions options = given.options;
    make_workers(*entry, pin->group, options, std::move(order));
    on_lane(*entry, [&] { return make_store_on_lane(entry.get(), options); });
    try {
      agree(entry->group.group, options);
    } catch (...) {
      on_lane(*entry, [&] { return entry->store->close(); });
      throw;
    }
    const std::uint64_t handle = state().stores.insert(std::move(entry));
    state().made.add(context, handle);
    *kv = handle;
  });
}

aiacc_status_t aiacc_kv_roles(aiacc_kv_t kv, int* worker, int* n_workers, int* server, int* n_servers) {
  return guarded([&] {
    KvPin pin = pinned_store(kv);
    const kv::StoreOptions& options = pin->store->options();
    const int rank = pin->group.group.rank();
    const auto tell = [rank](const std::vector<int>& ranks, int* position, int* count) {
      if (position != nullptr) *position = position_among(ranks, rank);
      if (count != nullptr) *count = static_cast<int>(ranks.size());
    };
    tell(options.workers, worker, n_workers);
    tell(options.servers, server, n_servers);
  });
}

aiacc_status_t aiacc_kv_init(aiacc_kv_t kv, aiacc_kv_key_t key, aiacc_dtype_t dtype, size_t rows, size_t row_elements,
                             const void* value, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    KvPin pin = pinned_store(kv);
    Order order;
    order.what = Order::What::kInit;
    order.key = checked_key(key);
    Reduction elements;
    elements.type = checked_dtype(dtype);
    if (elements.type == DType::kRecord) refuse("dtype is AIACC_RECORD: values have numbers");
    if (row_elements == 0) refuse("row_elements is 0: rows of a dense value have 1");
    std::size_t count = 0;
    if (__builtin_mul_overflow(rows, row_elements, &count)) count = SIZE_MAX;
    const std::size_t bytes = checked_bytes(count, 1, elements);
    if (pin->store->options().workers.front() == pin->group.group.rank()) check_buffer("value", value, bytes);
    order.shape = {elements.type, rows, row_elements};
    order.in = value;
    begin(pin, std::move(order), attr, request, "aiacc_kv_init");
  });
}

aiacc_status_t aiacc_kv_push(aiacc_kv_t kv, aiacc_kv_key_t key, size_t count, const void* gradient,
                             const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    KvPin pin = pinned_store(kv);
    Order order;
    order.what = Order::What::kPush;
    order.key = checked_key(key);
    check_buffer("gradient", gradient, count);
    order.in = gradient;
    order.in_count = count;
    begin(pin, std::move(order), attr, request, "aiacc_kv_push");
  });
}

aiacc_status_t aiacc_kv_pull(aiacc_kv_t kv, aiacc_kv_key_t key, size_t count, void* value, const aiacc_attr_t* attr,
                             aiacc_request_t* request) {
  return guarded([&] {
    KvPin pin = pinned_store(kv);
    Order order;
    order.what = Order::What::kPull;
    order.key = checked_key(key);
    check_buffer("value", value, count);
    order.out = value;
    order.out_count = count;
    begin(pin, std::move(order), attr, request, "aiacc_kv_pull");
  });
}

aiacc_status_t aiacc_kv_pushpull(aiacc_kv_t kv, aiacc_kv_key_t key, size_t count, const void* gradient, void* value,
                                 const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    KvPin pin = pinned_store(kv);
    Order order;
    order.what = Order::What::kPushPull;
    order.key = checked_key(key);
    check_buffer("gradient", gradient, count);
    check_buffer("value", value, count);
    order.in = gradient;
    order.out = value;
    order.in_count = order.out_count = count;
    begin(pin, std::move(order), attr, request, "aiacc_kv_pushpull");
  });
}

aiacc_status_t aiacc_kv_push_rows(aiacc_kv_t kv, aiacc_kv_key_t key, size_t n, const int64_t* rows,
                                  const void* gradient, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    KvPin pin = pinned_store(kv);
    Order order;
    order.what = Order::What::kPush;
    order.key = checked_key(key);
    order.some_in = true;
    order.in_rows = checked_rows(n, rows);
    check_buffer("gradient", gradient, n);
    order.in = gradient;
    begin(pin, std::move(order), attr, request, "aiacc_kv_push_rows");
  });
}

aiacc_status_t aiacc_kv_pull_rows(aiacc_kv_t kv, aiacc_kv_key_t key, size_t n, const int64_t* rows, void* values,
                                  const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    KvPin pin = pinned_store(kv);
    Order order;
    order.what = Order::What::kPull;
    order.key = checked_key(key);
    order.some_out = true;
    order.out_rows = checked_rows(n, rows);
    check_buffer("values", values, n);
    order.out = values;
    begin(pin, std::move(order), attr, request, "aiacc_kv_pull_rows");
  });
}

aiacc_status_t aiacc_kv_set_updater(aiacc_kv_t kv, const aiacc_kv_updater_t* updater) {
  return guarded([&] {
    refuse_to_block("aiacc_kv_set_updater");
    KvPin pin = pinned_store(kv);
    KvEntry& entry = *pin;
    KvEntry::Updater callback;
    const kv::UpdaterOptions options = checked_updater(updater, callback, &entry);
    std::exception_ptr refused;
    try {
      together(entry, "aiacc_kv_set_updater", true,
               [&] { on_lane(entry, [&] { return set_on_lane(&entry, &callback, &options); }); });
    } catch (...) {
      refused = std::current_exception();
    }
    if (pin->store->options().replicas == 1) agree_on_assigning(entry);  // the workers sum nothing with replicas
    if (refused) std::rethrow_exception(refused);
  });
}

aiacc_status_t aiacc_kv_set_wire(aiacc_kv_t kv, int wire, double threshold) {
  return guarded([&] {
    KvPin pin = pinned_store(kv);
    const kv::Encoding encoding = kv_encoding(wire);
    const float checked = checked_threshold(threshold);
    on_lane(*pin, [&] { return set_wire_on_lane(pin->store.get(), encoding, checked); });
  });
}

}  // extern "C"
