// Who holds up an operation. Every stalled rank follows the chain of waits from rank to rank until one does not answer, has
// not begun, or is busy. Questions are control messages; a frozen process answers none, which is the finding.
#include <fmt/format.h>

#include <algorithm>

#include "transports/exchange.h"
#include "transports/mailbox.h"

namespace aiacc {

std::string Mailbox::Suspicion::text() const {
  switch (kind) {
    case Kind::kNobody: return "no rank is known to hold it up";
    case Kind::kSilent: return fmt::format("rank {} does not answer", rank);
    case Kind::kNotBegun: return fmt::format("rank {} has not made this call", rank);
    case Kind::kFinished: return fmt::format("rank {} has ended this call already", rank);
    case Kind::kWorking: return fmt::format("rank {} is still at work on it", rank);
    case Kind::kEachOther: return fmt::format("rank {} waits for this rank, which waits for it", rank);
  }
  return {};
}

Exchange* Mailbox::find_exchange(Group& group, std::uint64_t sequence) noexcept {
  Exchange* found = nullptr;
  group.exchanges.for_each([&](Exchange& exchange) {
    if (exchange.sequence_ == sequence) found = &exchange;
  });
  return found;
}

// The lowest rank that a receive waits for, or else that a send waits for: what has not come explains more than what could
// not be delivered.
int Mailbox::awaited(Group& group, std::uint64_t sequence) noexcept {
  int receives = kNoPeer, sends = kNoPeer;
  for (Bucket& bucket : group.buckets) {
    bucket.parts.for_each([&](Part& part) {
      if (part.exchange().sequence_ != sequence) return;
      int& lowest = part.kind() == Part::Kind::kRecv ? receives : sends;
      const int rank = group_rank(group, part.peer());
      if (lowest == kNoPeer || rank < lowest) lowest = rank;
    });
  }
  return receives != kNoPeer ? receives : sends;
}

void Mailbox::investigate(std::uint64_t id, std::uint64_t sequence) noexcept {
  Group* group = find_group(id);
  if (group == nullptr || group->view == nullptr || group->error) return;
  Exchange* exchange = find_exchange(*group, sequence);
  if (exchange == nullptr) return;
  exchange->questions_ = 0;
  exchange->suspicion_ = {};
  const int rank = awaited(*group, sequence);
  if (rank != kNoPeer || exchange->mate_ != kNoPeer) {
    suspect(*group, *exchange, rank != kNoPeer ? rank : exchange->mate_);
  }
}

Mailbox::Suspicion Mailbox::suspicion(std::uint64_t id, std::uint64_t sequence) noexcept {
  Group* group = find_group(id);
  Exchange* exchange = group == nullptr ? nullptr : find_exchange(*group, sequence);
  return exchange == nullptr ? Suspicion{} : exchange->suspicion_;
}

void Mailbox::suspect(Group& group, Exchange& exchange, int rank) noexcept {
  exchange.suspicion_ = {Suspicion::Kind::kSilent, rank};
  if (++exchange.questions_ > group.view->size()) return;  // they wait in a circle that we are not part of
  ask_where(group, exchange, rank);
}

void Mailbox::survey(std::uint64_t id, std::uint64_t sequence) noexcept {
  Group* group = find_group(id);
  Exchange* exchange = group == nullptr ? nullptr : find_exchange(*group, sequence);
  if (exchange == nullptr || group->view == nullptr || group->error) return;
  const int size = group->view->size();
  try {
    exchange->begun_.assign(static_cast<std::size_t>(size), 0);
  } catch (const std::bad_alloc&) {
    return;
  }
  for (int rank = 0; rank < size; ++rank) {
    if (group->view->host_of(rank) != group->view->host_of(group->rank)) ask_where(*group, *exchange, rank);
  }
}

std::vector<int> Mailbox::not_begun(std::uint64_t id, std::uint64_t sequence) noexcept {
  std::vector<int> ranks;
  Group* group = find_group(id);
  Exchange* exchange = group == nullptr ? nullptr : find_exchange(*group, sequence);
  if (exchange == nullptr) return ranks;
  for (std::size_t rank = 0; rank < exchange->begun_.size(); ++rank) {
    const bool elsewhere = group->view->host_of(static_cast<int>(rank)) != group->view->host_of(group->rank);
    if (elsewhere && exchange->begun_[rank] == 0) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void Mailbox::ask_where(Group& group, Exchange& exchange, int rank) noexcept {
  AbortNotice where;
  where.stage = AbortNotice::Stage::kWhere;
  where.rank = group.rank;
  where.fingerprint = exchange.fingerprint_;
  where.text = exchange.note_.describe();
  post_notice(group, world_rank(group, rank), exchange.sequence_, where);
}

void Mailbox::tell_whereabouts(Group& group, int from, std::uint64_t sequence, const AbortNotice& question) noexcept {
  if (group.error) return;  // who asks will hear of it
  if (const CallNote* mine = other_call(group, sequence, question.fingerprint); mine != nullptr) {
    end_by_disagreement(group, from, sequence, mine->describe(), question.text);
    return;
  }
  AbortNotice here;
  here.stage = AbortNotice::Stage::kHere;
  auto where = AbortNotice::Whereabouts::kNotBegun;
  if (Exchange* exchange = find_exchange(group, sequence); exchange != nullptr) {
    const bool found = exchange->suspicion_.kind == Suspicion::Kind::kSilent;
    here.rank = found ? exchange->suspicion_.rank : awaited(group, sequence);
    where = here.rank == kNoPeer ? AbortNotice::Whereabouts::kWorking : AbortNotice::Whereabouts::kWaiting;
    if (here.rank == kNoPeer) here.rank = exchange->mate_;
  } else if (std::any_of(group.past.begin(), group.past.begin() + std::min(group.past_calls, kPastCalls),
                         [sequence](const PastCall& past) { return past.sequence == sequence; })) {
    where = AbortNotice::Whereabouts::kFinished;
  }
  here.other = static_cast<std::int32_t>(where);
  post_notice(group, from, sequence, here);
}

void Mailbox::whereabouts_came(Group& group, int from, std::uint64_t sequence, const AbortNotice& notice) noexcept {
  Exchange* exchange = find_exchange(group, sequence);
  if (exchange == nullptr) return;
  const auto answering = static_cast<std::size_t>(group_rank(group, from));
  if (answering < exchange->begun_.size()) {
    exchange->begun_[answering] = notice.other != static_cast<std::int32_t>(AbortNotice::Whereabouts::kNotBegun);
  }
  if (exchange->suspicion_.rank != group_rank(group, from)) return;
  Suspicion& mine = exchange->suspicion_;
  switch (static_cast<AbortNotice::Whereabouts>(notice.other)) {
    case AbortNotice::Whereabouts::kWaiting:
      if (notice.rank == group.rank) {
        mine.kind = Suspicion::Kind::kEachOther;
      } else if (notice.rank >= 0 && notice.rank < group.view->size() && notice.rank != mine.rank) {
        suspect(group, *exchange, notice.rank);
      }
      break;
    case AbortNotice::Whereabouts::kNotBegun: mine.kind = Suspicion::Kind::kNotBegun; break;
    case AbortNotice::Whereabouts::kFinished: mine.kind = Suspicion::Kind::kFinished; break;
    case AbortNotice::Whereabouts::kWorking:
      mine.kind = Suspicion::Kind::kWorking;
      if (notice.rank >= 0 && notice.rank < group.view->size() && notice.rank != group.rank) {
        suspect(group, *exchange, notice.rank);
      }
      break;
  }
}

}  // namespace aiacc
