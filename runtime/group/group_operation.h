// GroupOperation: one call on a group, from the ABI's submission to its end. It is the root of the operation's
// coroutines: it takes the ticket, owns the Stop of all the operation's waits, and joins all its coroutines before it
// reports completion. It calls its group, and its group never calls it: what ends the group reaches it through its Stop.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/intrusive_heap.h"
#include "base/task/completion_thread.h"
#include "base/task/lane.h"
#include "base/task/scope.h"
#include "base/task/slab_pool.h"
#include "collectives/operation.h"
#include "runtime/group/operation_line.h"
#include "runtime/group/requested_work.h"
#include "transports/stall_times.h"

namespace aiacc {

class Group;
class WaitingCall;
namespace inter {
class ShortCall;
}

struct CallOptions {
  static constexpr Duration kDefaultTimeout = Duration(-1);
  std::string name;                                // for messages; empty: none
  std::shared_ptr<const void> keeps;               // what the call refers to; kept alive until the operation ends
  Duration timeout = kDefaultTimeout;              // Duration::max(): none
  int priority = 0;                                // above 0: its messages between hosts go before others'
  std::optional<TrafficClass> traffic_class = {};  // of all its messages between hosts, whatever the priority
  bool waits_long = false;                         // for what others do meanwhile: it is not reported as late
  // Called on the completion thread: an aiacc_callback_t, which only bindings/c knows, and its argument.
  void (*callback)() = nullptr;
  void* callback_arg = nullptr;

  OperationTraffic traffic() const noexcept {
    if (traffic_class) return OperationTraffic::all_in(*traffic_class);
    return priority > 0 ? OperationTraffic::all_in(TrafficClass::kLatency) : OperationTraffic{};
  }
};

// The notification, made on the completion thread, that an operation has ended.
class Completion : public CompletionThread::Item {
 public:
  explicit Completion(CompletionThread& on) noexcept : thread(on) {}
  CompletionThread& thread;
  std::exception_ptr error;  // why it failed, or null
};

class GroupOperation final : public RequestedWork,
                             public ListNode<GroupOperation>,
                             public HeapNode<GroupOperation>,
                             private Root::Owner {
 public:
  // Copies the lists that the call points to, but not what they point to.
  GroupOperation(Group& group, const Call& call, Buffer send, Buffer recv, CallOptions options);
  ~GroupOperation() override;
  // On the heap only in the context's pool. Whoever frees it does so before the context is destroyed.
  static void* operator new(std::size_t, SlabPool& pool) { return pool.take(); }
  static void* operator new(std::size_t, void* at) noexcept { return at; }
  static void operator delete(void* self, SlabPool&) noexcept { SlabPool::give_back(self); }
  static void operator delete(void*, void*) noexcept {}
  static void operator delete(void* self) noexcept { SlabPool::give_back(self); }

  // Call before start: `begun` has started the call, and this operation waits for its end.
  void go_on_with(inter::ShortCall& begun) noexcept { begun_ = &begun; }
  // Call before start: this operation is what `waiting` has become, whose ticket and record it has.
  void go_on_with(WaitingCall& waiting) noexcept { waiting_ = &waiting; }
  bool was_waiting() const noexcept { return waiting_ != nullptr; }
  // Call before start: sets the notification of its end.
  void tell(std::unique_ptr<Completion> completion) noexcept { completion_ = std::move(completion); }
  // For an owner on the lane's thread, which no other thread waits beside.
  class Observer {
   public:
    // The last thing that happens to it: from inside begin() if it failed at once. Not destroyed in here.
    virtual void operation_ended(GroupOperation& operation) noexcept = 0;

   protected:
    ~Observer() = default;
  };
  // Call before start.
  void observe(Observer& observer) noexcept { observer_ = &observer; }

  const std::exception_ptr& error() const noexcept override { return error_; }

  // For the group and its watch, on the lane's thread.
  Group& group() noexcept { return group_; }
  const Call& call() const noexcept { return call_; }
  const std::string& name() const noexcept { return options_.name; }
  // Any thread: its ticket; 0 before it has begun.
  std::uint64_t sequence() const noexcept override { return sequence_.load(std::memory_order_relaxed); }
  Instant began() const noexcept { return began_; }
  Instant deadline() const noexcept { return deadline_; }
  // "allreduce of 1024 fp32, sum 'gradients' (operation 12 of the world of 4 ranks)"
  std::string describe() const;
  // The stragglers: a clause such as "; ranks 2, 5 have not arrived", and those ranks; "" if none is known.
  struct Stragglers {
    std::string text;
    std::vector<int> ranks;
  };
  // Whether no further question is due before the deadline.
  bool last_question() const noexcept { return next_question_ == deadline_; }
  // When to investigate next.
  Instant next_question() const noexcept { return next_question_; }
  void set_next_question(Instant now) noexcept { next_question_ = questions_.next(now); }
  void restart_questions(Instant now) noexcept {
    questions_ = StallTimes(now, deadline_);
    set_next_question(now);
  }
  // Its identity on other hosts; valid while it runs.
  WireId wire_id() const noexcept { return running_->operation.wire_id(); }
  // Owned by the progress watch.
  OperationLine* line = nullptr;
  Instant due{};  // its place in the schedule
  std::pair<Instant, std::uint64_t> heap_key() const noexcept { return {due, sequence()}; }
  Instant late_at{};             // for the oldest of a line
  Instant next_glance = kNever;  // the same: when to look for members of this host that have left
  bool is_oldest = false;        // was the oldest of its line at the watch's last look
  bool was_asked_about = false;
  bool reported_late = false;
  // For a recv: the cycle of receivers that it belongs to, if any.
  Stragglers cycle;
  bool reported_cycle = false;

 private:
  void begin() noexcept override;
  static Task<void> body(GroupOperation* self);
  static Task<void> wait_for_abort_reason(Group& group);
  void root_ended(Root& root, std::exception_ptr error) noexcept override;
  void over(std::exception_ptr error) noexcept;
  void record_end() noexcept;
  void discount() noexcept;
  void end() noexcept;
  void number();
  void end_once_told() noexcept;

  // State that exists from begin() to the end, on the lane's thread; once done, other threads may free the rest of this
  // object.
  struct Running {
    Running(Team& team, const Call& call, Buffer send, Buffer recv, std::uint64_t sequence, Stop& group_stop)
        : stop(group_stop), operation{team, call, sequence, stop, send, recv} {}
    Stop stop;
    Operation operation;
    std::optional<Root> root;
  };

  Group& group_;
  Call call_;
  std::vector<Extent> blocks_;
  std::vector<Extent> recv_blocks_;
  std::vector<Tensor> tensors_;
  Buffer send_;
  Buffer recv_;
  CallOptions options_;
  inter::ShortCall* begun_ = nullptr;
  WaitingCall* waiting_ = nullptr;
  std::atomic<std::uint64_t> sequence_{0};
  Instant began_{};
  Instant deadline_ = kNever;
  Instant next_question_ = kNever;
  std::uint64_t record_ = 0;  // its number in the recorder
  StallTimes questions_{Instant{}, kNever};
  std::optional<Running> running_;
  std::unique_ptr<Root> telling_;
  bool counted_ = true;  // among the group's outstanding operations
  std::exception_ptr error_;
  std::unique_ptr<Completion> completion_;
  Observer* observer_ = nullptr;
};

}  // namespace aiacc
