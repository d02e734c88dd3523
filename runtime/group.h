// Group: a view as one rank lives in it: its team, the order of its operations, and its end. The first error ends the group
// and nothing else (design decision 13): it stops what is running with its own code, is told to the other members, and
// every later call gets kAborted with its sentence.
//
// Making one costs no round: members find each other with their first operation, which waits until those of this host are
// there; what is called meanwhile waits in its order. Leaving costs none either (runtime/groups.h).
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/host/host_post.h"
#include "collectives/host/host_team.h"
#include "collectives/net/short_call.h"
#include "collectives/operation.h"
#include "runtime/alone.h"
#include "runtime/dispatch.h"
#include "runtime/group_board.h"
#include "runtime/group_operation.h"
#include "runtime/pair_sequences.h"
#include "runtime/receive_search.h"
#include "runtime/recorder.h"

namespace aiacc {

class Context;

class Group final : private GroupBoard::Observer, private Root::Owner {
 public:
  // Of `context`, which outlives it. `name` is for messages: "the world"; `timeout` is that of operations that name none.
  // Peers can find this member from its construction on.
  Group(Context& context, ViewPtr view, int rank, std::string name, Duration timeout);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // On the lane's thread. Returns when all members of this host have it; without it the first operation does the same.
  Task<void> open(Stop& stop);
  // The last: nothing runs any more, and all members have met since or are done with the group.
  Task<void> close();
  // Nothing runs here, and the other members of this host do not need this one's lines any more. Says that this member is
  // done; `gone` tells of each rank of the group whether it has died. May be asked again and again once the user has let go.
  template <class Gone>
  bool may_close(Gone&& gone) {
    return outstanding() == 0 && (board_ == nullptr || board_->all_are_done(gone));
  }

  // --- any thread ------------------------------------------------------------------------------------------------------
  Context& context() noexcept { return context_; }
  const View& view() const noexcept { return *view_; }
  int rank() const noexcept { return team_.rank; }
  int size() const noexcept { return team_.size(); }
  int local_rank() const noexcept { return local_rank_; }
  int local_size() const noexcept { return static_cast<int>(view_->ranks_on_host_of(rank()).size()); }
  int host_index() const noexcept { return host_index_; }
  std::string describe() const;  // "the world of 4 ranks"
  // Collectives that were begun here.
  std::uint64_t collectives() const noexcept { return collectives_.load(std::memory_order_relaxed); }
  // Its user has freed it: nothing is called any more, and nobody holds a reference but operations that are running.
  void let_go() noexcept { let_go_.store(true, std::memory_order_release); }
  bool is_let_go() const noexcept { return let_go_.load(std::memory_order_acquire); }
  // Operations that were made and have not ended.
  int outstanding() const noexcept { return outstanding_.load(std::memory_order_acquire); }

  // Blocks until the call is complete; throws its error.
  void run(const Call& call, Buffer send, Buffer recv, const CallOptions* options);
  // A call for the caller to start on the context's lane and to keep until it is done.
  std::unique_ptr<GroupOperation> prepare(const Call& call, Buffer send, Buffer recv, const CallOptions* options);

  // --- the lane's thread -----------------------------------------------------------------------------------------------
  // `error` ends the group. The first one counts.
  void abort(std::exception_ptr error) noexcept;
  bool aborted() const noexcept { return stop_.requested(); }
  // The same on behalf of this rank's user, who knows of it then.
  void abort_by_user(const std::string& reason) noexcept;
  // The mailbox says that the group was aborted, by this rank or another.
  void aborted_between_hosts(const std::exception_ptr& error) noexcept { abort(error); }
  // Whether this rank only receives in the group, and has for a while.
  Receiving receiving() const;
  // What another member says of itself.
  void receiving_told(int rank, const Receiving& said) noexcept;
  // A member is gone; nothing happens if it is not of this group.
  void member_lost(const Member& member, const std::exception_ptr& error) noexcept;

 private:
  friend class GroupOperation;

  // The operation's coroutine starts now, or when all members of this host are there.
  void start(GroupOperation& operation);
  void start_held() noexcept;
  void start_stopped() noexcept;  // those that are to end and not to wait
  void start_stopped_soon() noexcept {
    if (!held_.empty() && !stopped_held_.linked()) loop().post(stopped_held_);
  }
  void root_ended(Root& root, std::exception_ptr error) noexcept override;  // of the opening

  void join_host(std::span<const int> local);
  void join_hosts();
  void aborted_by_member(std::exception_ptr error) noexcept override;
  bool finish_small(const Call& call, Buffer send, Buffer recv) noexcept;
  bool finish_short(const Call& call, Buffer send, Buffer recv, Lane::Hold& hold,
                    std::optional<net::ShortCall>& begun) noexcept;
  void check_alive();
  std::uint64_t next_ticket(const Call& call) noexcept;
  std::uint64_t count_collective() noexcept;
  void began(GroupOperation& operation) noexcept;
  void failed_to_begin() noexcept { told_ = told_ || ended_; }
  void ended(bool well) noexcept;
  // Who holds up an operation: begins to find out, and says what is known ("" if nothing is).
  void investigate(GroupOperation& operation) noexcept;
  GroupOperation::Holdup holdup(GroupOperation& operation);
  void end_if_freed(GroupOperation& operation);
  // Receivers that wait for each other.
  GroupOperation* oldest_receive() noexcept;
  void look_for_circle(GroupOperation& operation);
  void go_on_searching();
  void forget_circle() noexcept;
  GroupOperation::Holdup missing(const GroupOperation& operation);
  bool spans_hosts() const noexcept { return team_.mailbox != nullptr; }
  bool crosses_hosts(const GroupOperation& operation) const noexcept;
  Duration default_timeout() const noexcept;
  Loop& loop() noexcept { return team_.loop; }
  Team& team() noexcept { return team_; }
  Stop& stop() noexcept { return stop_; }
  Messengers messengers() noexcept { return {loopback_, host_post_.get(), pairs_}; }

  Context& context_;
  ViewPtr view_;
  std::string name_;
  RecordedGroup recorded_as_;
  Duration timeout_;
  Team team_;
  int local_rank_ = 0;
  int host_index_ = 0;

  // Tickets: given on the lane's thread in the order of the ABI calls, which is that of the lane's submissions.
  std::atomic<std::uint64_t> collectives_{0};  // written by the lane's thread
  std::uint64_t messages_ = 0;
  std::atomic<int> outstanding_{0};
  std::atomic<bool> let_go_{false};
  Stop stop_;           // requested with the first error; parent of every operation's
  bool ended_ = false;  // the first error is known
  bool told_ = false;   // and a call of this rank has failed with it
  bool open_ = false;   // all members of this host are there
  // While this rank only receives: its oldest recv, whose question found that so; and the search for the others.
  GroupOperation* receives_ = nullptr;
  std::optional<ReceiveSearch> search_;
  Loopback loopback_;
  PairSequences pairs_;
  // Null if this rank is alone on its host.
  std::unique_ptr<HostTeam> host_team_;
  std::unique_ptr<HostPost> host_post_;
  std::unique_ptr<GroupBoard> board_;

  Stop opening_stop_{stop_};
  Event opening_ended_;
  struct StoppedHeld final : Job {
    explicit StoppedHeld(Group& of) noexcept : group(of) {}
    void run() noexcept override { group.start_stopped(); }
    Group& group;
  };
  std::deque<GroupOperation*> held_;  // in the order of their tickets, until the group is open
  StoppedHeld stopped_held_{*this};
  std::optional<Root> opening_;
};

}  // namespace aiacc
