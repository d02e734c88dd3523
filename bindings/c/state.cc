#include "bindings/c/state.h"

#include <fmt/format.h>
#include <pthread.h>

#include <new>
#include <utility>

#include "bindings/c/gradient.h"
#include "bindings/c/kv.h"
#include "bindings/c/mesh.h"
#include "bindings/c/syncbn.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/real_context.h"

namespace aiacc::abi {
namespace {

alignas(State) unsigned char storage[sizeof(State)];

}  // namespace

constinit std::atomic<State*> made_state{nullptr};

State& make_state() noexcept {
  static State* const made = new (storage) State();
  made_state.store(made, std::memory_order_release);
  return *made;
}

GroupEntry::~GroupEntry() { group.handles_gone(); }

RequestEntry::RequestEntry(const std::shared_ptr<RealContext>& of) noexcept : context(of.get()) {
  context->add_request();
}

RequestEntry::RequestEntry(RealContext& of, std::unique_ptr<RequestedWork> its) noexcept
    : context(&of), operation(std::move(its)) {
  context->add_request_here();
}

void RequestEntry::leave_context() noexcept { take_context()->end_requests(1); }

RealContext* RequestEntry::take_context() noexcept {
  if (operation != nullptr && !operation->done()) context->adopt(std::move(operation));
  operation.reset();
  return std::exchange(context, nullptr);
}

namespace {

// At the end of its thread. In a forked child nobody takes requests, and another thread may have had the table's lock.
struct StockReturner {
  ~StockReturner() {
    if (state().forked.load(std::memory_order_relaxed)) return;
    state().requests.give_back(request_stock);
    state().ended_requests.give_back(ended_block);
  }
};

}  // namespace

constinit thread_local RequestTable::Stock request_stock;
constinit thread_local EndedHandles::Block ended_block;

void return_stock_at_the_end() {
  static thread_local const StockReturner returner;
  [[maybe_unused]] const StockReturner& made = returner;
}

void fill_request_stock() {
  return_stock_at_the_end();
  state().requests.fill(request_stock);
}

bool prepare_ended_block() {
  if (!ended_block.owned()) return_stock_at_the_end();
  return state().ended_requests.prepare(ended_block);
}

void State::watch_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    State& self = state();
    if (self.ranks.load(std::memory_order_relaxed) == 0) return;
    self.forked.store(true, std::memory_order_relaxed);
    self.contexts.forget_all();
    self.groups.forget_all();
    self.requests.forget_all();
    self.ended_requests.forget_all();
    self.meshes.forget_all();
    self.registrations.forget_all();
    self.gradients.forget_all();
    self.syncbns.forget_all();
    self.stores.forget_all();
  });
  if (registered != 0) throw system_error("cannot register a handler for fork", registered);
}

namespace {

Error forked_child() {
  return Error(
      Code::kInvalidState,
      "this process is a forked child of a rank: only the rank itself may call aiacc. Call exec after fork, or fork "
      "before aiacc_init.");
}

Error no_default(const char* what) {
  const bool finalized = state().life.load() == State::Life::kFinalized;
  return Error(Code::kInvalidState,
               fmt::format("{} was used {}", what, finalized ? "after aiacc_finalize" : "before aiacc_init"));
}

bool forked() noexcept { return state().forked.load(std::memory_order_relaxed); }

}  // namespace

void refuse_forked() {
  if (forked()) throw forked_child();
}

// --- groups and objects derived from them ----------------------------------------------------------------------------

void MadeHandles::add(const RealContext& context, std::uint64_t handle) {
  std::lock_guard lock(mutex_);
  of_[&context].insert(handle);
}

void MadeHandles::drop(const RealContext& context, std::uint64_t handle) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = of_.find(&context);
  if (found == of_.end()) return;
  found->second.erase(handle);
  if (found->second.empty()) of_.erase(found);
}

std::set<std::uint64_t> MadeHandles::take_all(const RealContext& context) {
  std::lock_guard lock(mutex_);
  const auto found = of_.find(&context);
  if (found == of_.end()) return {};
  std::set<std::uint64_t> handles = std::move(found->second);
  of_.erase(found);
  return handles;
}

std::set<std::uint64_t> MadeHandles::all(const RealContext& context) {
  std::lock_guard lock(mutex_);
  const auto found = of_.find(&context);
  return found == of_.end() ? std::set<std::uint64_t>() : found->second;
}

aiacc_group_t name_group(const std::shared_ptr<RealContext>& context, Group& group) {
  State& self = state();
  const aiacc_group_t handle = self.groups.insert(std::make_unique<GroupEntry>(context, group));
  try {
    self.made.add(*context, handle);
  } catch (...) {
    self.groups.find(handle).remove();
    throw;
  }
  return handle;
}

bool free_group(HandleTable<GroupEntry>::Pin pin, aiacc_group_t group) {
  if (!pin.remove()) return false;
  state().made.drop(*pin->context, group);
  return true;
}

Error unknown_group(aiacc_group_t group) {
  if (forked()) return forked_child();
  if (group == AIACC_NULL)
    return Error(Code::kInvalidHandle, "the group is AIACC_NULL: pass AIACC_WORLD or a group's handle");
  if (group != AIACC_WORLD) {
    return Error(Code::kInvalidHandle, is_kind(group, HandleKind::kGroup)
                                           ? fmt::format("group {:#x} does not exist any more", group)
                                           : fmt::format("{:#x} is not the handle of a group", group));
  }
  return no_default("AIACC_WORLD");
}

Error unknown_context(aiacc_context_t context) {
  if (forked()) return forked_child();
  if (context == decltype(State::contexts)::kFixed) return no_default("the default context");
  return Error(Code::kInvalidHandle, is_kind(context, HandleKind::kContext)
                                         ? fmt::format("context {:#x} does not exist any more", context)
                                         : fmt::format("{:#x} is not the handle of a context", context));
}

}  // namespace aiacc::abi
