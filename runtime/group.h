// Group: a view as one rank lives in it: its team, the order of its operations, and its end. The first error ends the group
// and nothing else (design decision 13): it stops what is running with its own code, is told to the other members, and
// every later call gets kAborted with its sentence.
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/host/host_post.h"
#include "collectives/host/host_team.h"
#include "collectives/operation.h"
#include "runtime/alone.h"
#include "runtime/dispatch.h"
#include "runtime/group_board.h"
#include "runtime/group_operation.h"
#include "runtime/pair_sequences.h"

namespace aiacc {

class Context;

class Group final : private GroupBoard::Observer {
 public:
  // Of `context`, which outlives it. `name` is for messages: "the world".
  Group(Context& context, ViewPtr view, int rank, std::string name);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // On the lane's thread; open() before anything else, close() last: nothing runs any more. Peers can find this member from
  // its construction on.
  Task<void> open(Stop& stop);
  Task<void> close();

  // --- any thread ------------------------------------------------------------------------------------------------------
  Context& context() noexcept { return context_; }
  const View& view() const noexcept { return *view_; }
  int rank() const noexcept { return team_.rank; }
  int size() const noexcept { return team_.size(); }
  int local_rank() const noexcept { return local_rank_; }
  int local_size() const noexcept { return static_cast<int>(view_->ranks_on_host_of(rank()).size()); }
  int host_index() const noexcept { return host_index_; }
  std::string describe() const;  // "the world of 4 ranks"

  // Blocks until the call is complete; throws its error.
  void run(const Call& call, Buffer send, Buffer recv, const CallOptions* options);
  // A call for the caller to start on the context's lane and to keep until it is done.
  std::unique_ptr<GroupOperation> prepare(const Call& call, Buffer send, Buffer recv, const CallOptions* options);

  // --- the lane's thread -----------------------------------------------------------------------------------------------
  // `error` ends the group. The first one counts.
  void abort(std::exception_ptr error) noexcept;
  bool aborted() const noexcept { return stop_.requested(); }
  // The mailbox says that the group was aborted, by this rank or another.
  void aborted_between_hosts(const std::exception_ptr& error) noexcept { abort(error); }
  // A member is gone; nothing happens if it is not of this group.
  void member_lost(const Member& member, const std::exception_ptr& error) noexcept;

 private:
  friend class GroupOperation;

  void join_host(std::span<const int> local);
  void join_hosts();
  void aborted_by_member(std::exception_ptr error) noexcept override;
  bool finish_small(const Call& call, Buffer send, Buffer recv) noexcept;
  void check_alive();
  std::uint64_t next_ticket(const Call& call) noexcept;
  void began(GroupOperation& operation) noexcept;
  void failed_to_begin() noexcept { told_ = told_ || ended_; }
  void ended(bool well) noexcept;
  // Who holds up an operation: begins to find out, and says what is known ("" if nothing is).
  void investigate(const GroupOperation& operation) noexcept;
  std::string holdup(const GroupOperation& operation);
  std::string missing(const GroupOperation& operation);
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
  Team team_;
  int local_rank_ = 0;
  int host_index_ = 0;

  // Tickets: given on the lane's thread in the order of the ABI calls, which is that of the lane's submissions.
  std::uint64_t collectives_ = 0;
  std::uint64_t messages_ = 0;
  Stop stop_;           // requested with the first error; parent of every operation's
  bool ended_ = false;  // the first error is known
  bool told_ = false;   // and a call of this rank has failed with it
  Loopback loopback_;
  PairSequences pairs_;
  // Null if this rank is alone on its host.
  std::unique_ptr<HostTeam> host_team_;
  std::unique_ptr<HostPost> host_post_;
  std::unique_ptr<GroupBoard> board_;
};

}  // namespace aiacc
