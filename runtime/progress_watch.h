// ProgressWatch: what a context knows of its running operations: it has the hosts asked who holds one up, reports one that is
// late, once, and ends one at its deadline with a sentence that names who is missing. One timer a context, armed only while operations run, so that an
// operation costs one look at the clock and none of its own timers.
#pragma once

#include <string>

#include "base/intrusive_list.h"
#include "base/task/loop.h"
#include "runtime/group_operation.h"

namespace aiacc {

class Context;

class ProgressWatch final : private Timer {
 public:
  // Receives the report of a late operation, and of the first error of a group: a log in production.
  class Reporter {
   public:
    virtual void late(const std::string& sentence) noexcept = 0;
    // Perhaps while the context is being made: others may have ended the world before.
    virtual void failed(Context& context, const Group& group, const Error& error) noexcept = 0;

   protected:
    ~Reporter() = default;
  };

  ProgressWatch(Loop& loop, Duration late_after, Reporter& reporter)
      : loop_(loop), late_after_(late_after), reporter_(reporter) {}

  // A recv that waits for itself, by way of others.
  void report_circle(const GroupOperation& operation) noexcept;
  // The operation is in the list until it unlinks itself.
  void add(GroupOperation& operation);

  bool idle() const noexcept { return running_.empty(); }
  template <class Fn>
  void for_each(Fn&& fn) {
    running_.for_each(fn);
  }

 private:
  void expired() noexcept override;
  Instant next_look(const GroupOperation& operation) const noexcept;
  void look_at(GroupOperation& operation, Instant now) noexcept;

  Loop& loop_;
  Duration late_after_;
  Reporter& reporter_;
  IntrusiveList<GroupOperation> running_;
  Instant armed_for_ = kNever;
};

}  // namespace aiacc
