// Who holds up an operation of a group: members that have not come, ranks that others wait for, receivers that nobody sends to.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/context.h"
#include "runtime/group.h"
#include "transports/exchange.h"

namespace aiacc {
namespace {

// "rank 3 has not arrived", "ranks 3, 5 have not arrived".
std::string named(const std::vector<int>& ranks, const char* one, const char* several) {
  constexpr std::size_t kNamed = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < kNamed; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kNamed) text += fmt::format(" and {} more", ranks.size() - kNamed);
  return fmt::format("{} {}", text, ranks.size() == 1 ? one : several);
}

}  // namespace

// Messages within a host are not in the mailbox.
bool Group::crosses_hosts(const GroupOperation& operation) const noexcept {
  return spans_hosts() &&
         (!is_message(operation.call().kind) || (operation.wire_sequence() & Exchange::kPairSequence) != 0);
}

void Group::investigate(GroupOperation& operation) noexcept {
  try {
    if (&operation == oldest_receive()) look_for_circle(operation);
    end_if_freed(operation);
  } catch (const std::bad_alloc&) {  // nothing is known then
    search_.reset();
  }
  if (!crosses_hosts(operation)) return;
  const std::uint64_t sequence = operation.wire_sequence();
  team_.mailbox->investigate(view_->id(), sequence);
  if (operation.last_question() && operation.call().kind == Collective::kBarrier) {
    team_.mailbox->survey(view_->id(), sequence);
  }
}

// A member of this host that has freed the group before it made this call never makes it.
void Group::end_if_freed(GroupOperation& operation) {
  if (board_ == nullptr || !open_ || is_message(operation.call().kind)) return;
  const std::vector<int> missing = board_->missing(operation.sequence());
  for (const int freed : board_->done_here()) {
    if (std::find(missing.begin(), missing.end(), freed) == missing.end()) continue;
    return operation.stop(std::make_exception_ptr(
        Error(Code::kMismatch,
              Mailbox::freed_too_early(rank(), operation.call().describe(), operation.sequence(), freed), freed)));
  }
}

// A network that lets agents talk and ranks not is nobody's death: it is told with what waits.
GroupOperation::Holdup Group::holdup(GroupOperation& operation) {
  // Those on this host may have said it since the last question.
  if (operation.circle.ranks.empty() && &operation == oldest_receive()) look_for_circle(operation);
  if (!operation.circle.ranks.empty()) return operation.circle;
  GroupOperation::Holdup known = missing(operation);
  if (!crosses_hosts(operation)) return known;
  int others = 0;
  std::string first;
  for (const Member& member : view_->members()) {
    std::string obstacle = context_.obstacle(member);
    if (obstacle.empty()) continue;
    if (first.empty()) {
      first = std::move(obstacle);
    } else {
      ++others;
    }
  }
  if (first.empty()) return known;
  if (others > 0) first += fmt::format(" (and {} more of this group)", others);
  known.text = known.text.empty() ? first : fmt::format("{}; {}", known.text, first);
  return known;
}

GroupOperation::Holdup Group::missing(const GroupOperation& operation) {
  std::vector<int> ranks;
  if (board_ != nullptr && !is_message(operation.call().kind)) {
    const std::vector<int> absent = board_->not_here();
    if (!absent.empty()) return {named(absent, "has not made this group", "have not made this group"), absent};
    ranks = board_->missing(operation.sequence());
    if (!ranks.empty() && ranks == board_->done_here()) return {named(ranks, "has freed it", "have freed it"), ranks};
  }
  if (crosses_hosts(operation)) {
    const std::vector<int> elsewhere = team_.mailbox->not_begun(view_->id(), operation.wire_sequence());
    ranks.insert(ranks.end(), elsewhere.begin(), elsewhere.end());
    std::sort(ranks.begin(), ranks.end());
  }
  if (!ranks.empty()) return {named(ranks, "has not arrived", "have not arrived"), ranks};
  if (!crosses_hosts(operation)) return {};
  const Mailbox::Suspicion suspicion = team_.mailbox->suspicion(view_->id(), operation.wire_sequence());
  if (suspicion.kind != Mailbox::Suspicion::Kind::kNobody) return {suspicion.text(), {suspicion.rank}};
  ranks = team_.mailbox->waited_for(view_->id(), operation.wire_sequence());
  return {ranks.empty() ? "" : named(ranks, "is waited for", "are waited for"), ranks};
}

// --- receivers that wait for each other ---------------------------------------------------------------------------------

// Null if anything of this group is under way that may send.
GroupOperation* Group::oldest_receive() noexcept {
  GroupOperation* oldest = nullptr;
  bool sends = false;
  context_.watch().for_each([&](GroupOperation& operation) {
    if (&operation.group_ != this) return;
    const Collective kind = operation.call().kind;
    sends = sends || (kind != Collective::kRecv && kind != Collective::kRecvAny);
    if (oldest == nullptr || operation.sequence() < oldest->sequence()) oldest = &operation;
  });
  return sends ? nullptr : oldest;
}

void Group::look_for_circle(GroupOperation& operation) {
  operation.circle = {};
  if (!open_) return;
  if (spans_hosts() && team_.mailbox->arriving(view_->id())) return forget_circle();
  receives_ = &operation;
  if (host_post_ != nullptr) {
    const CallSummary call = operation.call().summary();
    host_post_->state_receiving(&call);
  }
  search_.emplace(rank(), size(), receiving());
  go_on_searching();
}

void Group::go_on_searching() {
  const auto of = [](const std::optional<CallSummary>& call) {
    if (!call) return Receiving{};
    return Receiving{call->kind == Collective::kRecvAny ? Receiving::kAnyRank : call->root, call->describe()};
  };
  for (std::vector<int> next = search_->to_ask(); !next.empty(); next = search_->to_ask()) {
    for (const int member : next) {
      if (host_post_ != nullptr && host_post_->reaches(member)) {
        search_->told(member, of(host_post_->receiving_of(member)));
      } else {
        team_.mailbox->ask_receiving(view_->id(), member);
      }
    }
  }
  if (!search_->is_closed()) return;
  receives_->circle = {search_->sentence(), search_->ranks()};
  if (!std::exchange(receives_->reported_circle, true)) context_.watch().report_circle(*receives_);
}

Receiving Group::receiving() const {
  if (receives_ == nullptr) return {};
  const Call& call = receives_->call();
  return {call.kind == Collective::kRecvAny ? Receiving::kAnyRank : call.root, call.describe()};
}

void Group::receiving_told(int member, const Receiving& said) noexcept {
  if (!search_ || receives_ == nullptr) return;
  try {
    search_->told(member, said);
    go_on_searching();
  } catch (const std::bad_alloc&) {
    search_.reset();
  }
}

void Group::forget_circle() noexcept {
  if (receives_ == nullptr) return;
  receives_->circle = {};
  receives_ = nullptr;
  search_.reset();
  if (host_post_ != nullptr) host_post_->state_receiving(nullptr);
}

}  // namespace aiacc
