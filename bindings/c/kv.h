// What the handle of a key-value store names.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
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

// Of the store's ranks.
std::size_t lost_ranks(KvEntry& entry);

// Runs the task that `make` returns on the lane.
template <class Make>
void on_lane(KvEntry& entry, Make&& make) {
  LaneTask::run(entry.context->context().lane(), Duration::max(), "", [&](Stop&) { return make(); });
}

// A barrier before or after what all ranks do together. With replicas it is one of the ranks that are left, and says whether something
// is `wrong` on any of them.
bool barrier(KvEntry& entry, const char* call, bool wrong = false);

// Between two barriers, which are passed also if `body` fails here. A loss meanwhile fails the call of a store with replicas on all
// ranks if it is not `in_spite_of_losses`; other stores fail without that.
template <class Body>
void together(KvEntry& entry, const char* call, bool in_spite_of_losses, Body&& body) {
  barrier(entry, call);
  const std::size_t lost = lost_ranks(entry);
  std::exception_ptr refused;
  try {
    body();
  } catch (...) {
    refused = std::current_exception();
  }
  barrier(entry, call);
  const bool wrong =
      entry.store->options().replicas > 1 && !in_spite_of_losses && barrier(entry, call, lost_ranks(entry) != lost);
  if (refused) std::rethrow_exception(refused);
  if (wrong) {
    throw Error(Code::kPeerFailed, std::string("a rank was lost during ") + call +
                                       ", which may have done a part of its work: call it again");
  }
}

// Frees the stores of a context that the user has not.
void free_stores(RealContext& context) noexcept;

}  // namespace aiacc::abi
