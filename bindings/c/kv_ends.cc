// The end of key-value stores: by their users, and with their context.
#include <chrono>
#include <exception>
#include <list>
#include <memory>
#include <optional>
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

// The end of a store on this rank: it serves until the others need it no more, which wait() waits for. After an error in the group
// nobody is waited for. The workers may need a rank that only serves for days, which is not late then; and what ends this wait early is
// an error of the rank's only call, which wait() throws.
class Closing {
 public:
  explicit Closing(KvEntry& entry) : entry_(entry) {
    const kv::StoreOptions& its = entry.store->options();
    Group& group = entry.group.group;
    works_ = position_among(its.workers, group.rank()) >= 0;
    serves_ = position_among(its.servers, group.rank()) >= 0;
    Lane& lane = entry.context->context().lane();
    const Duration timeout = works_ ? group.default_timeout() : Duration::max();
    if (its.replicas > 1) {  // the others go on after a loss, which ends the group
      leaving_.emplace(lane, timeout, "ranks have not freed the key-value store by the deadline",
                       [store = entry.store](Stop& stop) { return store->leave(stop); });
      lane.start(*leaving_);
      return;
    }
    CallOptions options;
    options.name = "aiacc_kv_free";
    options.timeout = timeout;
    options.waits_long = !works_;
    barrier_.emplace(group, call_of(Collective::kBarrier, 0, DType::kUInt8), Buffer{}, Buffer{}, options);
    lane.start(*barrier_);
  }

  void wait() {
    Lane& lane = entry_.context->context().lane();
    leaving_ ? lane.wait(*leaving_) : lane.wait(*barrier_);
    const std::exception_ptr error = leaving_ ? leaving_->error() : barrier_->error();
    if (error && works_ && !leaving_) say_leaving();
    on_lane(entry_, [&] { return entry_.store->close(); });
    if (error && serves_ && !works_) std::rethrow_exception(error);
  }

 private:
  void say_leaving() {
    try {
      LaneTask::run(entry_.context->context().lane(), kLastWords, "servers have not heard that this worker leaves",
                    [store = entry_.store](Stop& stop) { return store->say_leaving(stop); });
    } catch (const Error&) {  // their calls end by their deadline then
    }
  }

  KvEntry& entry_;
  bool works_, serves_;
  std::optional<LaneTask> leaving_;  // with replicas; else:
  std::optional<GroupOperation> barrier_;
};

}  // namespace

namespace aiacc::abi {

// All at once: their order is not the same on all ranks, and each rank would wait for another store than the others.
void free_stores(RealContext& context) noexcept {
  std::list<std::pair<KvPin, std::optional<Closing>>> closing;
  for (const std::uint64_t handle : state().made.all(context)) {
    if (!is_kind(handle, HandleKind::kKv)) continue;
    try {
      KvPin pin = state().stores.find(handle);
      if (!pin || !pin.remove()) continue;
      state().made.drop(context, handle);
      auto& [kept, its] = closing.emplace_back(std::move(pin), std::nullopt);
      its.emplace(*kept);
    } catch (...) {  // the context says goodbye all the same, and tells what went wrong
    }
  }
  for (auto& [pin, its] : closing) {
    try {
      if (its) its->wait();
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
      if (!pin.remove()) static_cast<void>(pinned_store(kv));
      context = pin->context;
      state().made.drop(*context, kv);
      Closing(*pin).wait();
    }
    context->collect_groups();
  });
}

}  // extern "C"
