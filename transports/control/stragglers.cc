#include "transports/control/stragglers.h"

#include <fmt/format.h>

#include <algorithm>

#include "transports/exchange.h"

namespace aiacc {
namespace {

using State = wire::OperationState::State;

// This rank's exchange for the operation of a question. A rank that follows a chain of waits also asks ranks with which it
// exchanges no message itself; the question then means the oldest message of the asked rank, if it has the same number.
Exchange* find_asked(MatchGroup& group, const WireId& operation) noexcept {
  if (Exchange* const exact = group.find(operation); exact != nullptr) return exact;
  if (!operation.is_pair() || group.messages.empty()) return nullptr;
  Exchange& oldest = group.messages.front();
  return oldest.id().sequence == operation.sequence ? &oldest : nullptr;
}

// The half of this message without which it cannot end: what the other rank of the pair must call. A send that does not wait for its
// CTS ends without a receive.
wire::WhereIs::Half missing_half(Exchange& exchange) noexcept {
  auto half = wire::WhereIs::kOther;
  exchange.parts().for_each([&](const PostedRequest& request) {
    if (request.kind() == PostedRequest::Kind::kRecv) {
      half = wire::WhereIs::kSend;
    } else if (static_cast<const PostedSend&>(request).awaits_cts()) {
      half = wire::WhereIs::kReceive;
    }
  });
  return half;
}

bool elsewhere(const MatchGroup& group, int rank) noexcept {
  return group.view->host_of(rank) != group.view->host_of(group.rank);
}

}  // namespace

std::string StragglerDiagnosis::text() const {
  switch (kind) {
    case Kind::kNobody: return "no rank is known to hold it up";
    case Kind::kSilent: return fmt::format("rank {} does not answer", rank);
    case Kind::kNotBegun: return fmt::format("rank {} has not made this call", rank);
    case Kind::kFinished: return fmt::format("rank {} has ended this call already", rank);
    case Kind::kWorking: return fmt::format("rank {} is still at work on it", rank);
    case Kind::kEachOther: return fmt::format("rank {} waits for this rank, which waits for it", rank);
    case Kind::kNoGroup: return fmt::format("rank {} has not made this group", rank);
    case Kind::kFreed: return fmt::format("rank {} has freed this group", rank);
  }
  return {};
}

Stragglers::Stragglers(ControlChannel& channel, Mailbox& mailbox, Aborts& aborts, Mismatches& mismatches)
    : channel_(channel), mailbox_(mailbox), aborts_(aborts), mismatches_(mismatches) {
  channel_.on<wire::WhereIs>(
      [this](int from, const auto& about, const auto& question) { asked(from, about, question); });
  channel_.on<wire::OperationState>(
      [this](int from, const auto& about, const auto& state) { answered(from, about, state); });
  channel_.on<wire::WhomFrom>([this](int from, const auto& about, const auto&) { tell_receiving(from, about.group); });
  channel_.on<wire::ReceivesFrom>([this](int from, const auto& about, const auto& said) {
    const MatchGroup* const group = mailbox_.find_group(about.group);
    if (observer_ == nullptr || group == nullptr || group->view == nullptr) return;
    observer_->receiving_reported(group->id, mailbox_.group_rank(*group, from), {said.rank, said.call});
  });
}

// --- searches -------------------------------------------------------------------------------------------------------------

// The group, if this rank has joined it and it has not ended; otherwise null.
MatchGroup* Stragglers::open_group(std::uint64_t id) noexcept {
  MatchGroup* const group = mailbox_.find_group(id);
  return group == nullptr || group->view == nullptr || group->error ? nullptr : group;
}

Stragglers::Search& Stragglers::search_of(MatchGroup& group, const WireId& operation) {
  std::vector<Search>& searches = searches_[group.id];
  std::erase_if(searches, [&](const Search& search) { return group.find(search.operation) == nullptr; });
  const auto found = std::find_if(searches.begin(), searches.end(),
                                  [&](const Search& search) { return search.operation == operation; });
  return found != searches.end() ? *found : searches.emplace_back(operation);
}

// Null unless the operation is still in progress.
Stragglers::Search* Stragglers::find(std::uint64_t id, const WireId& operation) noexcept {
  MatchGroup* const group = mailbox_.find_group(id);
  const auto searches = searches_.find(id);
  if (group == nullptr || searches == searches_.end() || group->find(operation) == nullptr) return nullptr;
  const auto found = std::find_if(searches->second.begin(), searches->second.end(),
                                  [&](const Search& search) { return search.operation == operation; });
  return found == searches->second.end() ? nullptr : &*found;
}

// The search whose question the answer belongs to. The searches of several operations may ask the same rank.
Stragglers::Search* Stragglers::find_asking(MatchGroup& group, const WireId& operation) noexcept {
  if (group.find(operation) != nullptr) return find(group.id, operation);
  const auto searches = searches_.find(group.id);
  if (searches == searches_.end() || !operation.is_pair()) return nullptr;
  const auto found = std::find_if(searches->second.begin(), searches->second.end(), [&](const Search& search) {
    const bool same = search.operation.sequence == operation.sequence && search.operation.tag == operation.tag;
    return same && search.diagnosis.rank == operation.peer && group.find(search.operation) != nullptr;
  });
  return found == searches->second.end() ? nullptr : &*found;
}

// The lowest rank that a receive waits for; without receives, the lowest that a send waits for. A message that has not
// arrived explains a stall better than one that could not be delivered.
int Stragglers::awaited(const MatchGroup& group, Exchange& exchange) noexcept {
  int receives = kNoPeer, sends = kNoPeer;
  exchange.parts().for_each([&](PostedRequest& request) {
    int& lowest = request.kind() == PostedRequest::Kind::kRecv ? receives : sends;
    const int rank = mailbox_.group_rank(group, request.peer());
    if (lowest == kNoPeer || rank < lowest) lowest = rank;
  });
  return receives != kNoPeer ? receives : sends;
}

void Stragglers::investigate(std::uint64_t id, const WireId& operation) noexcept {
  MatchGroup* const group = open_group(id);
  Exchange* const exchange = group == nullptr ? nullptr : group->find(operation);
  if (exchange == nullptr) return;
  Search& search = search_of(*group, operation);
  search.questions = 0;
  search.diagnosis = {};
  const int rank = awaited(*group, *exchange);
  if (rank != kNoPeer || exchange->local_peer() != kNoPeer) {
    suspect(*group, search, rank != kNoPeer ? rank : exchange->local_peer());
  }
}

StragglerDiagnosis Stragglers::diagnosis(std::uint64_t id, const WireId& operation) noexcept {
  const Search* const search = find(id, operation);
  return search == nullptr ? StragglerDiagnosis{} : search->diagnosis;
}

void Stragglers::suspect(MatchGroup& group, Search& search, int rank) noexcept {
  search.diagnosis = {StragglerDiagnosis::Kind::kSilent, rank};
  if (++search.questions > group.view->size()) return;  // these ranks wait in a circle without this rank
  if (Exchange* const exchange = group.find(search.operation); exchange != nullptr) {
    ask_where(group, *exchange, rank);
  }
}

void Stragglers::survey(std::uint64_t id, const WireId& operation) noexcept {
  MatchGroup* const group = open_group(id);
  Exchange* const exchange = group == nullptr ? nullptr : group->find(operation);
  if (exchange == nullptr) return;
  const int size = group->view->size();
  search_of(*group, operation).begun.assign(static_cast<std::size_t>(size), 0);
  for (int rank = 0; rank < size; ++rank) {
    if (elsewhere(*group, rank)) ask_where(*group, *exchange, rank);
  }
}

std::vector<int> Stragglers::not_begun(std::uint64_t id, const WireId& operation) noexcept {
  std::vector<int> ranks;
  const Search* const search = find(id, operation);
  if (search == nullptr) return ranks;
  const MatchGroup& group = *mailbox_.find_group(id);
  for (int rank = 0; rank < static_cast<int>(search->begun.size()); ++rank) {
    if (elsewhere(group, rank) && search->begun[static_cast<std::size_t>(rank)] == 0) ranks.push_back(rank);
  }
  return ranks;
}

// --- questions ------------------------------------------------------------------------------------------------------------

void Stragglers::ask_where(MatchGroup& group, Exchange& exchange, int rank) noexcept {
  wire::WhereIs question;
  question.fingerprint = exchange.fingerprint();
  // The number and tag of a message say nothing about messages of another pair, which a chain of waits may lead to.
  if (exchange.id().is_pair() && exchange.id().peer == rank) question.half = missing_half(exchange);
  question.call = exchange.note().describe();
  channel_.send(mailbox_.world_rank(group, rank), {group.id, exchange.id()}, question);
}

// Whether this rank, which makes no other calls in the group than those, has not made what a member on another host waits for.
bool Stragglers::never_makes(const LastCalls& last, int from, const Question& question) noexcept {
  const WireId& operation = question.operation;
  if (!operation.is_pair())
    return operation.sequence > last.collectives || last.was_another(operation.sequence, question.fingerprint);
  if (question.half == wire::WhereIs::kOther) return false;
  const bool sent = question.half == wire::WhereIs::kSend;
  return !last.made(from, operation.tag.step, sent, operation.sequence & ~kPairSequence);
}

void Stragglers::tell_never_made(int from, std::uint64_t group, const WireId& operation) noexcept {
  channel_.send(from, {group, operation}, wire::OperationState{State::kFreed, kNoPeer});
}

// Who asked before this rank made its last call may not ask again for long.
void Stragglers::say_last(std::uint64_t group, const LastCalls& last) noexcept {
  const auto asked = asked_.find(group);
  if (asked == asked_.end()) return;
  const MatchGroup* const ended = mailbox_.find_group(group);
  for (const auto& [who, question] : asked->second) {
    if (ended != nullptr && ended->error) {  // the notice of it may not have come that far
      aborts_.tell(*ended, who.first);
    } else if (never_makes(last, who.first, question)) {
      tell_never_made(who.first, group, question.operation);
    }
  }
  asked_.erase(asked);
}

void Stragglers::asked(int from, const ControlChannel::Subject& about, const wire::WhereIs& question) {
  // This rank has freed the group: every operation that it had begun has ended. One may have been another call than the asking
  // rank's: without elements, so that it exchanged nothing, or with a message that the asking rank does not expect yet.
  if (const LastCalls* const left = mailbox_.left(about.group); left != nullptr) {
    if (aborts_.tell_of_left(about.group, from)) return;
    if (never_makes(*left, from, {about.operation, question.fingerprint, question.half})) {
      return tell_never_made(from, about.group, about.operation);
    }
    channel_.send(from, about, wire::OperationState{State::kFinished, kNoPeer});
    return;
  }
  MatchGroup* const group = mailbox_.find_group(about.group);
  if (group == nullptr || group->view == nullptr) {
    channel_.send(from, about, wire::OperationState{State::kNoGroup, kNoPeer});
    return;
  }
  if (group->error) return aborts_.tell(*group, from);  // the notice may have been lost with who should have relayed it
  const WireId operation = mailbox_.seen_from_here(*group, from, about.operation);
  if (const CallNote* const mine = group->other_call(operation.sequence, question.fingerprint); mine != nullptr) {
    mismatches_.end(*group, from, operation.sequence, mine->describe(), question.call);
    return;
  }
  const Question asked{operation, question.fingerprint, question.half};
  if (!group->last_calls) {
    if (!operation.is_pair() || asked.half != wire::WhereIs::kOther)
      asked_[group->id].insert_or_assign({from, asked.half}, asked);
  } else if (never_makes(*group->last_calls, from, asked)) {
    return tell_never_made(from, group->id, operation);
  }
  channel_.send(from, {group->id, operation}, state_of(*group, operation));
}

wire::OperationState Stragglers::state_of(MatchGroup& group, const WireId& operation) noexcept {
  const bool exact = group.find(operation) != nullptr;
  Exchange* exchange = find_asked(group, operation);
  // A message without an operation waits for its other end.
  const MessageRecord* record = exact ? nullptr : mailbox_.record_of(group, operation, true);
  if (record == nullptr && exchange == nullptr) record = mailbox_.record_of(group, operation, false);
  if (record != nullptr) return {State::kWaiting, mailbox_.group_rank(group, record->peer())};
  // One that waits for its turn is held up by whoever holds up the oldest.
  if (exchange == nullptr && group.is_queued(operation) && !group.past.contains(operation.sequence))
    exchange = group.calls.first();
  if (exchange == nullptr) {
    return {group.past.contains(operation.sequence) ? State::kFinished : State::kNotBegun, kNoPeer};
  }
  // Only the oldest of several waiting operations is diagnosed.
  const WireId looked_into = operation.is_pair() ? exchange->id() : group.calls.front().id();
  const StragglerDiagnosis known = diagnosis(group.id, looked_into);
  const bool found = known.kind == StragglerDiagnosis::Kind::kSilent;
  const int rank = found ? known.rank : awaited(group, *exchange);
  return rank == kNoPeer ? wire::OperationState{State::kWorking, exchange->local_peer()}
                         : wire::OperationState{State::kWaiting, rank};
}

void Stragglers::answered(int from, const ControlChannel::Subject& about, const wire::OperationState& state) {
  MatchGroup* const group = mailbox_.find_group(about.group);
  if (group == nullptr || group->view == nullptr || mailbox_.left(about.group)) return;
  const WireId operation = mailbox_.seen_from_here(*group, from, about.operation);
  const int answering = mailbox_.group_rank(*group, from);
  Search* const search = find_asking(*group, operation);
  if (search == nullptr) return;
  if (const Exchange* const exchange = group->find(operation); state.state == State::kFreed && exchange != nullptr) {
    return end_by_freeing(*group, *exchange, answering);
  }
  if (static_cast<std::size_t>(answering) < search->begun.size()) {
    search->begun[static_cast<std::size_t>(answering)] =
        state.state != State::kNotBegun && state.state != State::kNoGroup;
  }
  StragglerDiagnosis& mine = search->diagnosis;
  if (mine.rank != answering) return;
  const bool names_member = state.rank >= 0 && state.rank < group->view->size();
  switch (state.state) {
    case State::kNoGroup: mine.kind = StragglerDiagnosis::Kind::kNoGroup; break;
    case State::kFreed: mine.kind = StragglerDiagnosis::Kind::kFreed; break;
    case State::kWaiting:
      if (state.rank == group->rank) {
        mine.kind = StragglerDiagnosis::Kind::kEachOther;
      } else if (names_member && state.rank != mine.rank) {
        suspect(*group, *search, state.rank);
      }
      break;
    case State::kNotBegun: mine.kind = StragglerDiagnosis::Kind::kNotBegun; break;
    case State::kFinished: mine.kind = StragglerDiagnosis::Kind::kFinished; break;
    case State::kWorking:
      mine.kind = StragglerDiagnosis::Kind::kWorking;
      if (names_member && state.rank != group->rank) suspect(*group, *search, state.rank);
      break;
  }
}

std::string Stragglers::freed_too_early(int rank, const std::string& call, std::uint64_t sequence, int freed) {
  return fmt::format(
      "rank {} called {} (operation {} of their group), but rank {} has freed the group: all members make the same "
      "calls "
      "before they free it",
      rank, call, sequence, freed);
}

std::string Stragglers::left_without_message(int rank, const std::string& call, int left, bool finalized) {
  return fmt::format("rank {} called {}, but rank {} has {} without the other half of it", rank, call, left,
                     finalized ? "called aiacc_finalize" : "freed their group");
}

void Stragglers::end_by_freeing(MatchGroup& group, const Exchange& exchange, int freed) noexcept {
  wire::GroupAborted notice;
  notice.code = static_cast<std::int32_t>(Code::kMismatch);
  notice.rank = freed;
  const std::string call = exchange.note().describe();
  notice.sentence = exchange.id().is_pair() ? left_without_message(group.rank, call, freed, mailbox_.is_world(group))
                                            : freed_too_early(group.rank, call, exchange.id().sequence, freed);
  aborts_.end(group, notice, std::make_exception_ptr(Error(Code::kMismatch, notice.sentence, freed)));
}

// --- receives that nobody sends to ----------------------------------------------------------------------------------------

void Stragglers::ask_receiving(std::uint64_t id, int rank) noexcept {
  const MatchGroup* const group = open_group(id);
  if (group != nullptr) channel_.send(mailbox_.world_rank(*group, rank), {id}, wire::WhomFrom{});
}

void Stragglers::tell_receiving(int from, std::uint64_t id) noexcept {
  if (observer_ == nullptr || open_group(id) == nullptr || mailbox_.left(id)) return;
  Receiving receiving = observer_->receiving(id);
  channel_.send(from, {id}, wire::ReceivesFrom{receiving.from, std::move(receiving.call)});
}

}  // namespace aiacc
