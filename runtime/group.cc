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

bool is_message(const Call& call) noexcept { return call.kind == Collective::kSend || call.kind == Collective::kRecv; }

}  // namespace

Group::Group(Context& context, ViewPtr view, int rank, std::string name)
    : context_(context),
      view_(std::move(view)),
      name_(std::move(name)),
      team_{view_, rank, context.lane().loop(), context.compute()} {
  const auto local = view_->ranks_on_host_of(rank);
  local_rank_ = static_cast<int>(std::find(local.begin(), local.end(), rank) - local.begin());
  host_index_ = host_index_of(*view_, rank);
  HostDomain* domain = context_.host();
  if (domain == nullptr || local.size() == 1) return;
  std::vector<int> domain_ranks;
  for (const int member : local) domain_ranks.push_back(context_.domain_rank_of(view_->member(member)));
  host_team_ = std::make_unique<HostTeam>(*domain, view_, rank, domain_ranks);
  const std::vector<int> ranks(local.begin(), local.end());
  host_post_ = std::make_unique<HostPost>(*domain, view_->id(), domain_ranks, ranks, local_rank_);
  board_ = std::make_unique<GroupBoard>(*domain, view_->id(), std::move(domain_ranks), ranks, local_rank_,
                                        static_cast<GroupBoard::Observer&>(*this));
  team_.host = host_team_.get();
}

Group::~Group() = default;

Task<void> Group::open(Stop& stop) {
  if (host_team_ == nullptr) co_return;
  co_await host_team_->open(stop);
  co_await host_post_->open(stop);
  co_await board_->open(stop);
}

Task<void> Group::close() {
  if (board_ != nullptr) co_await board_->close();
}

std::string Group::describe() const { return fmt::format("{} of {} rank{}", name_, size(), size() == 1 ? "" : "s"); }

void Group::run(const Call& call, Buffer send, Buffer recv, const CallOptions* options) {
  Lane& lane = context_.lane();
  {
    Lane::Hold hold(lane);
    if (hold.owns()) {
      if (options == nullptr && finish_small(call, send, recv)) return;
      GroupOperation operation(*this, call, send, recv, options != nullptr ? *options : CallOptions{});
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
  if (host_team_ == nullptr || stop_.requested() || board_->anything_posted()) return false;
  if (host::try_small(*host_team_, call, send.data, recv.data) != host::Small::kDone) return false;
  board_->arrived(++collectives_);
  return true;
}

std::unique_ptr<GroupOperation> Group::prepare(const Call& call, Buffer send, Buffer recv, const CallOptions* options) {
  return std::make_unique<GroupOperation>(*this, call, send, recv, options != nullptr ? *options : CallOptions{});
}

void Group::check_alive() {
  if (!stop_.requested()) {
    if (board_ == nullptr || !board_->anything_posted()) return;
    // This member was away when another aborted the group. This call is the one that fails with the first error itself.
    abort(board_->posted());
    std::rethrow_exception(stop_.reason());
  }
  const Error first = as_error(stop_.reason());
  throw Error(Code::kAborted, fmt::format("{} was aborted earlier: {}", describe(), first.message()), first.peer());
}

std::uint64_t Group::next_ticket(const Call& call) noexcept { return is_message(call) ? ++messages_ : ++collectives_; }

void Group::began(GroupOperation& operation) noexcept {
  context_.watch().add(operation);
  if (board_ != nullptr && !is_message(operation.call())) board_->arrived(operation.sequence());
}

void Group::ended() noexcept { context_.operation_ended(); }

std::vector<int> Group::missing(const GroupOperation& operation) const {
  if (board_ == nullptr || is_message(operation.call())) return {};
  return board_->missing(operation.sequence());
}

Duration Group::default_timeout() const noexcept { return context_.config().timeout; }

void Group::abort(std::exception_ptr error) noexcept {
  if (stop_.requested()) return;
  if (board_ != nullptr) board_->post_abort(error);
  stop_.request(std::move(error));
}

void Group::aborted_by_member(std::exception_ptr error) noexcept { abort(std::move(error)); }

void Group::member_lost(const Member& member, const std::exception_ptr& error) noexcept {
  if (view_->rank_of(member) >= 0) abort(error);
}

}  // namespace aiacc
