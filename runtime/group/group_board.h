// GroupBoard: control information that the members of a group on one host share: the progress of each (to name missing
// ranks), and whether the group is aborted, with the first error's sentence.
//
// A member's board is seven of its control lines. The first six are written once, when it aborts; every member watches
// the boards at distances 1, 2, 4 … behind it and relays an abort, so that it reaches all in log2(n) steps and survives
// frozen members. The last line is written with each operation and read only when an operation is late or the group was
// aborted.
//
// The end. A member that is done with the group records that in its board, once it has found the boards of all others,
// and keeps its lines until all members have done so: from then on nobody reads them. A board that has disappeared
// means the same, so no member needs to be observed twice and no exchange is needed.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "base/task/scope.h"
#include "base/view.h"
#include "transports/host/host_domain.h"

namespace aiacc {

class GroupBoard final : private Root::Owner {
 public:
  class Observer {
   public:
    // A member aborted the group; `error` is what it posted. At most once for each watched member.
    virtual void aborted_by_member(std::exception_ptr error) noexcept = 0;

   protected:
    ~Observer() = default;
  };

  // `local` are the members on this host by rank in the domain, ascending by rank in the group; `me` is the index of this
  // one; `ranks` are their ranks in the group, which has `size`.
  GroupBoard(HostDomain& domain, std::uint64_t view_id, std::vector<int> local, std::vector<int> ranks, int me,
             int size, Observer& observer);
  ~GroupBoard();

  // Starts to watch each member when its board exists, and returns when all boards exist. Ends early when `stop` is
  // requested.
  Task<void> open(Stop& stop);
  // Stops watching. Must be awaited before the board is destroyed.
  Task<void> close();

  // Operation `sequence` was begun here. Costs a store into this member's own line.
  void arrived(std::uint64_t sequence) noexcept { arrivals_->word[0].store(sequence, std::memory_order_relaxed); }
  // Ranks (in the group) of members here that have not begun `sequence`.
  std::vector<int> missing(std::uint64_t sequence) const;
  // Members that had not created their board at the last look.
  std::vector<int> not_here() const;
  // Members that are done with the group and will begin no further operation.
  std::vector<int> done_here() const;
  // The abort error that a watched member has posted, or null; for calls that start without driving the loop. It costs
  // one load for each of the log2(n) watched members, of lines that are not written before an abort.
  std::exception_ptr posted() const {
    for (const Watched& watched : watched_) {
      if (watched.flag->load(std::memory_order_acquire) != 0) [[unlikely]]
        return read_abort(watched.member);
    }
    return nullptr;
  }
  bool anything_posted() const noexcept {
    for (const Watched& watched : watched_) {
      if (watched.flag->load(std::memory_order_acquire) != 0) [[unlikely]]
        return true;
    }
    return false;
  }
  // This member sends no messages any more: what it has sent can be found.
  void say_last() noexcept;
  // Whether a member, by its index, has said so, or is done.
  bool has_said_last(int member) const noexcept;
  // Whether its lines are the group's: then they were so when they were read before.
  bool keeps_lines(int member) const noexcept;
  // Records that this member is done with the group. True when all members are, except dead ones (`gone`, by rank in
  // the group): then the board may be destroyed. May be called repeatedly.
  template <class Gone>
  bool all_are_done(Gone&& gone) {
    bool all = true;
    for (int member = 0; member < static_cast<int>(local_.size()); ++member) {
      if (member == me_ || gone(ranks_[static_cast<std::size_t>(member)])) continue;
      all = look_for(member) && (!said_done_ || is_done(member)) && all;
    }
    if (!all || said_done_) return all;
    say_done();
    return all_are_done(gone);
  }
  // The error that a member of this host has posted; null: none, or its lines are no more this group's.
  std::exception_ptr abort_of(int rank) const;
  // Publishes the abort to the members; only the first call counts.
  void post_abort(const std::exception_ptr& error) noexcept;

 private:
  static constexpr std::uint32_t kLines = 7;
  static constexpr std::uint32_t kArrivals = 6;                        // the line of arrivals
  static constexpr std::size_t kTextBytes = 8 * (kArrivals * 16 - 2);  // of the sentence

  struct Watched {
    int member;
    const std::atomic<std::uint64_t>* flag;
  };

  Task<void> find(int member, Stop& stop);
  Task<void> watch(int member);
  bool look_for(int member);
  bool is_found(int member) const noexcept { return lines_[static_cast<std::size_t>(member)] != 0; }
  void say_done() noexcept;
  bool is_done(int member) const noexcept;
  std::exception_ptr read_abort(int member) const;  // its numbers are what the member says
  void root_ended(Root& root, std::exception_ptr error) noexcept override;
  const ControlLine& line_of(int member, std::uint32_t line) const noexcept {
    const auto at = static_cast<std::size_t>(member);
    return domain_.line(local_[at], lines_[at] + line);
  }

  HostDomain& domain_;
  std::uint64_t key_;
  std::vector<int> local_;
  std::vector<int> ranks_;
  int me_;
  int size_;  // of the group
  Observer& observer_;
  std::vector<std::uint32_t> lines_;  // where each member has its board; 0: not found yet (line 0 is the domain's)
  ControlLine* arrivals_ = nullptr;
  bool posted_ = false;
  bool said_done_ = false;

  Stop stop_;
  Event idle_;
  std::size_t watching_ = 0;
  std::vector<Watched> watched_;
  std::vector<std::unique_ptr<Root>> watchers_;
};

}  // namespace aiacc
