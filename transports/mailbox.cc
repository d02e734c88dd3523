#include "transports/mailbox.h"

#include <algorithm>

#include "transports/exchange.h"

namespace aiacc {

using Placement = MessageReceiver::Placement;

Mailbox::Mailbox(Loop& loop, MessagePort& port, ViewPtr world, int rank, Peers& peers, MatchObserver& observer)
    : loop_(loop), port_(port), world_(std::move(world)), rank_(rank), peers_(peers), observer_(observer) {}

// --- groups and peers -----------------------------------------------------------------------------------------------------

MatchGroup* Mailbox::find_group(std::uint64_t id) noexcept {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : &found->second;
}

void Mailbox::join(const ViewPtr& view, int rank) {
  MatchGroup& joined = group(view->id());
  if (joined.view != nullptr) return;
  joined.view = view;
  joined.rank = rank;
  observer_.joined(joined);
}

void Mailbox::say_last(std::uint64_t id, LastCalls last) noexcept {
  if (MatchGroup* const joined = find_group(id)) joined->last_calls = std::move(last);
}

void Mailbox::forget(std::uint64_t id, std::uint64_t last) noexcept {
  MatchGroup* left = find_group(id);
  if (left == nullptr) return;
  try {
    keep_last(*left, last);
  } catch (const std::bad_alloc&) {  // its late messages recreate its state
  }
  // A payload that is being placed keeps its entry and the group alive; on_placed() removes both.
  drop_placed(*left);
  if (left->unexpected.empty()) groups_.erase(id);
}

void Mailbox::keep_last(MatchGroup& left, std::uint64_t last) {
  if (forgotten_.count(left.id) != 0) return;
  LastCalls& calls = forgotten_[left.id];
  calls.collectives = last;
  forgotten_in_order_.push_back(left.id);
  if (left.last_calls) calls = *std::exchange(left.last_calls, std::nullopt);
  calls.fingerprints = left.past.fingerprints(calls.collectives);
  forgotten_pairs_ += calls.pairs.size();
  for (auto old = forgotten_in_order_.begin(); forgotten_pairs_ > kForgottenPairs; ++old)
    forgotten_pairs_ -= forgotten_.find(*old)->second.forget_pairs();
  if (forgotten_in_order_.size() <= kForgotten) return;
  const auto oldest = forgotten_.find(forgotten_in_order_.front());
  forgotten_in_order_.pop_front();
  forgotten_pairs_ -= oldest->second.pairs.size();
  forgotten_.erase(oldest);
}

void Mailbox::drop_placed(MatchGroup& group) noexcept {
  for (auto unexpected = group.unexpected.begin(); unexpected != group.unexpected.end();) {
    const auto next = std::next(unexpected);
    if (unexpected->placed) {
      peers_[unexpected->from].stored -= unexpected->bytes.size();
      free_credit(unexpected->from, unexpected->bytes.size());
      group.unexpected.erase(unexpected);
    }
    unexpected = next;
  }
}

const LastCalls* Mailbox::left(std::uint64_t id) const noexcept {
  const auto found = forgotten_.find(id);
  return found == forgotten_.end() ? nullptr : &found->second;
}

std::exception_ptr Mailbox::error_of(std::uint64_t id) const noexcept {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.error;
}

void Mailbox::end(MatchGroup& group) noexcept {
  drop_placed(group);
  // Failing one request may end the other request of its transfer, which is in the same exchange's list.
  group.for_each_exchange([&group](Exchange& exchange) { exchange.fail(group.error); });
}

void Mailbox::peer_lost(int rank) noexcept {
  for (std::size_t i = 0; i < placing_.size();) {
    if (placing_[i].from != rank) {
      ++i;
      continue;
    }
    ReceiveRecord& record = *placing_[i].record;
    placing_.erase(placing_.begin() + static_cast<std::ptrdiff_t>(i));
    record.peer_lost();
  }
  for (auto& [id, group] : groups_) {
    group.unexpected.remove_if(
        [rank](const UnexpectedMessage& unexpected) { return unexpected.from == rank && !unexpected.placed; });
    group.for_each_exchange([rank](Exchange& exchange) {
      for (IntrusiveList<PostedRequest>* posted : {&exchange.parts(), &exchange.ending()}) {
        posted->for_each([rank](PostedRequest& request) {
          if (request.kind() != PostedRequest::Kind::kRecv || request.peer() != rank) return;
          auto& recv = static_cast<PostedReceive&>(request);
          if (recv.has_places()) recv.peer_lost();
        });
      }
    });
  }
}

// Member::id is the rank in the world when the job started; the port uses the same number.
int Mailbox::world_rank(const MatchGroup& group, int rank) const noexcept {
  return static_cast<int>(group.view->member(rank).id);
}

int Mailbox::group_rank(const MatchGroup& group, int world_rank) const noexcept {
  if (group.view == nullptr || world_rank < 0 || world_rank >= world_->size()) return -1;
  if (group.view == world_) return world_rank;
  return group.view->rank_of(world_->member(world_rank));
}

std::vector<int> Mailbox::waited_for(std::uint64_t id, const WireId& operation) {
  std::vector<int> ranks;
  MatchGroup* known = find_group(id);
  Exchange* exchange = known == nullptr ? nullptr : known->find(operation);
  if (exchange == nullptr) return ranks;
  exchange->parts().for_each([&](PostedRequest& request) { ranks.push_back(group_rank(*known, request.peer())); });
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<std::uint64_t> Mailbox::groups_waiting_for(int rank) {
  std::vector<std::uint64_t> waiting;
  for (auto& [id, group] : groups_) {
    bool waits = false;
    group.for_each_exchange([&](Exchange& exchange) {
      exchange.parts().for_each([&](PostedRequest& request) { waits = waits || request.peer() == rank; });
    });
    waits = waits || group.records.find([&](const MessageRecord& record) { return record.peer() == rank; }) != nullptr;
    if (waits && !group.error) waiting.push_back(id);
  }
  return waiting;
}

bool Mailbox::waits_for(int rank) noexcept {
  bool waits = false;
  const auto look = [&](PostedRequest& request) { waits = waits || request.peer() == rank; };
  for (auto& [id, group] : groups_) {
    group.for_each_exchange([&](Exchange& exchange) {
      exchange.parts().for_each(look);
      exchange.ending().for_each(look);
    });
    waits = waits || group.records.find([&](const MessageRecord& record) { return record.peer() == rank; }) != nullptr;
  }
  return waits;
}

bool Mailbox::arriving(std::uint64_t id) noexcept {
  const MatchGroup* const group = find_group(id);
  return group != nullptr && group->arriving > 0;
}

WireId Mailbox::seen_from_here(const MatchGroup& group, int from, const WireId& operation) const noexcept {
  return operation.is_pair() ? WireId(operation.sequence, operation.tag, group_rank(group, from))
                             : WireId(operation.sequence);
}

// --- outgoing -------------------------------------------------------------------------------------------------------------

MessageHeader Mailbox::header(const MatchGroup& group, MessageKind kind, int to) noexcept {
  const Member& self = world_->member(rank_);
  MessageHeader header;
  header.kind = kind;
  header.traffic = TrafficClass::kLatency;
  header.member = self.id;
  header.incarnation = self.incarnation;
  header.group = group.id;
  header.epoch = group.view == nullptr ? 0 : group.view->epoch();
  Peer& peer = peers_[to];
  peer.awaited = true;
  header.credit_limit = peer.freed + peer.credit;
  header.sent_ns = loop_.now().time_since_epoch().count();
  return header;
}

void Mailbox::post(int to, const MessageHeader& header, const Buffer& piece, SendCompletion& completion,
                   bool now) noexcept {
  const std::span<const Buffer> pieces(&piece, piece.bytes > 0 ? 1 : 0);
  now ? port_.post_now(to, header, pieces, completion) : port_.post(to, header, pieces, completion);
}

void Mailbox::post_header(int to, const MessageHeader& header) noexcept { port_.post(to, header, {}, ignored_); }

void Mailbox::swaps_with(int rank) noexcept {
  Peer& peer = peers_[rank];
  if (peer.credit != Peer::kCreditBytes || peers_.swap_peers == Peer::kMostSwapPeers) return;
  ++peers_.swap_peers;
  peer.credit = Peer::kSwapCreditBytes;
}

void Mailbox::free_credit(int from, std::uint64_t bytes) noexcept {
  Peer& peer = peers_[from];
  peer.freed += bytes;
  if (!peer.holds) return;
  peer.holds = false;
  port_.release(from);
}

// --- incoming -------------------------------------------------------------------------------------------------------------

namespace {

PostedReceive* find_recv(MatchGroup& group, int from, const MessageHeader& header) noexcept {
  return static_cast<PostedReceive*>(group.find(group.receives, from, header));
}

}  // namespace

bool Mailbox::disagrees(MatchGroup& group, int from, const MessageHeader& header) {
  const CallNote* const mine = group.other_call(header.sequence, header.fingerprint);
  if (mine != nullptr) observer_.calls_differ(group, from, header, *mine);
  return mine != nullptr;
}

Placement Mailbox::on_header(int from, const MessageHeader& header) noexcept {
  constexpr Placement kDropped{Placement::Action::kDrop, {}};
  constexpr Placement kNothingToPlace{Placement::Action::kInto, {}};
  Peer& peer = peers_[from];
  peer.awaited = true;
  peer.may_send = std::max(peer.may_send, header.credit_limit);
  if (forgotten_.contains(header.group)) {
    if (header.kind == MessageKind::kEager) free_credit(from, header.length);
    return kDropped;
  }
  switch (header.kind) {
    case MessageKind::kEager: return place_eager(group(header.group), from, header);
    case MessageKind::kRts:
    case MessageKind::kCts: return header.length == 0 ? kNothingToPlace : kDropped;
    case MessageKind::kData: {
      MatchGroup* known = find_group(header.group);
      PostedReceive* recv = known == nullptr ? nullptr : find_recv(*known, from, header);
      return recv == nullptr ? kDropped : recv->place(header);
    }
    default: break;
  }
  return kDropped;
}

Placement Mailbox::place_eager(MatchGroup& group, int from, const MessageHeader& header) {
  constexpr Placement kDropped{Placement::Action::kDrop, {}};
  if (header.length != header.total || header.offset != 0 || header.length > kLongSwapBytes) return kDropped;
  if (group.error || disagrees(group, from, header)) {
    free_credit(from, header.length);
    return kDropped;
  }
  if (UnexpectedMessage* known = group.find_early(MessageKind::kEager, false, header.sequence, header.tag(), from)) {
    return {Placement::Action::kInto, Buffer{known->bytes.data(), known->bytes.size()}};  // the header was replayed
  }
  if (PostedReceive* recv = find_recv(group, from, header); recv != nullptr) {
    const Placement placement = recv->place(header);
    if (placement.action == Placement::Action::kDrop) free_credit(from, header.length);
    return placement;
  }
  auto* const record =
      static_cast<ReceiveRecord*>(group.find_record(MessageRecord::Kind::kRecv, header.sequence, header.tag(), from));
  if (record != nullptr && (record->failing() || record->takes(header))) return place_for(*record, from, header);
  if (record != nullptr) record->must_be_operation();
  Peer& peer = peers_[from];
  if (peer.stored + header.length > peer.credit) {  // beyond the sender's credit: the port holds it
    peer.holds = true;
    return {Placement::Action::kHold, {}};
  }
  peer.stored += header.length;
  UnexpectedMessage& stored = group.keep(from, header, true);
  tell_observer(group, header);
  return {Placement::Action::kInto, Buffer{stored.bytes.data(), stored.bytes.size()}};
}

void Mailbox::on_placed(int from, const MessageHeader& header) noexcept {
  MatchGroup* known = header.kind == MessageKind::kRts && !forgotten_.contains(header.group) ? &group(header.group)
                                                                                             : find_group(header.group);
  if (known == nullptr) return;
  switch (header.kind) {
    case MessageKind::kEager: eager_placed(*known, from, header); break;
    case MessageKind::kRts: rts_came(*known, from, header); break;
    case MessageKind::kCts: cts_came(*known, from, header); break;
    case MessageKind::kData:
      if (PostedReceive* recv = find_recv(*known, from, header); recv != nullptr) recv->placed(header);
      break;
    default: break;
  }
}

void Mailbox::eager_placed(MatchGroup& group, int from, const MessageHeader& header) {
  if (UnexpectedMessage* unexpected =
          group.find_early(MessageKind::kEager, false, header.sequence, header.tag(), from)) {
    unexpected->placed = true;
    if (group.error || forgotten_.contains(group.id)) {
      peers_[from].stored -= unexpected->bytes.size();
      free_credit(from, unexpected->bytes.size());
      group.drop(*unexpected);
      if (forgotten_.contains(group.id)) forget(group.id);
      return;
    }
    // A receive was posted while the payload was being stored.
    if (PostedReceive* recv = find_recv(group, from, header); recv != nullptr) recv->unexpected_came();
    return;
  }
  free_credit(from, header.length);
  if (record_placed(from, header)) return;
  if (PostedReceive* recv = find_recv(group, from, header); recv != nullptr) recv->placed(header);
}

void Mailbox::rts_came(MatchGroup& group, int from, const MessageHeader& header) {
  if (group.error || disagrees(group, from, header)) return;
  if (PostedReceive* recv = find_recv(group, from, header); recv != nullptr) {
    recv->send_cts(header);
    return;
  }
  if (MessageRecord* const record =
          group.find_record(MessageRecord::Kind::kRecv, header.sequence, header.tag(), from)) {
    static_cast<ReceiveRecord*>(record)->must_be_operation();
  }
  group.keep(from, header, false);
  tell_observer(group, header);
}

void Mailbox::tell_observer(MatchGroup& group, const MessageHeader& header) noexcept {
  if (group.observer == nullptr || (header.sequence & kPairSequence) == 0) return;
  group.observer->unexpected_message(header.step);
}

void Mailbox::cts_came(MatchGroup& group, int from, const MessageHeader& header) {
  PostedRequest* const found = group.find(group.sends, from, header);
  if (found != nullptr) {
    static_cast<PostedSend*>(found)->cts_came();
  } else if (Exchange* exchange = group.find(WireId(header.sequence)); exchange != nullptr) {
    if (Exchange::EarlyRts* early = exchange->early_rts(from, header.tag()); early != nullptr) {
      early->cts_came = true;
    }
  }
}

}  // namespace aiacc
