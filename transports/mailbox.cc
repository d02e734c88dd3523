// Matching, placement and credit. What ends a group is in mailbox_aborts.cc.
#include "transports/mailbox.h"

#include <algorithm>

#include "base/hash.h"
#include "transports/exchange.h"

namespace aiacc {

Mailbox::Mailbox(Loop& loop, MessagePort& port, ViewPtr world, int rank)
    : loop_(loop), port_(port), world_(std::move(world)), rank_(rank), news_(loop) {
  port_.set_receiver(*this);
}

Mailbox::~Mailbox() { port_.close(); }

// --- groups and peers -----------------------------------------------------------------------------------------------------

Mailbox::Bucket& Mailbox::Group::bucket(std::uint64_t sequence, std::uint32_t tag, int peer) noexcept {
  const std::uint64_t key = sequence ^ static_cast<std::uint64_t>(tag) << 20 ^ static_cast<std::uint64_t>(peer) << 44;
  return buckets[Hash64::mix(key) % kBuckets];
}

Mailbox::Early& Mailbox::Group::keep(Early early) {
  Bucket& its = bucket(early.header.sequence, early.header.tag, early.from);
  kept.set(static_cast<std::size_t>(&its - buckets.data()));
  return its.early.emplace_back(std::move(early));
}

const Mailbox::Early* Mailbox::Group::early_unlike(std::uint64_t sequence, std::uint64_t fingerprint) noexcept {
  if (kept.none()) return nullptr;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    if (!kept.test(i)) continue;
    kept.set(i, !buckets[i].early.empty());
    for (const Early& early : buckets[i].early) {
      if (early.header.sequence == sequence && early.header.fingerprint != fingerprint) return &early;
    }
  }
  return nullptr;
}

Mailbox::Group& Mailbox::group(std::uint64_t id) { return groups_.try_emplace(id, *this, id).first->second; }

Mailbox::Group* Mailbox::find_group(std::uint64_t id) noexcept {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : &found->second;
}

void Mailbox::join(const ViewPtr& view, int rank) {
  Group& joined = group(view->id());
  if (joined.view != nullptr) return;
  joined.view = view;
  joined.rank = rank;
  if (joined.error) {
    relay(joined);
    return;
  }
  for (const auto& [peer, state] : peers_) {
    if (state.lost && group_rank(joined, peer) >= 0) {
      on_peer_lost(peer, state.lost);
      return;
    }
  }
}

void Mailbox::forget(std::uint64_t id, std::uint64_t last) noexcept {
  Group* left = find_group(id);
  if (left == nullptr) return;
  if (forgotten_.emplace(id, last).second) forgotten_in_order_.push_back(id);
  if (forgotten_in_order_.size() > kForgotten) {
    forgotten_.erase(forgotten_in_order_.front());
    forgotten_in_order_.pop_front();
  }
  left->disarm();
  for (Bucket& bucket : left->buckets) {
    // A payload that is being placed keeps its entry, and the group with it; on_placed() ends both.
    for (auto early = bucket.early.begin(); early != bucket.early.end();) {
      if (!early->placed) {
        ++early;
        continue;
      }
      peers_[early->from].stored -= early->bytes.size();
      free_credit(early->from, early->bytes.size());
      early = bucket.early.erase(early);
    }
  }
  const bool placing = std::any_of(left->buckets.begin(), left->buckets.end(),
                                   [](const Bucket& bucket) { return !bucket.early.empty(); });
  if (!placing) groups_.erase(id);
}

// A member's number is its rank in the world at its birth, which is what the port calls it.
int Mailbox::world_rank(const Group& group, int rank) const noexcept {
  return static_cast<int>(group.view->member(rank).id);
}

int Mailbox::group_rank(const Group& group, int world_rank) const noexcept {
  if (group.view == nullptr || world_rank < 0 || world_rank >= world_->size()) return -1;
  if (group.view == world_) return world_rank;
  return group.view->rank_of(world_->member(world_rank));
}

std::vector<int> Mailbox::waited_for(std::uint64_t id, std::uint64_t sequence) {
  std::vector<int> ranks;
  Group* known = find_group(id);
  if (known == nullptr) return ranks;
  for (Bucket& bucket : known->buckets) {
    bucket.parts.for_each([&](Part& part) {
      if (part.exchange().sequence_ == sequence) ranks.push_back(group_rank(*known, part.peer()));
    });
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// --- outgoing -------------------------------------------------------------------------------------------------------------

MessageHeader Mailbox::header(const Group& group, MessageKind kind, int to) noexcept {
  const Member& self = world_->member(rank_);
  MessageHeader header;
  header.kind = kind;
  header.traffic = TrafficClass::kLatency;
  header.member = self.id;
  header.incarnation = self.incarnation;
  header.group = group.id;
  header.epoch = group.view == nullptr ? 0 : group.view->epoch();
  header.credit_limit = peers_[to].freed + kCreditBytes;
  header.sent_ns = loop_.now().time_since_epoch().count();
  return header;
}

void Mailbox::post(int to, const MessageHeader& header, const Buffer& piece, SendCompletion& completion,
                   bool now) noexcept {
  const std::span<const Buffer> pieces(&piece, piece.bytes > 0 ? 1 : 0);
  now ? port_.post_now(to, header, pieces, completion) : port_.post(to, header, pieces, completion);
}

void Mailbox::post_header(int to, const MessageHeader& header) noexcept { port_.post(to, header, {}, ignored_); }

void Mailbox::free_credit(int from, std::uint64_t bytes) noexcept {
  Peer& peer = peers_[from];
  peer.freed += bytes;
  if (!peer.holds) return;
  peer.holds = false;
  port_.release(from);
}

// --- incoming -------------------------------------------------------------------------------------------------------------

// From the member it says, in the version we speak, with no bit set that has no meaning yet.
bool Mailbox::sound(int from, const MessageHeader& header) const noexcept {
  if (header.version != 1 || header.flags != 0 || from < 0 || from >= world_->size()) return false;
  const Member& member = world_->member(from);
  return header.member == member.id && header.incarnation == member.incarnation;
}

Mailbox::RecvPart* Mailbox::find_recv(Group& group, int from, const MessageHeader& header) noexcept {
  RecvPart* found = nullptr;
  group.bucket(header.sequence, header.tag, from).parts.for_each([&](Part& part) {
    if (found == nullptr && part.matches(Part::Kind::kRecv, header.sequence, header.tag, from)) {
      found = static_cast<RecvPart*>(&part);
    }
  });
  return found;
}

MessageReceiver::Placement Mailbox::on_header(int from, const MessageHeader& header) noexcept {
  constexpr Placement kDropped{Placement::Action::kDrop, {}};
  constexpr Placement kNothingToPlace{Placement::Action::kInto, {}};
  if (!sound(from, header)) return kDropped;
  peers_[from].may_send = std::max(peers_[from].may_send, header.credit_limit);
  if (header.kind == MessageKind::kAbort) {
    if (header.length > AbortNotice::kMaxBytes) return kDropped;
    Incoming& notice = incoming_.emplace_back(Incoming{from, header, std::vector<std::byte>(header.length)});
    return {Placement::Action::kInto, Buffer{notice.bytes.data(), notice.bytes.size()}};
  }
  if (forgotten_.contains(header.group)) {
    if (header.kind == MessageKind::kEager) free_credit(from, header.length);
    return kDropped;
  }
  switch (header.kind) {
    case MessageKind::kEager: return place_eager(group(header.group), from, header);
    case MessageKind::kOffer:
    case MessageKind::kGrant: return header.length == 0 ? kNothingToPlace : kDropped;
    case MessageKind::kData: {
      Group* known = find_group(header.group);
      RecvPart* recv = known == nullptr ? nullptr : find_recv(*known, from, header);
      return recv == nullptr ? kDropped : recv->place(header);
    }
    case MessageKind::kAbort:
    case MessageKind::kAck:
    case MessageKind::kService: break;
  }
  return kDropped;
}

MessageReceiver::Placement Mailbox::place_eager(Group& group, int from, const MessageHeader& header) {
  constexpr Placement kDropped{Placement::Action::kDrop, {}};
  if (header.length != header.total || header.offset != 0 || header.length > kEagerBytes) return kDropped;
  if (group.error || disagrees(group, from, header)) {
    free_credit(from, header.length);
    return kDropped;
  }
  std::list<Early>& early = group.bucket(header.sequence, header.tag, from).early;
  for (Early& known : early) {  // the same header again, after a replay
    if (known.from == from && known.header.sequence == header.sequence && known.header.tag == header.tag &&
        known.header.kind == MessageKind::kEager && !known.placed) {
      return {Placement::Action::kInto, Buffer{known.bytes.data(), known.bytes.size()}};
    }
  }
  if (RecvPart* recv = find_recv(group, from, header); recv != nullptr) {
    const Placement placement = recv->place(header);
    if (placement.action == Placement::Action::kDrop) free_credit(from, header.length);
    return placement;
  }
  Peer& peer = peers_[from];
  if (peer.stored + header.length > kCreditBytes) {  // more than we allowed: it waits where it is
    peer.holds = true;
    return {Placement::Action::kHold, {}};
  }
  peer.stored += header.length;
  Early& stored = group.keep({from, header, std::vector<std::byte>(header.length), false});
  tell_watches(group, header);
  return {Placement::Action::kInto, Buffer{stored.bytes.data(), stored.bytes.size()}};
}

void Mailbox::on_placed(int from, const MessageHeader& header) noexcept {
  if (header.kind == MessageKind::kAbort) {
    notice_came(from, header);
    return;
  }
  Group* known = header.kind == MessageKind::kOffer && !forgotten_.contains(header.group) ? &group(header.group)
                                                                                          : find_group(header.group);
  if (known == nullptr) return;
  switch (header.kind) {
    case MessageKind::kEager: eager_placed(*known, from, header); break;
    case MessageKind::kOffer: offered(*known, from, header); break;
    case MessageKind::kGrant: granted(*known, from, header); break;
    case MessageKind::kData:
      if (RecvPart* recv = find_recv(*known, from, header); recv != nullptr) recv->placed(header);
      break;
    default: break;
  }
}

void Mailbox::eager_placed(Group& group, int from, const MessageHeader& header) {
  Bucket& bucket = group.bucket(header.sequence, header.tag, from);
  for (auto early = bucket.early.begin(); early != bucket.early.end(); ++early) {
    if (early->from != from || early->header.sequence != header.sequence || early->header.tag != header.tag ||
        early->header.kind != MessageKind::kEager || early->placed) {
      continue;
    }
    early->placed = true;
    if (group.error || forgotten_.contains(group.id)) {
      peers_[from].stored -= early->bytes.size();
      free_credit(from, early->bytes.size());
      bucket.early.erase(early);
      if (forgotten_.contains(group.id)) forget(group.id);
      return;
    }
    // It was asked for while it was on its way into our store.
    if (RecvPart* recv = find_recv(group, from, header); recv != nullptr) recv->early_came();
    return;
  }
  free_credit(from, header.length);
  if (RecvPart* recv = find_recv(group, from, header); recv != nullptr) recv->placed(header);
}

void Mailbox::offered(Group& group, int from, const MessageHeader& header) {
  if (group.error || disagrees(group, from, header)) return;
  if (RecvPart* recv = find_recv(group, from, header); recv != nullptr) {
    recv->grant(header);
    return;
  }
  group.keep({from, header, {}, true});
  tell_watches(group, header);
}

void Mailbox::tell_watches(Group& group, const MessageHeader& header) noexcept {
  if ((header.sequence & Exchange::kPairSequence) == 0) return;
  group.watches.for_each([](Watch& watch) { watch.news_.set(); });
}

std::vector<Mailbox::Unasked> Mailbox::unasked(std::uint64_t id, std::uint32_t tag) {
  std::vector<Unasked> found;
  Group* known = find_group(id);
  if (known == nullptr) return found;
  for (const Bucket& bucket : known->buckets) {
    for (const Early& early : bucket.early) {
      if (early.header.tag != tag || (early.header.sequence & Exchange::kPairSequence) == 0) continue;
      found.push_back({group_rank(*known, early.from), early.header.sequence});
    }
  }
  return found;
}

void Mailbox::granted(Group& group, int from, const MessageHeader& header) {
  SendPart* found = nullptr;
  group.bucket(header.sequence, header.tag, from).parts.for_each([&](Part& part) {
    if (found == nullptr && part.matches(Part::Kind::kSend, header.sequence, header.tag, from)) {
      found = static_cast<SendPart*>(&part);
    }
  });
  if (found != nullptr) {
    found->granted();
  } else if (Exchange* exchange = find_exchange(group, header.sequence); exchange != nullptr) {
    if (Exchange::Announced* early = exchange->announced(from, header.tag); early != nullptr) early->granted = true;
  }
}

}  // namespace aiacc
