// The straggler diagnosis of a group's operations: members that have not arrived, ranks that others wait for, receivers
// without a sender.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/context.h"
#include "runtime/group/group.h"

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

std::string left_too_early(int rank, const std::string& call, std::uint64_t sequence, int left) {
  return fmt::format(
      "rank {} called {} (operation {} of the world), but rank {} has left the job: all ranks make the same calls "
      "before they leave",
      rank, call, sequence, left);
}

}  // namespace

// Whether the operation is known to the mailbox: messages within a host are not.
bool Group::crosses_hosts(const GroupOperation& operation) const noexcept {
  return spans_hosts() && (!is_message(operation.call().kind) || operation.wire_id().is_pair());
}

void Group::investigate(GroupOperation& operation) noexcept {
  try {
    if (&operation == oldest_receive()) look_for_cyclic_receives(operation);
  } catch (const std::bad_alloc&) {  // without memory there is no search
    search_.reset();
  }
  look_for_leavers(operation);
  if (!crosses_hosts(operation)) return;
  // Nobody knows of one that waits for its turn: what holds up the oldest holds up that.
  const bool waits = !is_message(operation.call().kind) && start_window_.makes_wait(operation.sequence());
  const GroupOperation& asked = waits ? operation.line->operations.front() : operation;
  context_.messenger()->stragglers().investigate(view_->id(), asked.wire_id());
  if (operation.last_question() && operation.call().kind == Collective::kBarrier) {
    context_.messenger()->stragglers().survey(view_->id(), operation.wire_id());
  }
}

void Group::look_for_leavers(const GroupOperation& operation) noexcept {
  try {
    end_if_freed(operation);
    end_if_nobody_sends(operation);
  } catch (const std::bad_alloc&) {  // the next look may have more
  }
}

// Ends the group if a member of this host has freed it without making this call.
void Group::end_if_freed(const GroupOperation& operation) {
  if (board_ == nullptr || !open_ || is_message(operation.call().kind)) return;
  const std::vector<int> done = board_->done_here();  // first: who is done by now has said how far it came
  if (done.empty()) return;
  const std::vector<int> missing = board_->missing(operation.sequence());
  for (const int freed : done) {
    if (std::find(missing.begin(), missing.end(), freed) == missing.end()) continue;
    if (std::exception_ptr error = board_->abort_of(freed)) return abort(std::move(error));
    const std::string call = operation.call().describe();
    std::string sentence = this == &context_.world()
                               ? left_too_early(rank(), call, operation.sequence(), freed)
                               : Stragglers::freed_too_early(rank(), call, operation.sequence(), freed);
    return abort(std::make_exception_ptr(Error(Code::kMismatch, std::move(sentence), freed)));
  }
}

// Ends the group if the operation waits for a message of a member of this host that has left without sending it.
void Group::end_if_nobody_sends(const GroupOperation& operation) {
  if (board_ == nullptr || !open_ || ended_) return;
  const Call& call = operation.call();
  if (call.kind != Collective::kRecv && call.kind != Collective::kSendrecv) return;
  const int from = call.kind == Collective::kRecv ? call.root : call.from;
  const int member = from == rank() ? -1 : intra_messages_->member_of(from);
  if (member < 0 || !board_->has_said_last(member) || !intra_messages_->waits_for_more(member)) return;
  if (std::exception_ptr error = board_->abort_of(from)) return abort(std::move(error));
  if (!board_->keeps_lines(member)) return;
  abort(std::make_exception_ptr(
      Error(Code::kMismatch, Stragglers::left_without_message(rank(), call.describe(), from, this == &context_.world()),
            from)));
}

GroupOperation::Stragglers Group::stragglers(GroupOperation& operation) {
  GroupOperation::Stragglers known = diagnose(operation);
  if (!known.text.empty()) known.text.insert(0, "; ");
  return known;
}

// An unreachable data network is not a rank failure; it is reported with the stalled operation.
GroupOperation::Stragglers Group::diagnose(GroupOperation& operation) {
  // Members on this host may have stated since the last check that they only receive.
  if (operation.cycle.ranks.empty() && &operation == oldest_receive()) look_for_cyclic_receives(operation);
  if (!operation.cycle.ranks.empty()) return operation.cycle;
  GroupOperation::Stragglers known = missing(operation);
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

GroupOperation::Stragglers Group::missing(const GroupOperation& operation) {
  std::vector<int> ranks;
  if (board_ != nullptr && !is_message(operation.call().kind)) {
    const std::vector<int> absent = board_->not_here();
    if (!absent.empty()) return {named(absent, "has not made this group", "have not made this group"), absent};
    ranks = board_->missing(operation.sequence());
    if (!ranks.empty() && ranks == board_->done_here()) return {named(ranks, "has freed it", "have freed it"), ranks};
  }
  if (crosses_hosts(operation)) {
    const std::vector<int> elsewhere = context_.messenger()->stragglers().not_begun(view_->id(), operation.wire_id());
    ranks.insert(ranks.end(), elsewhere.begin(), elsewhere.end());
    std::sort(ranks.begin(), ranks.end());
  }
  if (!ranks.empty()) return {named(ranks, "has not arrived", "have not arrived"), ranks};
  if (!crosses_hosts(operation)) return {};
  StragglerDiagnosis diagnosis = context_.messenger()->stragglers().diagnosis(view_->id(), operation.wire_id());
  // A straggler of the oldest operation delays its whole line.
  if (diagnosis.kind == StragglerDiagnosis::Kind::kNobody) {
    diagnosis = context_.messenger()->stragglers().diagnosis(view_->id(), operation.line->operations.front().wire_id());
  }
  if (diagnosis.kind != StragglerDiagnosis::Kind::kNobody) return {diagnosis.text(), {diagnosis.rank}};
  ranks = team_.mailbox->waited_for(view_->id(), operation.wire_id());
  return {ranks.empty() ? "" : named(ranks, "is waited for", "are waited for"), ranks};
}

// --- receivers that wait for each other ---------------------------------------------------------------------------------

// The oldest running receive; null if an operation runs in the group that may send.
GroupOperation* Group::oldest_receive() noexcept {
  if (others_ > 0) return nullptr;
  GroupOperation* oldest = nullptr;
  std::uint64_t waiting = ~std::uint64_t{0};  // the oldest that the watch has made no operation yet
  for (auto& [rank, line] : messages_with_) {
    if (!line.waiting.empty()) waiting = std::min(waiting, line.waiting.front().sequence());
    if (line.operations.empty()) continue;
    GroupOperation& first = line.operations.front();
    if (oldest == nullptr || first.sequence() < oldest->sequence()) oldest = &first;
  }
  return oldest != nullptr && oldest->sequence() < waiting ? oldest : nullptr;
}

// Programs often post receives early. A rank therefore states that it only receives if its user has been waiting since the last
// check.
void Group::look_for_cyclic_receives(GroupOperation& operation) {
  operation.cycle = {};
  const std::uint64_t wait = context_.lane().present_wait();
  const bool blocked = wait != 0 && std::exchange(wait_seen_, wait) == wait;
  // The first check of a wait, and the first one that states it, are repeated soon, because other members check at about
  // the same time.
  if (wait != 0 && receives_ == nullptr) operation.restart_questions(loop().now());
  if (!open_ || !blocked) return forget_cyclic_receives();
  if (spans_hosts() && team_.mailbox->arriving(view_->id())) return forget_cyclic_receives();
  receives_ = &operation;
  if (intra_messages_ != nullptr) {
    const CallSummary call = operation.call().summary();
    intra_messages_->state_receiving(&call);
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
      if (intra_messages_ != nullptr && intra_messages_->reaches(member)) {
        search_->answered(member, of(intra_messages_->receiving_of(member)));
      } else {
        context_.messenger()->stragglers().ask_receiving(view_->id(), member);
      }
    }
  }
  if (!search_->is_closed()) return;
  receives_->cycle = {search_->sentence(), search_->ranks()};
  if (!std::exchange(receives_->reported_cycle, true)) context_.watch().report_cycle(*receives_);
}

Receiving Group::receiving() const {
  if (receives_ == nullptr || context_.lane().present_wait() != wait_seen_) return {};
  const Call& call = receives_->call();
  return {call.kind == Collective::kRecvAny ? Receiving::kAnyRank : call.root, call.describe()};
}

void Group::receiving_reported(int member, const Receiving& said) noexcept {
  if (!search_ || receives_ == nullptr) return;
  try {
    search_->answered(member, said);
    go_on_searching();
  } catch (const std::bad_alloc&) {
    search_.reset();
  }
}

void Group::withdraw_cyclic_receives() noexcept {
  receives_->cycle = {};
  receives_ = nullptr;
  search_.reset();
  if (intra_messages_ != nullptr) intra_messages_->state_receiving(nullptr);
}

}  // namespace aiacc
