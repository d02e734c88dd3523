// The end of key-value stores: by their users, and with their context.
#include <chrono>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "bindings/c/callbacks.h"
#include "bindings/c/guard.h"
#include "bindings/c/kv.h"
#include "bindings/c/kv_arguments.h"
#include "bindings/c/submit.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/group_operation.h"
#include "runtime/lane_task.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

// How long a rank that waits for nobody tries to say that it leaves.
constexpr Duration kLastWords = std::chrono::seconds(2);

// The end of a store on this rank: it serves until the others need it no more, and then closes. After an error in the group nobody is
// waited for. The workers may need a rank that only serves for days, which is not late then; and what ends this wait early is an error
// of the rank's only call, which wait() throws.
class Closing final : private GroupOperation::Observer {
 public:
  explicit Closing(KvEntry& entry)
      : entry_(entry),
        works_(position_among(entry.store->options().workers, entry.group.group.rank()) >= 0),
        serves_(position_among(entry.store->options().servers, entry.group.group.rank()) >= 0),
        timeout_(works_ ? entry.group.group.default_timeout() : Duration::max()),
        passed_(lane().loop()),
        task_(lane(), Duration::max(), "", [this](Stop& stop) { return end(stop); }) {}

  // Several stores of a context end at the same time.
  void start() noexcept {
    try {
      lane().ensure_helper();
      lane().start(task_);
      started_ = true;
    } catch (const Error&) {  // there is no thread for it: it ends in wait()
    }
  }

  void wait() {
    started_ ? static_cast<void>(lane().wait(task_)) : lane().run(task_);
    if (task_.error()) on_lane(entry_, [&] { return entry_.store->close(); });  // if it could not begin
    if (task_.error() && serves_ && !works_) std::rethrow_exception(task_.error());
  }

 private:
  Lane& lane() noexcept { return entry_.context->context().lane(); }

  Task<void> end(Stop& stop) {
    const bool replicated = entry_.store->options().replicas > 1;
    Task<void> others = replicated ? leave(stop) : pass(stop);
    const std::exception_ptr error = co_await outcome(std::move(others));
    if (error && !replicated) co_await outcome(say_leaving(stop, as_error(error)));
    co_await entry_.store->close();
    if (error) std::rethrow_exception(error);
  }

  static Task<std::exception_ptr> outcome(Task<void> task) {
    try {
      co_await std::move(task);
    } catch (...) {
      co_return std::current_exception();
    }
    co_return nullptr;
  }

  // With replicas: the others go on after a loss, which ends the group.
  Task<void> leave(Stop& parent) {
    Stop stop(parent);
    const Deadline deadline(lane().loop(), after(lane().loop().now(), timeout_), stop,
                            "ranks have not freed the key-value store by the deadline");
    co_await entry_.store->leave(stop);
  }

  Task<void> pass(Stop& stop) {
    if (works_) entry_.store->say_done();
    CallOptions options;
    options.name = "aiacc_kv_free";
    options.timeout = timeout_;
    options.waits_long = !works_;
    Group& group = entry_.group.group;
    barrier_.emplace(group, call_of(Collective::kBarrier, 0, DType::kUInt8), Buffer{}, Buffer{}, options);
    barrier_->observe(*this);
    lane().begin_here(*barrier_);
    co_await passed_.wait(stop);
    if (barrier_->error()) std::rethrow_exception(barrier_->error());
  }
  void operation_ended(GroupOperation&) noexcept override { passed_.set(); }

  // Who does not hear it in time waits until its calls' deadlines.
  Task<void> say_leaving(Stop& parent, Error why) {
    Stop stop(parent);
    const Deadline deadline(lane().loop(), after(lane().loop().now(), kLastWords), stop,
                            "ranks have not heard that this one leaves");
    co_await entry_.store->say_leaving(stop, why.code() == Code::kPeerFailed ? why.peer() : kNoPeer);
  }

  KvEntry& entry_;
  const bool works_, serves_;
  const Duration timeout_;
  Event passed_;  // the barrier has ended
  std::optional<GroupOperation> barrier_;
  LaneTask task_;
  bool started_ = false;
};

}  // namespace

namespace aiacc::abi {

// All at once: their order is not the same on all ranks, and each rank would wait for another store than the others.
void free_stores(RealContext& context) noexcept {
  std::list<std::pair<KvPin, Closing>> closing;
  for (const std::uint64_t handle : state().made.all(context)) {
    if (!is_kind(handle, HandleKind::kKv)) continue;
    try {
      KvPin pin = state().stores.find(handle);
      if (!pin) continue;
      KvEntry& entry = *pin;
      auto& [kept, its] = closing.emplace_back(std::piecewise_construct, std::forward_as_tuple(std::move(pin)),
                                               std::forward_as_tuple(entry));
      if (!kept.remove()) {
        closing.pop_back();
        continue;
      }
      state().made.drop(context, handle);
      its.start();
    } catch (...) {  // the context says goodbye all the same, and tells what went wrong
    }
  }
  for (auto& [pin, its] : closing) {
    try {
      its.wait();
    } catch (...) {
    }
  }
}

}  // namespace aiacc::abi

extern "C" {

aiacc_status_t aiacc_kv_free(aiacc_kv_t kv) {
  return guarded([&] {
    refuse_to_block("aiacc_kv_free");
    std::shared_ptr<RealContext> context;
    {
      KvPin pin = pinned_store(kv);
      Closing its(*pin);
      if (!pin.remove()) static_cast<void>(pinned_store(kv));
      context = pin->context;
      state().made.drop(*context, kv);
      its.wait();
    }
    context->collect_groups();
  });
}

}  // extern "C"
