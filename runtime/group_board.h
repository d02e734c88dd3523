// GroupBoard: what the members of a group on one host tell each other beside their data: how far each has come (who is
// missing?) and that the group is aborted, with the first error's sentence.
//
// A member's board is seven of its control lines. The first six are written once, when it aborts; every member watches those
// at distances 1, 2, 4 … behind it and passes on what it sees, so that an abort reaches all in log2(n) steps, also past
// members that are frozen. The last is stored into with each operation and read only when one is late or the group
// was aborted.
//
// The end. A member that is done with the group says so in its board, once it has found all others', and keeps its lines
// until all have said it: from then on nobody reads them. A board that was there and is gone therefore means the same, so
// nobody needs to be seen twice, and no round is made.
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
    // A member aborted the group; `error` is what it posted. At most once for each that is watched.
    virtual void aborted_by_member(std::exception_ptr error) noexcept = 0;

   protected:
    ~Observer() = default;
  };

  // `local` are the members on this host by rank in the domain, ascending by rank in the group; `me` is the index of this
  // one; `ranks` are their ranks in the group.
  GroupBoard(HostDomain& domain, std::uint64_t view_id, std::vector<int> local, std::vector<int> ranks, int me,
             Observer& observer);
  ~GroupBoard();

  // Watches members from when they have their boards, and returns when all have. Gives up when `stop` is requested.
  Task<void> open(Stop& stop);
  // Watches no more; to be awaited before the board is destroyed.
  Task<void> close();

  // Operation `sequence` was begun here. Costs a store into a line of our own.
  void arrived(std::uint64_t sequence) noexcept { arrivals_->word[0].store(sequence, std::memory_order_relaxed); }
  // Ranks (in the group) of members here that have not begun `sequence`.
  std::vector<int> missing(std::uint64_t sequence) const;
  // Those that have not made their board, as far as was looked.
  std::vector<int> not_here() const;
  // Those that are done with the group: they will not begin anything any more.
  std::vector<int> done_here() const;
  // What a watched member has posted, or null: for calls that begin without a look at the loop. A load for each of the
  // log2(n) that are watched, of lines that are never written until it is all over.
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
  // This member is done with the group. True when all are, but for those that `gone` says will never be (by their rank in
  // the group): then the board may be destroyed. May be asked again and again.
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
  // Tells the members; the first call counts.
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
  std::exception_ptr read_abort(int member) const;
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
