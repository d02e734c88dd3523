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
    case Kind::kNoGroup: return fmt::format("rank {} has not made this group", rank);
    case Kind::kFreed: return fmt::format("rank {} has freed this group", rank);
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
  auto where = group.view == nullptr ? AbortNotice::Whereabouts::kNoGroup : AbortNotice::Whereabouts::kNotBegun;
  if (Exchange* exchange = find_exchange(group, sequence); exchange != nullptr) {
    const bool found = exchange->suspicion_.kind == Suspicion::Kind::kSilent;
    here.rank = found ? exchange->suspicion_.rank : awaited(group, sequence);
    where = here.rank == kNoPeer ? AbortNotice::Whereabouts::kWorking : AbortNotice::Whereabouts::kWaiting;
    if (here.rank == kNoPeer) here.rank = exchange->mate_;
  } else if (group.past.contains(sequence)) {
    where = AbortNotice::Whereabouts::kFinished;
  }
  here.other = static_cast<std::int32_t>(where);
  post_notice(group, from, sequence, here);
}

// Of a group that this rank has freed. What it had begun it has also ended.
void Mailbox::tell_freed(std::uint64_t id, int from, std::uint64_t sequence) noexcept {
  const bool begun = (sequence & Exchange::kPairSequence) == 0 && sequence <= forgotten_[id];
  AbortNotice here;
  here.stage = AbortNotice::Stage::kHere;
  here.other =
      static_cast<std::int32_t>(begun ? AbortNotice::Whereabouts::kFinished : AbortNotice::Whereabouts::kFreed);
  Group freed(*this, id);
  post_notice(freed, from, sequence, here);
}

std::string Mailbox::freed_too_early(int rank, const std::string& call, std::uint64_t sequence, int freed) {
  return fmt::format(
      "rank {} called {} (operation {} of their group), but rank {} has freed the group: all members make the same "
      "calls "
      "before they free it",
      rank, call, sequence, freed);
}

void Mailbox::end_by_freeing(Group& group, const Exchange& exchange, int freed) noexcept {
  AbortNotice notice;
  notice.code = Code::kMismatch;
  notice.rank = freed;
  notice.text = freed_too_early(group.rank, exchange.note_.describe(), exchange.sequence_, freed);
  end_group(group, notice, std::make_exception_ptr(Error(notice.code, notice.text, notice.rank)));
}

// --- receives that nobody sends to ----------------------------------------------------------------------------------------

void Mailbox::ask_receiving(std::uint64_t id, int rank) noexcept {
  Group* group = find_group(id);
  if (group == nullptr || group->view == nullptr || group->error) return;
  AbortNotice whom;
  whom.stage = AbortNotice::Stage::kWhom;
  whom.rank = group->rank;
  post_notice(*group, world_rank(*group, rank), 0, whom);
}

void Mailbox::tell_receiving(Group& group, int from) noexcept {
  if (observer_ == nullptr || group.view == nullptr || group.error) return;
  Receiving receiving = observer_->receiving(group.id);
  AbortNotice told;
  told.stage = AbortNotice::Stage::kReceiving;
  told.rank = receiving.from;
  told.text = std::move(receiving.call);
  post_notice(group, from, 0, told);
}

bool Mailbox::arriving(std::uint64_t id) noexcept {
  bool found = false;
  Group* group = find_group(id);
  if (group == nullptr) return false;
  for (Bucket& bucket : group->buckets) {
    bucket.parts.for_each([&](Part& part) {
      found = found || (part.kind() == Part::Kind::kRecv && static_cast<RecvPart&>(part).arriving());
    });
  }
  return found;
}

void Mailbox::whereabouts_came(Group& group, int from, std::uint64_t sequence, const AbortNotice& notice) noexcept {
  Exchange* exchange = find_exchange(group, sequence);
  if (exchange == nullptr) return;
  const auto where = static_cast<AbortNotice::Whereabouts>(notice.other);
  const bool is_message = (sequence & Exchange::kPairSequence) != 0;
  if (where == AbortNotice::Whereabouts::kFreed && !is_message) {
    return end_by_freeing(group, *exchange, group_rank(group, from));
  }
  const auto answering = static_cast<std::size_t>(group_rank(group, from));
  if (answering < exchange->begun_.size()) {
    exchange->begun_[answering] =
        where != AbortNotice::Whereabouts::kNotBegun && where != AbortNotice::Whereabouts::kNoGroup;
  }
  if (exchange->suspicion_.rank != group_rank(group, from)) return;
  Suspicion& mine = exchange->suspicion_;
  switch (where) {
    case AbortNotice::Whereabouts::kNoGroup: mine.kind = Suspicion::Kind::kNoGroup; break;
    case AbortNotice::Whereabouts::kFreed: mine.kind = Suspicion::Kind::kFreed; break;
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
