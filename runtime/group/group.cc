#include "runtime/group/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error_about.h"
#include "collectives/intra/small.h"
#include "collectives/intra/small_queue.h"
#include "runtime/context.h"
#include "runtime/group/remote_message.h"
#include "runtime/group/short_queue.h"
#include "runtime/group/waiting_receive.h"
#include "runtime/group/waiting_small.h"

namespace aiacc {
namespace {

int host_index_of(const View& view, int rank) {
  std::vector<std::uint32_t> seen;
  for (const Member& member : view.members()) {
    if (std::find(seen.begin(), seen.end(), member.host) == seen.end()) seen.push_back(member.host);
  }
  return static_cast<int>(std::find(seen.begin(), seen.end(), view.member(rank).host) - seen.begin());
}

}  // namespace

Group::Group(Context& context, ViewPtr view, int rank, std::string name, Duration timeout)
    : context_(context),
      view_(std::move(view)),
      name_(std::move(name)),
      recorded_as_{view_->id(), Label<48>(std::string_view(name_).substr(0, name_.find_last_not_of(',') + 1)),
                   context.recorder().stamp()},
      timeout_(timeout),
      team_{view_, rank, context.lane().loop(), context.compute()},
      selector_(context.config().algorithms, *this, context.algorithm_table()),
      opening_ended_(context.lane().loop()) {
  const auto local = view_->ranks_on_host_of(rank);
  local_rank_ = static_cast<int>(std::find(local.begin(), local.end(), rank) - local.begin());
  host_index_ = host_index_of(*view_, rank);
  open_ = local.size() == 1;
  if (!open_) gate_.try_take();
  if (local.size() > 1) join_host(local);
  if (view_->hosts() > 1) join_hosts();
}

void Group::join_host(std::span<const int> local) {
  HostDomain* domain = context_.host();
  AIACC_INVARIANT(domain != nullptr, "ranks of one host share memory");
  std::vector<int> domain_ranks;
  for (const int member : local) domain_ranks.push_back(context_.domain_rank_of(view_->member(member)));
  if (view_->hosts() == 1) {
    intra_team_ = std::make_unique<IntraTeam>(*domain, view_, rank(), domain_ranks);
    team_.host = intra_team_.get();
    small_calls_ = std::make_unique<intra::SmallQueue>(*intra_team_, waiting_calls_);
  } else {
    local_team_ = std::make_unique<hier::ShmLocalTeam>(*domain, team_, domain_ranks);
    team_.local = local_team_.get();
  }
  const std::vector<int> ranks(local.begin(), local.end());
  intra_messages_ = std::make_unique<IntraMessages>(*domain, view_->id(), domain_ranks, ranks, local_rank_,
                                                    static_cast<const Loans::Program*>(this));
  board_ = std::make_unique<GroupBoard>(*domain, view_->id(), std::move(domain_ranks), ranks, local_rank_, size(),
                                        static_cast<GroupBoard::Observer&>(*this));
}

void Group::join_hosts() {
  AIACC_INVARIANT(context_.messenger() != nullptr, "ranks of several hosts have a port to each other");
  team_.mailbox = &context_.messenger()->mailbox();
  team_.selector = &selector_;
  team_.mailbox->join(view_, rank());
  team_.mailbox->observe_unexpected(view_->id(), &any_receives_);
  start_window_.tell(team_.mailbox->group(view_->id()));
  if (ShortQueue::serves(*this)) small_calls_ = std::make_unique<ShortQueue>(*this, waiting_calls_);
  // Another member may have ended the group before this one joined it.
  if (const std::exception_ptr error = team_.mailbox->error_of(view_->id())) aborted_between_hosts(error);
}

Group::~Group() {
  if (!spans_hosts()) return;
  small_calls_.reset();  // before what it refers to
  team_.mailbox->observe_unexpected(view_->id(), nullptr);
  context_.messenger()->forget(view_->id(), collectives());
}

LastCalls Group::last_calls(std::uint64_t last) const {
  LastCalls calls;
  calls.collectives = last;
  calls.pairs_are_known = pairs_.used() <= LastCalls::kMostPairs;
  if (!calls.pairs_are_known) return calls;
  pairs_.for_each([&](bool sends, int rank, std::uint32_t tag, std::uint64_t count) {
    calls.pairs.push_back({static_cast<int>(view_->member(rank).id), tag, sends, count});
  });
  return calls;
}

void Group::say_last(std::uint64_t more) noexcept {
  if (std::exchange(said_last_, true)) return;
  if (board_ != nullptr) board_->say_last();
  if (!spans_hosts()) return;
  try {
    context_.messenger()->say_last(view_->id(), last_calls(collectives() + more));
  } catch (const std::bad_alloc&) {  // they wait for their time-out
  }
}

void Group::say_done() noexcept {
  if (this != &context_.world()) static_cast<void>(may_close([](int) { return false; }));
}

// A member creates its board last, so a member whose board exists has created all its lines.
Task<void> Group::open(Stop& stop) {
  if (open_) co_return;
  co_await board_->open(stop);
  if (intra_team_ != nullptr) co_await intra_team_->open(stop);
  if (local_team_ != nullptr) co_await local_team_->open(stop);
  co_await intra_messages_->open(stop);
  open_ = true;
  gate_.give_up();
}

Task<void> Group::close(Memory memory) {
  if (opening_) {
    opening_stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the group is closing")));
    Stop none;
    co_await opening_ended_.wait(none);
  }
  if (board_ != nullptr) co_await board_->close();
  if (memory == Memory::kMayBeRead) co_return;
  if (intra_team_ != nullptr) intra_team_->set_closed();
  if (local_team_ != nullptr) local_team_->set_closed();
}

Task<void> Group::wait_until_open(Stop& stop) {
  if (!open_ && !opening_) {
    opening_.emplace(loop(), open(opening_stop_), static_cast<Root::Owner&>(*this));
    opening_->start();
  }
  co_await TurnQueue::Await(gate_, loop(), stop);
  gate_.give_up();
}

void Group::root_ended(Root&, std::exception_ptr error) noexcept {
  opening_ended_.set();
  if (error && !opening_stop_.requested()) abort(error);
}

bool Group::wants_choices() const noexcept { return context_.takes_notes(); }

bool Group::waits() const noexcept { return context_.lane().present_wait() != 0; }

void Group::chosen(const std::string& sentence) noexcept {
  try {
    context_.note(fmt::format("{}: {}", describe(), sentence));
  } catch (const std::bad_alloc&) {  // the call goes on all the same
  }
}

void Group::no_permitted_algorithm(const std::string& sentence) noexcept {
  try {
    context_.report(fmt::format("{}: {}", describe(), sentence));
  } catch (const std::bad_alloc&) {  // the call goes on all the same
  }
}

std::string Group::describe() const { return fmt::format("{} of {} rank{}", name_, size(), size() == 1 ? "" : "s"); }

void Group::run(const Call& call, const Buffer& send, const Buffer& recv, const CallOptions* options) {
  Lane& lane = context_.lane();
  {
    Lane::Hold hold(lane);
    if (hold.owns()) {
      const bool plain = options == nullptr && !traffic_class_;
      if (plain && finish_small(call, send, recv, intra::SmallWait::kYieldsToo)) return;
      return run_held(call, send, recv, options, hold);
    }
  }
  GroupOperation operation(*this, call, send, recv, options != nullptr ? *options : CallOptions{});
  lane.run(operation);
  if (operation.error()) std::rethrow_exception(operation.error());
}

// The first of the three paths (docs/architecture.md): a small call on one host, of one cache line or a few, without an operation, a
// coroutine frame or a deadline. If it returns false, the call continues as an operation.
template <class Try>
bool Group::finish_by(const Call& call, Try&& try_small) noexcept {
  if (intra_team_ == nullptr || !is_open() || stop_.requested() || board_->anything_posted()) return false;
  if (!team_.compute.works_inline()) return false;
  Recorder& recorder = context_.recorder();
  const auto record = [&] { recorder.prepare(recorded_as_, collectives() + 1, call, loop().about_now()); };
  if (try_small(record) != intra::Small::kDone) return false;
  board_->arrived(count_collective());
  recorder.add_prepared();
  return true;
}

bool Group::run_in_place(const Call& call, const Buffer& buffer, intra::InPlace& caller) {
  Lane& lane = context_.lane();
  {
    Lane::Hold hold(lane);
    if (hold.owns()) {
      intra::Small done = intra::Small::kNotServed;
      const auto attempt = [&](const auto& record) {
        return done = intra::try_small(*intra_team_, call, caller, intra::SmallWait::kYieldsToo, record);
      };
      if (!traffic_class_ && finish_by(call, attempt)) return true;
      // A contribution that has been written is where the others read it, and run_held() does not look for it in the buffer.
      if (done != intra::Small::kBegun) caller.write(buffer.data);
      if (!traffic_class_ && finish_small(call, buffer, buffer, intra::SmallWait::kYieldsToo)) return false;
      run_held(call, buffer, buffer, nullptr, hold);
      return false;
    }
  }
  caller.write(buffer.data);
  run(call, buffer, buffer, nullptr);
  return false;
}

// By itself because of what it has on the stack: g++ sets an empty ShortCall's 2 KiB to zero, which takes as long as a small call.
[[gnu::noinline]] void Group::run_held(const Call& call, const Buffer& send, const Buffer& recv,
                                       const CallOptions* options, Lane::Hold& hold) {
  std::optional<inter::ShortCall> begun;
  const bool plain = options == nullptr && !traffic_class_;
  if (plain && finish_short(call, send, recv, hold, begun)) return;
  GroupOperation operation(*this, call, send, recv, options != nullptr ? *options : CallOptions{});
  if (begun) operation.go_on_with(*begun);
  hold.run(operation);
  if (operation.error()) std::rethrow_exception(operation.error());
}

bool Group::finish_small(const Call& call, const Buffer& send, const Buffer& recv, intra::SmallWait wait) noexcept {
  return finish_by(call, [&](const auto& record) {
    if (!send.on_host() || !recv.on_host()) return intra::Small::kNotServed;
    return intra::try_small(*intra_team_, call, send.data, recv.data, wait, record);
  });
}

// A small collective, if no other operation is outstanding; the other members may have begun it already. What waits may have become
// complete: if nobody looked before the loop's next turn, members that once were apart would have all further calls wait.
std::uint64_t Group::finish_at_once(const Call& call, const Buffer& send, const Buffer& recv) noexcept {
  if (traffic_class_ || is_message(call.kind)) return 0;
  if (intra_team_ == nullptr || (outstanding() != 0 && !small_calls_->catch_up())) return 0;
  return outstanding() == 0 && finish_small(call, send, recv, intra::SmallWait::kPolls) ? collectives() : 0;
}

// The second path: a short call among hosts with one member each. It starts the call and waits for it as long as this thread
// stays awake. A call that is then incomplete, or fails, continues as an operation. Every kCallsPerTurn-th call is left to the
// coroutine, because only there the loop serves everything else; but the operation of a rank that only sends ends in its first
// turn, which need not ask the kernel. Such a rank looks at what has come after every kCallsPerGlance-th call.
bool Group::finish_short(const Call& call, Buffer send, Buffer recv, Lane::Hold& hold,
                         std::optional<inter::ShortCall>& begun) noexcept {
  constexpr std::uint64_t kCallsPerTurn = 32;
  constexpr std::uint64_t kCallsPerGlance = 8;
  constexpr int kMostLooks = 32;  // checks of the call, each after some event of the loop
  if (!is_open() || stop_.requested() || collectives() % kCallsPerTurn == 0) return false;
  if (!inter::ShortCall::serves(team_, call, send, recv)) return false;
  if (call.bytes() > inter::ShortCall::kMostBytes) {
    context_.registrations().mark(send);
    context_.registrations().mark(recv);
  }
  const FramePool::Use frames(context_.lane().frames());
  forget_cyclic_receives();
  try {
    begun.emplace(team_, call, collectives() + 1, stop_, send, recv);
    count_collective();
    int looks = 0;
    for (; !begun->advance(); ++looks) {
      // Bounded: under other traffic this loop could run for long, without a deadline and without serving other work.
      if (looks == kMostLooks || !hold.stay_awake()) return false;
    }
    if (looks == 0 && collectives() % kCallsPerGlance == 0) hold.glance();
  } catch (...) {
    return false;  // the operation that continues the call reports the error
  }
  context_.recorder().add(recorded_as_, begun->sequence(), call, loop().about_now());
  return true;
}

std::unique_ptr<RequestedWork> Group::prepare_waiting(const PlainCall& call, const Buffer& send, const Buffer& recv) {
  if (!may_begin_plainly()) return nullptr;
  if (!is_message(call.kind)) return prepare_small(call, send, recv);
  const bool sends = call.kind == Collective::kSend;
  if ((!sends && call.kind != Collective::kRecv) || call.root == rank()) return nullptr;
  const Buffer& memory = sends ? send : recv;
  if (!memory.on_host()) return nullptr;
  if (const int member = intra_messages_ == nullptr ? -1 : intra_messages_->member_of(call.root); member >= 0) {
    if (sends || !intra_messages_->prepare_to_post(member, call)) return nullptr;
    return std::unique_ptr<RequestedWork>(new (context_.waiting_pool()) WaitingReceive(*this, member, call, recv));
  }
  if (!spans_hosts() || !RemoteMessage::serves(*this, call, memory)) return nullptr;
  SlabPool& pool = context_.remote_message_pool();
  if (sends) return std::unique_ptr<RequestedWork>(new (pool) RemoteSend(*this, call, send));
  return std::unique_ptr<RequestedWork>(new (pool) RemoteReceive(*this, call, recv));
}

// On one host a call behind an operation must be one too, unless that is what the queue's first has become: the queue would be
// before it.
std::unique_ptr<RequestedWork> Group::prepare_small(const PlainCall& call, const Buffer& send, const Buffer& recv) {
  if (small_calls_ == nullptr) return nullptr;
  if (GroupOperation* const first = calls_.operations.first(); first != nullptr && intra_team_ != nullptr) {
    if (!first->was_waiting() || calls_.operations.after(*first) != nullptr) return nullptr;
  }
  if (!small_calls_->prepare_to_post(call, send, recv)) return nullptr;
  return std::unique_ptr<RequestedWork>(new (context_.waiting_pool()) WaitingSmall(*this, call, send, recv));
}

std::uint64_t Group::count_collective() noexcept {
  const std::uint64_t sequence = collectives() + 1;
  collectives_.store(sequence, std::memory_order_relaxed);
  return sequence;
}

std::unique_ptr<GroupOperation> Group::prepare(const Call& call, Buffer send, Buffer recv, const CallOptions* options) {
  return std::unique_ptr<GroupOperation>(new (context_.operation_pool()) GroupOperation(
      *this, call, send, recv, options != nullptr ? *options : CallOptions{}));
}

std::uint64_t Group::admit(const Call& call) {
  check_alive();
  return next_ticket(call.kind);
}

void Group::check_alive() {
  if (!stop_.requested()) {
    if (board_ == nullptr || !board_->anything_posted()) return;
    abort(board_->posted());
  }
  // If another member aborted the group between two calls of this one, this call fails with the group's first error itself, and
  // only later calls with kAborted.
  if (!reported_) std::rethrow_exception(stop_.reason());
  const Error first = as_error(stop_.reason());
  throw Error(Code::kAborted, fmt::format("{} was aborted earlier: {}", describe(), first.message()), first.peer());
}

OperationLine& Group::line_of(const Call& call) {
  if (!is_message(call.kind)) return calls_;
  const bool from_any = call.kind == Collective::kRecvAny;
  return line_with(from_any ? Receiving::kAnyRank : call.kind == Collective::kSendrecv ? call.from : call.root);
}

void Group::find_line_with(int rank) { last_line_ = {rank, &messages_with_[rank]}; }

void Group::began(GroupOperation& operation) noexcept {
  (receives(operation.call()) ? receiving_ : others_)++;
  context_.watch().add(operation, line_of(operation.call()));
  forget_cyclic_receives();
  if (board_ != nullptr && !is_message(operation.call().kind)) board_->arrived(operation.sequence());
}

void Group::ended(const GroupOperation& operation) noexcept {
  (receives(operation.call()) ? receiving_ : others_)--;
  reported_ = reported_ || operation.error() != nullptr;
  forget_cyclic_receives();
  context_.operation_ended();
}

void Group::ended(WaitingCall& call) noexcept {
  (call.receives() ? receiving_ : others_)--;
  reported_ = reported_ || call.error() != nullptr;
  context_.watch().remove(call);
  forget_cyclic_receives();
  context_.operation_ended();
}

void Group::received(WaitingReceive& receive) noexcept {
  --receiving_;
  context_.watch().remove(receive);
  add_waiting(-1);
}

void Group::received_some() noexcept {
  forget_cyclic_receives();
  context_.operation_ended();
}

// The operation is counted as the call was.
void Group::took_over(GroupOperation& operation) noexcept {
  context_.watch().take_over(operation, line_of(operation.call()));
}

// For an error that this rank has found: members on this host are notified through the board, those on other hosts by messages.
void Group::abort(std::exception_ptr error) noexcept {
  if (std::exchange(ended_, true)) return;
  if (board_ != nullptr) board_->post_abort(error);
  if (spans_hosts()) context_.messenger()->aborts().abort(view_, rank(), error);
  end(std::move(error));
}

void Group::aborted_between_hosts(const std::exception_ptr& error) noexcept {
  if (std::exchange(ended_, true)) return;
  if (board_ != nullptr) board_->post_abort(error);
  end(error);
}

void Group::end(std::exception_ptr error) noexcept {
  const Error cause = as_error(error);
  if (cause.code() == Code::kPeerFailed && cause.peer() >= 0 && cause.peer() < size()) {
    context_.lost_peer(view_->member(cause.peer()));
  }
  if (cause.code() == Code::kUnreachable) context_.lost_path(cause.message());
  stop_.request(std::move(error));
  context_.group_failed(*this, cause);
}

Task<void> Group::tell_of_end() {
  Stop none;
  if (!has_told_of_end()) co_await context_.messenger()->flush(none);
  told_of_end_ = true;
}

bool Group::has_told_of_end() const noexcept {
  return told_of_end_ || !spans_hosts() || context_.messenger()->flushed();
}

void Group::abort_by_user(const std::string& reason) noexcept {
  try {
    abort(std::make_exception_ptr(
        Error(Code::kAborted, fmt::format("rank {} aborted {}: {}", rank(), describe(), reason), rank())));
  } catch (...) {
    abort(std::current_exception());
  }
  reported_ = true;
}

void Group::aborted_by_member(std::exception_ptr error) noexcept { abort(std::move(error)); }

void Group::member_lost(const Member& member, const std::exception_ptr& error) noexcept {
  const int lost = view_->rank_of(member);
  if (lost < 0 || ended_) return;
  if (lost == static_cast<int>(member.id)) return abort(error);
  // The sentence speaks of the rank in the world.
  const Error cause = as_error(error);
  abort(std::make_exception_ptr(
      Error(cause.code(), fmt::format("{} has lost its rank {}: {}", describe(), lost, cause.message()), lost)));
}

void Group::path_lost(const Member& member, const std::string& sentence) {
  const int other = view_->rank_of(member);
  if (other < 0 || ended_) return;
  const int lower = std::min(rank(), other);
  const int higher = std::max(rank(), other);
  // The sentence speaks of ranks in the world.
  const bool alike = other == static_cast<int>(member.id) && rank() == static_cast<int>(view_->member(rank()).id);
  abort(std::make_exception_ptr(ErrorAbout(
      Code::kUnreachable,
      alike ? sentence
            : fmt::format("{} cannot go on without its ranks {} and {}: {}", describe(), lower, higher, sentence),
      {lower, higher})));
}

}  // namespace aiacc
