// GroupOperation: one call on a group, from the ABI's submission to its end. The root of its coroutine: it takes the ticket,
// owns the Stop that every wait of the operation sees, and joins everything before it says that it is done.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/task/completion_thread.h"
#include "base/task/lane.h"
#include "base/task/scope.h"
#include "collectives/net/short_call.h"
#include "collectives/operation.h"
#include "transports/stall_watch.h"

namespace aiacc {

class Group;

struct CallOptions {
  static constexpr Duration kDefaultTimeout = Duration(-1);
  std::string name;                    // for messages; empty: none
  std::shared_ptr<const void> keeps;   // lives as long as the operation: what its call refers to
  Duration timeout = kDefaultTimeout;  // Duration::max(): none
  int priority = 0;                    // above 0: its messages between hosts go before others'
  // Whom to tell on the completion thread: an aiacc_callback_t, which only bindings/c knows, and its argument.
  void (*callback)() = nullptr;
  void* callback_arg = nullptr;
};

// What is told on a completion thread that an operation has ended.
class Completion : public CompletionThread::Item {
 public:
  explicit Completion(CompletionThread& on) noexcept : thread(on) {}
  CompletionThread& thread;
  std::exception_ptr error;  // why it failed, or null
};

class GroupOperation final : public Work, public ListNode<GroupOperation>, private Root::Owner {
 public:
  // Copies the lists that the call points to, but not what they point to.
  GroupOperation(Group& group, const Call& call, Buffer send, Buffer recv, CallOptions options);
  ~GroupOperation();

  // Before it is started: the call is begun, and this waits for the rest of it.
  void go_on_with(net::ShortCall& begun) noexcept { begun_ = &begun; }
  // Before it is started: who is told of its end.
  void tell(std::unique_ptr<Completion> completion) noexcept { completion_ = std::move(completion); }

  // Any thread, once done(): why it failed, or null.
  const std::exception_ptr& error() const noexcept { return error_; }

  // For the group and its watch, on the lane's thread.
  const Call& call() const noexcept { return call_; }
  const std::string& name() const noexcept { return options_.name; }
  // Any thread: its ticket, 0 before it was begun.
  std::uint64_t sequence() const noexcept { return sequence_.load(std::memory_order_relaxed); }
  Instant began() const noexcept { return began_; }
  Instant deadline() const noexcept { return deadline_; }
  // "allreduce of 1024 fp32, sum 'gradients' (operation 12 of the world of 4 ranks)"
  std::string describe() const;
  // Who holds it up: "; ranks 2, 5 have not arrived", and those ranks; "" if nobody is known to.
  struct Holdup {
    std::string text;
    std::vector<int> ranks;
  };
  Holdup holdup();
  // Begins to find out who does.
  void investigate() noexcept;
  // Nothing more is asked before the deadline.
  bool last_question() const noexcept { return next_question_ == deadline_; }
  // When to do that next.
  Instant next_question() const noexcept { return next_question_; }
  void set_next_question(Instant now) noexcept { next_question_ = questions_.next(now); }
  // What other hosts know the operation by; while it runs.
  std::uint64_t wire_sequence() const noexcept { return running_->operation.sequence; }
  // Its time is over, and with it the group's.
  void stop(std::exception_ptr reason) noexcept;
  bool reported_late = false;
  // Of a recv: those that wait for each other, if it is one of them.
  Holdup circle;
  bool reported_circle = false;

 private:
  friend class Group;
  void begin() noexcept override;
  static Task<void> body(GroupOperation* self);
  static Task<void> hear_why(Group& group);
  void root_ended(Root& root, std::exception_ptr error) noexcept override;
  void record_end() noexcept;
  void discount() noexcept;
  void end() noexcept;

  // Exists between begin() and the end, on the lane's thread: other threads may free the rest of this object once done.
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
  net::ShortCall* begun_ = nullptr;
  std::atomic<std::uint64_t> sequence_{0};
  Instant began_{};
  Instant deadline_ = kNever;
  Instant next_question_ = kNever;
  std::uint64_t record_ = 0;  // its number in the recorder
  StallTimes questions_{Instant{}, kNever};
  std::optional<Running> running_;
  bool counted_ = true;  // among the group's outstanding operations
  std::exception_ptr error_;
  std::unique_ptr<Completion> completion_;
};

}  // namespace aiacc
