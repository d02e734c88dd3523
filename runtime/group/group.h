// runtime/group: groups and the calls on them: order, dispatch to an algorithm, point-to-point messages, the end of a
// group. Not here: the algorithms (collectives), and the supervision of late calls (runtime/watch).
//
// Group: a view with the state that one rank has in it: its team, the order of its operations, and its end. The first
// error ends the group and nothing else (design decision 13): running operations fail with that error's code, the other
// members are notified, and every later call fails with kAborted and that error's sentence.
//
// Creating a group needs no communication: members find each other with their first operation, which waits until all
// members of this host have created the group; calls made meanwhile are queued in order. Freeing it needs none either
// (runtime/group/groups.h).
//
// Group and GroupOperation: an operation runs itself and asks its group for what all operations share. The group starts
// no operation and ends none: those that wait for it to open, or that it ends, wait for its gate and its Stop.
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/task/turn_queue.h"
#include "collectives/hier/shm_local_team.h"
#include "collectives/inter/selector.h"
#include "collectives/inter/short_call.h"
#include "collectives/intra/intra_messages.h"
#include "collectives/intra/intra_team.h"
#include "collectives/operation.h"
#include "collectives/plain_queue.h"
#include "runtime/group/alone.h"
#include "runtime/group/any_receives.h"
#include "runtime/group/dispatch.h"
#include "runtime/group/group_board.h"
#include "runtime/group/group_operation.h"
#include "runtime/group/operation_line.h"
#include "runtime/group/pair_sequences.h"
#include "runtime/group/start_window.h"
#include "runtime/group/waiting_call.h"
#include "runtime/watch/receive_search.h"
#include "runtime/watch/recorder.h"
#include "transports/last_calls.h"

namespace aiacc {

class Context;
class WaitingReceive;
namespace intra {
enum class SmallWait : std::uint8_t;  // collectives/intra/small.h
class InPlace;                        // collectives/intra/small_call.h
}  // namespace intra

class Group final : private GroupBoard::Observer,
                    private Root::Owner,
                    private inter::Selector::Listener,
                    private Loans::Program {
 public:
  // `context` outlives it. `name` is for messages ("the world"); `timeout` is the default of its operations. Peers can
  // find this member from its construction on.
  Group(Context& context, ViewPtr view, int rank, std::string name, Duration timeout);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // On the lane's thread. Returns when all members of this host have created the group; otherwise the first operation
  // waits for that.
  Task<void> open(Stop& stop);
  // The last call; no operation runs any more. kUnread: since the last one all members have passed a barrier or are done with
  // the group, so that its memory is freed. kMayBeRead: perhaps not, as after an error; its memory lasts as long as the segment,
  // because a member that still reads it would otherwise find other bytes there and end its operation with them.
  enum class Memory : std::uint8_t { kUnread, kMayBeRead };
  Task<void> close(Memory memory = Memory::kUnread);
  // Whether no operation runs here and the other members of this host no longer need this one's lines. Publishes that
  // this member is done; `gone` returns whether a rank of the group has died. May be called repeatedly after handles_gone().
  template <class Gone>
  bool may_close(Gone&& gone) {
    if (outstanding() != 0) return false;
    say_last(0);
    return board_ == nullptr || board_->all_are_done(gone);
  }
  // On the lane's thread, when nothing runs: this member makes only so many more calls, which are collectives. Who waits for another
  // call of it is told.
  void say_last(std::uint64_t more) noexcept;
  // On the lane's thread, when an operation has ended: if that was the last of a group that was freed, the members are told now. The
  // world's last call comes after its handle has gone.
  void say_done_if_freed() noexcept {
    if (handles_are_gone()) say_done();
  }

  // --- any thread ------------------------------------------------------------------------------------------------------
  Context& context() noexcept { return context_; }
  const View& view() const noexcept { return *view_; }
  int rank() const noexcept { return team_.rank; }
  int size() const noexcept { return size_; }
  int local_rank() const noexcept { return local_rank_; }
  int local_size() const noexcept { return static_cast<int>(view_->ranks_on_host_of(rank()).size()); }
  int host_index() const noexcept { return host_index_; }
  std::string describe() const;  // "the world of 4 ranks"
  // Number of collectives that were begun here.
  std::uint64_t collectives() const noexcept { return collectives_.load(std::memory_order_relaxed); }
  // The user has freed the group: there are no further calls, and only running operations refer to it.
  void handles_gone() noexcept { handles_gone_.store(true, std::memory_order_release); }
  bool handles_are_gone() const noexcept { return handles_gone_.load(std::memory_order_acquire); }
  // Number of operations that were created and have not ended.
  int outstanding() const noexcept {
    return outstanding_.load(std::memory_order_acquire) + waiting_.load(std::memory_order_acquire);
  }

  // Runs the call, blocking; throws its error.
  void run(const Call& call, const Buffer& send, const Buffer& recv, const CallOptions* options);
  // The same for an allreduce in `buffer`. True: `caller` has read what the ranks have written, and nothing is in the buffer. False: the
  // result is there, for the caller to read. Before either, `caller` has written this rank's contribution once.
  bool run_in_place(const Call& call, const Buffer& buffer, intra::InPlace& caller);
  // For an asynchronous collective without attributes: whether it ended well at once; its ticket, or 0. The caller holds the lane,
  // and goes on with the call if it has not ended, before it gives the lane up.
  std::uint64_t finish_at_once(const Call& call, const Buffer& send, const Buffer& recv) noexcept;
  // The member of this host that a message to or from a rank concerns, another one than this rank; -1 if there is none. Any thread.
  int message_member(int rank) const noexcept {
    if (intra_messages_ == nullptr) return -1;
    const int member = intra_messages_->member_of(rank);
    return member == intra_messages_->me() ? -1 : member;
  }
  // In runtime/group/message_now.h: the same as finish_at_once() for a send to such a member.
  inline std::uint64_t finish_send(int member, const PlainCall& call, const Buffer& send) noexcept;
  // For a send to one: whether its payload had better stay where it is until an operation is over.
  bool lends(int member, const Buffer& send) noexcept { return intra_messages_->lends(member, send); }
  // For a blocking recv from one: whether it ended well without an operation, as its message is there or comes soon.
  inline bool finish_receive(int member, const PlainCall& call, const Buffer& recv, const Lane::Hold& hold) noexcept;
  // And for an asynchronous one: it has ended, or waits from now on as a record; or neither.
  struct BegunReceive {
    std::uint64_t ended = 0;  // its ticket
    std::unique_ptr<RequestedWork> waiting;
  };
  inline BegunReceive begin_receive(int member, const PlainCall& call, const Buffer& recv, Lane::Hold& hold) noexcept;
  // What it becomes then, if it can wait without an operation: it is to be started while the caller holds the lane. Null if not.
  std::unique_ptr<RequestedWork> prepare_waiting(const PlainCall& call, const Buffer& send, const Buffer& recv);
  // Creates the operation for a call. The caller starts it on the context's lane and keeps it until it is done.
  std::unique_ptr<GroupOperation> prepare(const Call& call, Buffer send, Buffer recv, const CallOptions* options);

  // How often receives from any rank have looked for a message: for tests.
  std::uint64_t any_source_looks() const noexcept { return any_receives_.looks(); }

  // --- for its operations ----------------------------------------------------------------------------------------------
  // Any thread: an operation was created, and has ended or never began.
  void add_outstanding() noexcept { outstanding_.fetch_add(1, std::memory_order_relaxed); }
  void remove_outstanding() noexcept { outstanding_.fetch_sub(1, std::memory_order_release); }
  // On the lane's thread, as all below. The ticket of a call that begins now; throws if the group has ended.
  std::uint64_t admit(const Call& call);
  // An operation begins, after it was admitted; and has ended, with its error.
  void began(GroupOperation& operation) noexcept;
  void ended(const GroupOperation& operation) noexcept;
  // The same for a call that waits without an operation, and for the operation that it becomes.
  std::uint64_t next_ticket(Collective kind) noexcept { return is_message(kind) ? ++messages_ : count_collective(); }
  inline void began(WaitingCall& call, OperationLine& line) noexcept;
  void ended(WaitingCall& call) noexcept;
  // The same for a receive that ended well, with received_some() after the last of them.
  void received(WaitingReceive& receive) noexcept;
  void received_some() noexcept;
  // It counts as outstanding from the first to the last of these; only the lane's thread counts, so no atomic addition is needed.
  void add_waiting(int change) noexcept {
    waiting_.store(waiting_.load(std::memory_order_relaxed) + change, std::memory_order_release);
  }
  WaitingCalls& waiting_calls() noexcept { return waiting_calls_; }
  void took_over(GroupOperation& operation) noexcept;
  OperationLine& line_of(const Call& call);
  OperationLine& line_of(const PlainCall& call) { return is_message(call.kind) ? line_with(call.root) : calls_; }
  IntraMessages* post() noexcept { return intra_messages_.get(); }
  PlainQueue* small_calls() noexcept { return small_calls_.get(); }
  template <class Fn>
  void for_each_line(Fn&& fn) {
    fn(calls_);
    for (auto& [rank, line] : messages_with_) fn(line);
  }
  // This rank's user has seen why the group ended.
  void reported() noexcept { reported_ = reported_ || ended_; }
  // Whether operations may run: all members of this host have created the group, and no earlier operation still waits for
  // that. If not, wait_until_open() returns in the order of the calls.
  bool is_open() const noexcept { return gate_.free(); }
  Task<void> wait_until_open(Stop& stop);
  // Of collectives among hosts. Those on one host have turns before they take memory; and members may send and receive in different
  // orders.
  StartWindow& start_window() noexcept { return start_window_; }
  bool starts_in_turn(Collective kind) const noexcept { return spans_hosts() && !is_message(kind); }
  const RecordedGroup& recorded_as() const noexcept { return recorded_as_; }
  Duration default_timeout() const noexcept { return timeout_; }
  // Of operations without a class of their own. Set before the first one.
  void set_traffic_class(std::optional<TrafficClass> traffic) noexcept { traffic_class_ = traffic; }
  std::optional<TrafficClass> default_traffic_class() const noexcept { return traffic_class_; }
  Team& team() noexcept { return team_; }
  Loop& loop() noexcept { return team_.loop; }
  Stop& stop() noexcept { return stop_; }  // requested with the group's first error; parent of every operation's
  Messengers messengers() noexcept { return {loopback_, intra_messages_.get(), pairs_, any_receives_}; }

  // --- the lane's thread -----------------------------------------------------------------------------------------------
  // Straggler diagnosis of an operation: investigate() starts it; stragglers() is the result so far.
  void investigate(GroupOperation& operation) noexcept;
  // Ends the group if the operation waits for a member of this host that has left: costs a few looks into memory.
  void look_for_leavers(const GroupOperation& operation) noexcept;
  bool shares_host() const noexcept { return board_ != nullptr; }
  GroupOperation::Stragglers stragglers(GroupOperation& operation);
  // Throws if the group has ended.
  void check_alive();
  // Aborts the group with `error`; only the first error counts.
  void abort(std::exception_ptr error) noexcept;
  bool aborted() const noexcept { return stop_.requested(); }
  // Returns when the kernel has the notices to members on other hosts, or after a second.
  Task<void> tell_of_end();
  bool has_told_of_end() const noexcept;
  // What other members of this host may read as long as the group is there: it lives until none of them needs the group.
  void keep(std::shared_ptr<const void> what) { kept_.push_back(std::move(what)); }
  // Aborts at the request of this rank's user, so the error needs no report.
  void abort_by_user(const std::string& reason) noexcept;
  // The group ended between hosts: its transfers have failed, and members on other hosts know.
  void aborted_between_hosts(const std::exception_ptr& error) noexcept;
  // Whether this rank has been doing nothing but receive in the group for a while.
  Receiving receiving() const;
  // Another member's answer to the same question.
  void receiving_reported(int rank, const Receiving& said) noexcept;
  // A rank is lost; ignored if it is not a member of this group.
  void member_lost(const Member& member, const std::exception_ptr& error) noexcept;
  // The network between this rank and that member was broken for too long.
  void path_lost(const Member& member, const std::string& sentence);

 private:
  void root_ended(Root& root, std::exception_ptr error) noexcept override;  // of open() for an operation
  void no_permitted_algorithm(const std::string& sentence) noexcept override;
  bool wants_choices() const noexcept override;
  bool waits() const noexcept override;
  void chosen(const std::string& sentence) noexcept override;

  void join_host(std::span<const int> local);
  void join_hosts();
  void end(std::exception_ptr error) noexcept;  // ended_ is set: stops everything here
  void aborted_by_member(std::exception_ptr error) noexcept override;
  bool finish_small(const Call& call, const Buffer& send, const Buffer& recv, intra::SmallWait wait) noexcept;
  template <class Try>
  bool finish_by(const Call& call, Try&& try_small) noexcept;
  std::unique_ptr<RequestedWork> prepare_small(const PlainCall& call, const Buffer& send, const Buffer& recv);
  void run_held(const Call& call, const Buffer& send, const Buffer& recv, const CallOptions* options, Lane::Hold& hold);
  bool may_begin_plainly() const noexcept {
    return is_open() && !traffic_class_ && !stop_.requested() && team_.compute.works_inline() &&
           (board_ == nullptr || !board_->anything_posted());
  }
  OperationLine& line_with(int rank) {
    if (last_line_.second == nullptr || last_line_.first != rank) [[unlikely]]
      find_line_with(rank);
    return *last_line_.second;
  }
  void find_line_with(int rank);
  inline void message_ended(const PlainCall& call) noexcept;
  bool finish_short(const Call& call, Buffer send, Buffer recv, Lane::Hold& hold,
                    std::optional<inter::ShortCall>& begun) noexcept;
  std::uint64_t count_collective() noexcept;
  static bool receives(const Call& call) noexcept {
    return call.kind == Collective::kRecv || call.kind == Collective::kRecvAny;
  }
  GroupOperation::Stragglers diagnose(GroupOperation& operation);
  void end_if_freed(const GroupOperation& operation);
  void end_if_nobody_sends(const GroupOperation& operation);
  // Receivers that wait for each other.
  GroupOperation* oldest_receive() noexcept;
  void look_for_cyclic_receives(GroupOperation& operation);
  void go_on_searching();
  void forget_cyclic_receives() noexcept {
    if (receives_ != nullptr) withdraw_cyclic_receives();
  }
  void withdraw_cyclic_receives() noexcept;
  GroupOperation::Stragglers missing(const GroupOperation& operation);
  LastCalls last_calls(std::uint64_t last) const;
  void say_done() noexcept;
  bool spans_hosts() const noexcept { return team_.mailbox != nullptr; }
  bool crosses_hosts(const GroupOperation& operation) const noexcept;

  Context& context_;
  std::vector<std::shared_ptr<const void>> kept_;
  ViewPtr view_;
  std::string name_;
  RecordedGroup recorded_as_;
  Duration timeout_;
  std::optional<TrafficClass> traffic_class_;
  Team team_;
  const int size_ = team_.size();
  inter::Selector selector_;
  int local_rank_ = 0;
  int host_index_ = 0;

  // Tickets: assigned on the lane's thread in the order of the ABI calls, which is the order of submission to the lane.
  std::atomic<std::uint64_t> collectives_{0};  // written by the lane's thread
  std::uint64_t messages_ = 0;
  std::uint64_t receives_at_once_ = 0;
  std::atomic<int> outstanding_{0};
  std::atomic<bool> handles_gone_{false};
  Stop stop_;
  bool ended_ = false;        // the first error is known
  bool reported_ = false;     // and it has been reported to this rank's user
  bool told_of_end_ = false;  // the notice of it has left, or was held up for too long
  bool said_last_ = false;
  bool open_ = false;            // all members of this host have created the group
  std::atomic<int> waiting_{0};  // calls that are no operations
  // Running operations, by line, and how many of them are receives.
  OperationLine calls_;
  std::map<int, OperationLine> messages_with_;  // by rank; receives from any rank are kept separately
  std::pair<int, OperationLine*> last_line_{};  // that line_with() found
  int receiving_ = 0;
  int others_ = 0;
  std::uint64_t wait_seen_ = 0;  // the wait (Lane::present_wait) at the last search for circular receives
  // While this rank does nothing but receive: its oldest recv, which detected that, and the search among the other
  // members.
  GroupOperation* receives_ = nullptr;
  std::optional<ReceiveSearch> search_;
  WaitingCalls waiting_calls_{*this};
  AnyReceives any_receives_;
  Loopback loopback_{any_receives_};
  PairSequences pairs_;
  // Null if this rank is alone on its host. The first two belong to a group on one host, and the third to one over several.
  std::unique_ptr<IntraTeam> intra_team_;
  std::unique_ptr<PlainQueue>
      small_calls_;  // of that team, or of a group among hosts with one rank each; null: there is none
  std::unique_ptr<hier::ShmLocalTeam> local_team_;
  std::unique_ptr<IntraMessages> intra_messages_;
  std::unique_ptr<GroupBoard> board_;

  Stop opening_stop_{stop_};
  Event opening_ended_;
  TurnQueue gate_;  // taken until the group is open, and then handed from one operation that waited to the next
  std::optional<Root> opening_;
  StartWindow start_window_;
};

}  // namespace aiacc
