// runtime/watch: detection of late, stuck and dead ranks, and the flight recorder: progress of operations, circular
// receives, local peers' processes, liveness of ranks on other hosts, broken paths. Not here: the reaction
// (runtime/group).
//
// ProgressWatch: supervises the running operations of a context: it starts the straggler diagnosis, reports a late
// operation once, and ends an operation at its deadline with an error that names the missing ranks.
//
// The cost is small for any number of operations: only the oldest operation of each line (OperationLine) is diagnosed
// and reported, at doubling intervals; the others follow when they become the oldest. Deadlines are in a
// heap, to which adding one costs O(1). A context has one timer for this.
#pragma once

#include <string>

#include "base/intrusive_heap.h"
#include "base/intrusive_list.h"
#include "base/task/loop.h"
#include "runtime/group/operation_line.h"

namespace aiacc {

class Context;
class Error;
class Group;
class GroupOperation;
class WaitingCall;

class ProgressWatch final : private Timer {
 public:
  // Receives the report of a late operation, and of the first error of a group: a log in production.
  class Reporter {
   public:
    virtual void late(const std::string& sentence) noexcept = 0;
    // Possibly while the context is being created, because another rank may abort the world earlier.
    virtual void failed(Context& context, const Group& group, const Error& error) noexcept = 0;
    // What some users want to know and others do not: level info of a log.
    virtual bool takes_notes() const noexcept { return false; }
    virtual void note(const std::string&) noexcept {}

   protected:
    ~Reporter() = default;
  };

  ProgressWatch(Loop& loop, Duration late_after, Reporter& reporter);
  ~ProgressWatch();

  // A recv that is part of a cycle of receives.
  void report_cycle(const GroupOperation& operation) noexcept;
  // Adds a running operation, the youngest of its line.
  void add(GroupOperation& operation, OperationLine& line) noexcept;
  void remove(GroupOperation& operation) noexcept;
  // A call that waits without an operation, the youngest of its line.
  template <class Call>
  void add_waiting(Call& call, OperationLine& line) noexcept {
    ++running_;
    const bool is_first = line.waiting.empty();
    line.waiting.push_back(call);
    if (is_first) watch_first(call, line);
  }
  void remove(ListNode<WaitingCall>& call) noexcept {
    --running_;
    call.unlink();
  }
  // An operation that never ran, until its caller may hear so.
  void add_ending() noexcept { ++running_; }
  void remove_ending() noexcept { --running_; }
  // `operation` is what one of them has become.
  void take_over(GroupOperation& operation, OperationLine& line) noexcept;

  bool idle() const noexcept { return running_ == 0; }

 private:
  void expired() noexcept override;
  void arm_by(Instant when) noexcept;
  void look_by(Instant when) noexcept;
  void watch_first(const WaitingCall& call, OperationLine& line) noexcept;
  void schedule(GroupOperation& operation) noexcept;
  Instant look_at_lines(Instant now) noexcept;
  Instant look_at_waiting(OperationLine& line, Instant now) noexcept;
  Instant next_look(const GroupOperation& oldest) const noexcept;
  void look_at_oldest(GroupOperation& operation, Instant now) noexcept;
  static void glance_later(GroupOperation& operation, Instant now) noexcept;
  void meet_deadlines(Instant now) noexcept;
  void ask_a_last_time(GroupOperation& operation, Instant now) noexcept;
  void time_out(GroupOperation& operation, Instant now) noexcept;

  Loop& loop_;
  Duration late_after_;
  Reporter& reporter_;
  std::size_t running_ = 0;
  IntrusiveList<OperationLine> lines_;
  IntrusiveHeap<GroupOperation>
      schedule_;               // those with a deadline: by the time of the last diagnosis, then by the deadline
  Instant lines_at_ = kNever;  // the next look at the lines
  Instant armed_for_ = kNever;
};

}  // namespace aiacc
