#include "runtime/group.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/host/small.h"
#include "runtime/context.h"

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
      recorded_as_{view_->id(), Label<48>(std::string_view(name_).substr(0, name_.find_last_not_of(',') + 1))},
      timeout_(timeout),
      team_{view_, rank, context.lane().loop(), context.compute()},
      opening_ended_(context.lane().loop()) {
  const auto local = view_->ranks_on_host_of(rank);
  local_rank_ = static_cast<int>(std::find(local.begin(), local.end(), rank) - local.begin());
  host_index_ = host_index_of(*view_, rank);
  open_ = local.size() == 1;
  if (local.size() > 1) join_host(local);
  if (view_->hosts() > 1) join_hosts();
}

void Group::join_host(std::span<const int> local) {
  HostDomain* domain = context_.host();
  AIACC_INVARIANT(domain != nullptr, "ranks of one host share memory");
  std::vector<int> domain_ranks;
  for (const int member : local) domain_ranks.push_back(context_.domain_rank_of(view_->member(member)));
  host_team_ = std::make_unique<HostTeam>(*domain, view_, rank(), domain_ranks);
  const std::vector<int> ranks(local.begin(), local.end());
  host_post_ = std::make_unique<HostPost>(*domain, view_->id(), domain_ranks, ranks, local_rank_);
  board_ = std::make_unique<GroupBoard>(*domain, view_->id(), std::move(domain_ranks), ranks, local_rank_,
                                        static_cast<GroupBoard::Observer&>(*this));
  team_.host = host_team_.get();
}

void Group::join_hosts() {
  team_.mailbox = context_.mailbox();
  AIACC_INVARIANT(team_.mailbox != nullptr, "ranks of several hosts have a port to each other");
  team_.mailbox->join(view_, rank());
  // A member that was quicker may have ended the group already.
  if (const std::exception_ptr error = team_.mailbox->error_of(view_->id())) abort(error);
}

Group::~Group() {
  if (team_.mailbox != nullptr) team_.mailbox->forget(view_->id(), collectives());
}

// The board is the last that a member makes: whose board is there has the rest.
Task<void> Group::open(Stop& stop) {
  if (open_) co_return;
  co_await board_->open(stop);
  co_await host_team_->open(stop);
  co_await host_post_->open(stop);
  open_ = true;
}

Task<void> Group::close() {
  if (opening_) {
    opening_stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the group is closing")));
    Stop none;
    co_await opening_ended_.wait(none);
  }
  if (board_ != nullptr) co_await board_->close();
  if (host_team_ != nullptr) host_team_->set_closed();
}

void Group::start(GroupOperation& operation) {
  if (open_ || stop_.requested()) {
    operation.running_->root->start();
    return;
  }
  held_.push_back(&operation);
  if (opening_) return;
  opening_.emplace(loop(), open(opening_stop_), static_cast<Root::Owner&>(*this));
  opening_->start();
}

void Group::start_held() noexcept {
  while (!held_.empty()) {
    GroupOperation& next = *held_.front();
    held_.pop_front();
    next.running_->root->start();
  }
}

// They find out by themselves that they are stopped. Not from inside of what stops them, which still looks at them.
void Group::start_stopped() noexcept {
  for (std::size_t i = 0; i < held_.size();) {
    GroupOperation& next = *held_[i];
    if (next.running_->stop.requested()) {
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
      next.running_->root->start();
      i = 0;  // its end may have started others
    } else {
      ++i;
    }
  }
}

void Group::root_ended(Root&, std::exception_ptr error) noexcept {
  opening_ended_.set();
  if (error && !opening_stop_.requested()) abort(error);
  if (error) return start_stopped_soon();
  start_held();
}

std::string Group::describe() const { return fmt::format("{} of {} rank{}", name_, size(), size() == 1 ? "" : "s"); }

void Group::run(const Call& call, Buffer send, Buffer recv, const CallOptions* options) {
  Lane& lane = context_.lane();
  {
    Lane::Hold hold(lane);
    if (hold.owns()) {
      std::optional<net::ShortCall> begun;
      if (options == nullptr && (finish_small(call, send, recv) || finish_short(call, send, recv, hold, begun))) return;
      GroupOperation operation(*this, call, send, recv, options != nullptr ? *options : CallOptions{});
      if (begun) operation.go_on_with(*begun);
      hold.run(operation);
      if (operation.error()) std::rethrow_exception(operation.error());
      return;
    }
  }
  GroupOperation operation(*this, call, send, recv, options != nullptr ? *options : CallOptions{});
  lane.run(operation);
  if (operation.error()) std::rethrow_exception(operation.error());
}

// The fast path: calls of at most one cache line on one host, without an operation, a frame or a deadline. What it leaves
// undone goes on as an operation.
bool Group::finish_small(const Call& call, Buffer send, Buffer recv) noexcept {
  if (host_team_ == nullptr || !open_ || spans_hosts() || stop_.requested() || board_->anything_posted()) return false;
  if (host::try_small(*host_team_, call, send.data, recv.data) != host::Small::kDone) return false;
  const std::uint64_t sequence = count_collective();
  board_->arrived(sequence);
  context_.recorder().add(recorded_as_, sequence, call, loop().about_now());
  return true;
}

// The same between hosts with one member each: a call that is begun, and ends while this thread stays awake. What is not
// done then, or fails, goes on as an operation. Some calls go the long way, on which the loop looks at all else.
bool Group::finish_short(const Call& call, Buffer send, Buffer recv, Lane::Hold& hold,
                         std::optional<net::ShortCall>& begun) noexcept {
  constexpr std::uint64_t kCallsPerTurn = 32;
  constexpr int kMostLooks = 32;  // that brought something
  if (!open_ || stop_.requested() || collectives() % kCallsPerTurn == 0) return false;
  if (!net::ShortCall::serves(team_, call, send, recv)) return false;
  const FramePool::Use frames(context_.lane().frames());
  forget_circle();
  try {
    begun.emplace(team_, call, collectives() + 1, stop_, send, recv);
    count_collective();
    for (int looks = 0; !begun->advance(); ++looks) {
      // While other traffic passes nothing else would be looked at, and this call has no deadline.
      if (looks == kMostLooks || !hold.stay_awake()) return false;
    }
  } catch (...) {
    return false;  // the operation ends with it
  }
  context_.recorder().add(recorded_as_, begun->sequence(), call, loop().about_now());
  return true;
}

std::uint64_t Group::count_collective() noexcept {
  const std::uint64_t sequence = collectives() + 1;
  collectives_.store(sequence, std::memory_order_relaxed);
  return sequence;
}

std::unique_ptr<GroupOperation> Group::prepare(const Call& call, Buffer send, Buffer recv, const CallOptions* options) {
  return std::make_unique<GroupOperation>(*this, call, send, recv, options != nullptr ? *options : CallOptions{});
}

void Group::check_alive() {
  if (!stop_.requested()) {
    if (board_ == nullptr || !board_->anything_posted()) return;
    abort(board_->posted());
  }
  // If this member was away when another aborted the group, this call is the one that fails with the first error itself.
  if (!told_) std::rethrow_exception(stop_.reason());
  const Error first = as_error(stop_.reason());
  throw Error(Code::kAborted, fmt::format("{} was aborted earlier: {}", describe(), first.message()), first.peer());
}

std::uint64_t Group::next_ticket(const Call& call) noexcept {
  return is_message(call.kind) ? ++messages_ : count_collective();
}

void Group::began(GroupOperation& operation) noexcept {
  context_.watch().add(operation);
  forget_circle();
  if (board_ != nullptr && !is_message(operation.call().kind)) board_->arrived(operation.sequence());
}

void Group::ended(bool well) noexcept {
  told_ = told_ || !well;
  forget_circle();
  context_.operation_ended();
}

Duration Group::default_timeout() const noexcept { return timeout_; }

void Group::abort(std::exception_ptr error) noexcept {
  if (ended_) return;  // both boards tell each other through here
  ended_ = true;
  const Error cause = as_error(error);
  if (cause.code() == Code::kPeerFailed && cause.peer() >= 0 && cause.peer() < size()) {
    context_.lost_peer(view_->member(cause.peer()));
  }
  if (board_ != nullptr) board_->post_abort(error);
  if (spans_hosts()) team_.mailbox->abort(view_, rank(), error);
  stop_.request(std::move(error));
  start_stopped_soon();
  context_.group_failed(*this, cause);
}

void Group::abort_by_user(const std::string& reason) noexcept {
  try {
    abort(std::make_exception_ptr(
        Error(Code::kAborted, fmt::format("rank {} aborted {}: {}", rank(), describe(), reason), rank())));
  } catch (...) {
    abort(std::current_exception());
  }
  told_ = true;
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

}  // namespace aiacc
