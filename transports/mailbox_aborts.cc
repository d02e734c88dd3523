// How a group ends: by a call of this rank, a lost peer, a mismatch, or a notice of another member.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error_about.h"
#include "transports/exchange.h"
#include "transports/mailbox.h"

namespace aiacc {
namespace {

constexpr Duration kAnswerWithin = std::chrono::seconds(1);
constexpr Duration kTellWithin = std::chrono::seconds(1);

std::string disagreement(std::uint64_t sequence, int rank, const std::string& mine, int other,
                         const std::string& theirs) {
  const bool first = rank < other;
  return fmt::format(
      "members disagree on operation {} of their group: rank {} called {}; rank {} called {}. All members must make "
      "the same calls in the same order",
      sequence & ~Exchange::kPairSequence, first ? rank : other, first ? mine : theirs, first ? other : rank,
      first ? theirs : mine);
}

}  // namespace

void Mailbox::abort(const ViewPtr& view, int rank, const std::exception_ptr& error) {
  join(view, rank);
  const Error what = as_error(error);
  AbortNotice notice;
  notice.code = what.code();
  notice.rank = what.peer();
  notice.text = what.message();
  if (const std::vector<int> ranks = ranks_of(error); ranks.size() > 1) notice.about.assign(ranks.begin(), ranks.end());
  end_group(group(view->id()), notice, error);
}

std::exception_ptr Mailbox::error_of(std::uint64_t id) const noexcept {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.error;
}

void Mailbox::end_group(Group& group, const AbortNotice& notice, std::exception_ptr error) noexcept {
  if (group.error) return;
  group.error = std::move(error);
  group.notice = notice;
  group.notice.stage = AbortNotice::Stage::kFinal;
  group.disarm();
  relay(group);
  for (Bucket& bucket : group.buckets) {
    for (auto early = bucket.early.begin(); early != bucket.early.end();) {
      const auto next = std::next(early);
      if (early->placed) {
        peers_[early->from].stored -= early->bytes.size();
        free_credit(early->from, early->bytes.size());
        bucket.early.erase(early);
      }
      early = next;
    }
    // Letting go of one part may end its other half, wherever that is linked: begin again after each.
    for (;;) {
      Part* next = nullptr;
      bucket.parts.for_each([&](Part& part) {
        if (next == nullptr && !part.failing()) next = &part;
      });
      if (next == nullptr) break;
      next->let_go(group.error);
    }
  }
  news_.set();
  if (observer_ != nullptr) observer_->group_aborted(group.id, group.error);
}

// To the neighbours in the binomial graph: ranks at distances that are powers of two, both ways round.
void Mailbox::relay(Group& group) noexcept {
  if (group.relayed || group.view == nullptr) return;
  group.relayed = true;
  const int size = group.view->size();
  std::set<int> neighbours;
  for (int distance = 1; distance < size; distance *= 2) {
    neighbours.insert((group.rank + distance) % size);
    neighbours.insert((group.rank - distance + size) % size);
  }
  neighbours.erase(group.rank);
  for (int neighbour : neighbours) post_notice(group, world_rank(group, neighbour), 0, group.notice);
}

void Mailbox::post_notice(Group& group, int to, std::uint64_t sequence, const AbortNotice& notice) noexcept {
  if (peers_[to].lost) return;
  Notice& outgoing = outgoing_.emplace_back();
  outgoing.mailbox = this;
  outgoing.self = std::prev(outgoing_.end());
  outgoing.bytes = notice.encode();
  MessageHeader header = this->header(group, MessageKind::kAbort, to);
  header.traffic = TrafficClass::kControl;
  header.sequence = sequence;
  header.length = header.total = outgoing.bytes.size();
  post(to, header, Buffer{outgoing.bytes.data(), outgoing.bytes.size()}, outgoing);
}

void Mailbox::told(std::list<Notice>::iterator notice) noexcept {
  outgoing_.erase(notice);
  news_.set();
}

Task<void> Mailbox::tell_aborts(Stop& stop) {
  Stop limit(stop);
  Deadline deadline(loop_, after(loop_.now(), kTellWithin), limit, "members of an aborted group cannot be told");
  while (!outgoing_.empty()) {
    news_.reset();
    try {
      co_await news_.wait(limit);
    } catch (const Error&) {
      if (stop.requested()) throw;
      co_return;
    }
  }
}

void Mailbox::notice_came(int from, const MessageHeader& header) {
  const auto found = std::find_if(incoming_.begin(), incoming_.end(), [&](const Incoming& incoming) {
    return incoming.from == from && incoming.header.group == header.group && incoming.header.length == header.length &&
           incoming.header.sequence == header.sequence && incoming.header.sent_ns == header.sent_ns;
  });
  if (found == incoming_.end()) return;
  const std::optional<AbortNotice> notice = AbortNotice::decode(found->bytes);
  incoming_.erase(found);
  if (!notice) return;
  if (notice->stage == AbortNotice::Stage::kLeaving) return peer_leaves(from);
  if (notice->stage == AbortNotice::Stage::kHeard) {
    peers_[from].heard = true;
    news_.set();
    return;
  }
  if (forgotten_.contains(header.group)) {
    if (notice->stage == AbortNotice::Stage::kWhere) tell_freed(header.group, from, header.sequence);
    return;
  }
  Group& group = this->group(header.group);
  switch (notice->stage) {
    case AbortNotice::Stage::kQuestion: answer(group, from, header, *notice); return;
    case AbortNotice::Stage::kWhere: tell_whereabouts(group, from, header.sequence, *notice); return;
    case AbortNotice::Stage::kHere: whereabouts_came(group, from, header.sequence, *notice); return;
    case AbortNotice::Stage::kWhom: tell_receiving(group, from); return;
    case AbortNotice::Stage::kReceiving:
      if (observer_ != nullptr && group.view != nullptr) {
        observer_->receiving_told(group.id, group_rank(group, from), {notice->rank, notice->text});
      }
      return;
    case AbortNotice::Stage::kFinal:
    case AbortNotice::Stage::kLeaving:
    case AbortNotice::Stage::kHeard: break;
  }
  const bool about_me = notice->rank == group.rank && notice->other != kNoPeer;
  const int peer = about_me ? notice->other : notice->rank;
  end_group(group, *notice,
            notice->about.size() > 1 ? std::make_exception_ptr(ErrorAbout(notice->code, notice->text,
                                                                          {notice->about.begin(), notice->about.end()}))
                                     : std::make_exception_ptr(Error(notice->code, notice->text, peer)));
}

void Mailbox::on_peer_lost(int rank, std::exception_ptr error) noexcept {
  Peer& peer = peers_[rank];
  peer.lost = error;
  news_.set();
  const bool missed = !(leaving_ || peer.left) || needed_by(rank);
  std::erase_if(incoming_, [rank](const Incoming& incoming) { return incoming.from == rank; });
  std::vector<std::uint64_t> shared;
  for (auto& [id, group] : groups_) {
    for (Bucket& bucket : group.buckets) {
      std::erase_if(bucket.early, [rank](const Early& early) { return early.from == rank && !early.placed; });
      for (;;) {
        RecvPart* next = nullptr;
        bucket.parts.for_each([&](Part& part) {
          if (next != nullptr || part.kind() != Part::Kind::kRecv || part.peer() != rank) return;
          auto* recv = static_cast<RecvPart*>(&part);
          if (recv->has_places()) next = recv;
        });
        if (next == nullptr) break;
        next->peer_lost();
      }
    }
    if (missed && group_rank(group, rank) >= 0) shared.push_back(id);
  }
  const Error cause = as_error(error);
  for (std::uint64_t id : shared) {
    Group* group = find_group(id);
    if (group == nullptr) continue;
    AbortNotice notice;
    notice.code = Code::kPeerFailed;
    notice.rank = group_rank(*group, rank);
    notice.text = cause.message();
    end_group(*group, notice, std::make_exception_ptr(Error(notice.code, notice.text, notice.rank)));
  }
}

// --- mismatches -----------------------------------------------------------------------------------------------------------

// What this rank called as that operation, if it was something else than the fingerprint says.
const CallNote* Mailbox::other_call(Group& group, std::uint64_t sequence, std::uint64_t fingerprint) noexcept {
  if ((sequence & Exchange::kPairSequence) != 0) return nullptr;  // compared when it is matched
  const CallNote* mine = nullptr;
  group.exchanges.for_each([&](Exchange& exchange) {
    if (exchange.sequence_ == sequence && exchange.fingerprint_ != fingerprint) mine = &exchange.note_;
  });
  return mine != nullptr ? mine : group.past.unlike(sequence, fingerprint);
}

bool Mailbox::disagrees(Group& group, int from, const MessageHeader& header) {
  const CallNote* mine = other_call(group, header.sequence, header.fingerprint);
  if (mine != nullptr) ask(group, from, header, *mine);
  return mine != nullptr;
}

void Mailbox::ask(Group& group, int from, const MessageHeader& header, const CallNote& mine) {
  if (group.error || group.asked != kNoPeer) return;
  group.asked = from;
  const int other = group_rank(group, from);
  group.unanswered =
      disagreement(header.sequence, group.rank, mine.describe(), other, "something else and did not say what");
  loop_.arm(group, after(loop_.now(), kAnswerWithin));
  AbortNotice question;
  question.stage = AbortNotice::Stage::kQuestion;
  question.code = Code::kMismatch;
  question.rank = group.rank;
  question.other = other;
  question.fingerprint = header.fingerprint;
  question.text = mine.describe();
  post_notice(group, from, header.sequence, question);
}

void Mailbox::answer(Group& group, int from, const MessageHeader& header, const AbortNotice& question) {
  if (group.view == nullptr) return;
  if (group.error) {
    post_notice(group, from, 0, group.notice);
    return;
  }
  const CallNote* mine = nullptr;
  group.exchanges.for_each([&](Exchange& exchange) {
    if (exchange.sequence_ == header.sequence && exchange.fingerprint_ == question.fingerprint) mine = &exchange.note_;
  });
  if (mine == nullptr) mine = group.past.like(header.sequence, question.fingerprint);
  end_by_disagreement(group, from, header.sequence,
                      mine == nullptr ? "something it no longer remembers" : mine->describe(), question.text);
}

void Mailbox::end_by_disagreement(Group& group, int from, std::uint64_t sequence, const std::string& mine,
                                  const std::string& theirs) {
  AbortNotice notice;
  notice.code = Code::kMismatch;
  notice.rank = group.rank;
  notice.other = group_rank(group, from);
  notice.text = disagreement(sequence, group.rank, mine, notice.other, theirs);
  end_group(group, notice, std::make_exception_ptr(Error(notice.code, notice.text, notice.other)));
  post_notice(group, from, 0, group.notice);  // it may be no neighbour
}

void Mailbox::no_answer(Group& group) noexcept {
  AbortNotice notice;
  notice.code = Code::kMismatch;
  notice.rank = group_rank(group, group.asked);
  notice.other = group.rank;
  notice.text = group.unanswered;
  end_group(group, notice, std::make_exception_ptr(Error(notice.code, notice.text, notice.rank)));
}

}  // namespace aiacc
