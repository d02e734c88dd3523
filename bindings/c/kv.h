// What the handle of a key-value store names.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string_view>

#include "bindings/c/state.h"
#include "groupcomm/kv/store.h"
#include "include/aiacc/kv.h"
#include "runtime/context.h"
#include "runtime/lane_task.h"
#include "runtime/real_context.h"

namespace aiacc::abi {

struct KvEntry {
  KvEntry(std::shared_ptr<RealContext> of, Group& its) : context(of), group(std::move(of), its) {}

  // The caller's updater, which the store calls through call().
  struct Updater {
    aiacc_kv_update_t update = nullptr;
    void* arg = nullptr;
    static int call(void* arg, std::string_view key, std::uint64_t first, std::size_t count, DType type,
                    const void* gradient, void* value);
  };

  std::shared_ptr<RealContext> context;
  GroupEntry group;  // the store's own; let go with this entry
  std::optional<GroupEntry>
      workers;      // of the workers, for the rounds of a sync store that they sum; empty on other ranks
  Updater updater;  // the lane's
  std::shared_ptr<kv::Store> store;
};

using KvPin = HandleTable<KvEntry>::Pin;
// Throws if the handle is not one of a store.
KvPin pinned_store(aiacc_kv_t handle);

void pass_barrier(Group& group);

// Runs the task that `make` returns on the lane.
template <class Make>
void on_lane(KvEntry& entry, Make&& make) {
  LaneTask::run(entry.context->context().lane(), Duration::max(), "", [&](Stop&) { return make(); });
}

// Between two barriers, which are passed also if `body` fails here.
template <class Body>
void together(KvEntry& entry, Body&& body) {
  pass_barrier(entry.group.group);
  std::exception_ptr refused;
  try {
    body();
  } catch (...) {
    refused = std::current_exception();
  }
  pass_barrier(entry.group.group);
  if (refused) std::rethrow_exception(refused);
}

// Frees the stores of a context that the user has not.
void free_stores(RealContext& context) noexcept;

}  // namespace aiacc::abi
