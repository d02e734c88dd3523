#include "transports/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace aiacc {

// --- Part: what both halves share ---------------------------------------------------------------------------------------

const Exchange& Mailbox::Part::exchange() const noexcept { return owner_.exchange_; }
Mailbox& Mailbox::Part::mailbox() const noexcept { return owner_.exchange_.mailbox_; }
Mailbox::Group& Mailbox::Part::group() const noexcept { return owner_.exchange_.group_; }

bool Mailbox::Part::matches(Kind kind, std::uint64_t sequence, std::uint32_t tag, int peer) const noexcept {
  return tag_ == tag && peer_ == peer && kind_ == kind && owner_.exchange_.sequence_ == sequence;
}

MessageHeader Mailbox::Part::header(MessageKind kind) const noexcept {
  return owner_.exchange_.header(kind, peer_, tag_, buffer_.bytes);
}

void Mailbox::Part::start() noexcept {
  if (done_) return;  // the other half failed at once
  started_ = true;
  group().bucket(owner_.exchange_.sequence_, tag_, peer_).parts.push_back(*this);
  if (kind_ == Kind::kSend) {
    static_cast<SendPart*>(this)->begin();
  } else {
    static_cast<RecvPart*>(this)->begin();
  }
}

void Mailbox::Part::let_go(const std::exception_ptr& reason) noexcept {
  if (done_ || failing_) return;
  failing_ = reason;
  if (!started_) {
    finish(reason);
  } else if (kind_ == Kind::kSend) {
    static_cast<SendPart*>(this)->take_back();
  } else {
    static_cast<RecvPart*>(this)->take_back();
  }
}

void Mailbox::Part::finish(const std::exception_ptr& error) noexcept {
  done_ = true;
  unlink();
  owner_.part_done(*this, error);
}

// --- SendPart -----------------------------------------------------------------------------------------------------------

void Mailbox::SendPart::begin() noexcept {
  Peer& peer = mailbox().peers_[peer_];
  if (buffer_.bytes <= kEagerBytes && peer.eager_sent + buffer_.bytes <= peer.may_send) {
    peer.eager_sent += buffer_.bytes;
    MessageHeader eager = header(MessageKind::kEager);
    eager.length = next_ = buffer_.bytes;
    ++posts_;
    mailbox().post(peer_, eager, buffer_, *this, owner_.exchange_.hasty_);
    return;
  }
  const std::optional<Exchange::Announced> announced = owner_.exchange_.take_announced(peer_, tag_);
  offered_ = !announced || !announced->granted;
  if (!announced) mailbox().post_header(peer_, header(MessageKind::kOffer));
  if (!offered_) post_chunks();
}

void Mailbox::SendPart::granted() noexcept {
  if (!offered_ || failing_) return;  // granted twice, or given up meanwhile
  offered_ = false;
  post_chunks();
}

void Mailbox::SendPart::post_chunks() noexcept {
  while (posts_ < kChunksInFlight && next_ < buffer_.bytes) {
    MessageHeader chunk = header(MessageKind::kData);
    chunk.offset = next_;
    chunk.length = std::min(kChunkBytes, buffer_.bytes - next_);
    next_ += chunk.length;
    ++posts_;
    mailbox().post(peer_, chunk, buffer_.slice(chunk.offset, chunk.length), *this);
  }
}

void Mailbox::SendPart::sent(std::exception_ptr error) noexcept {
  --posts_;
  if (error && !failing_) let_go(error);
  if (done_) return;
  if (failing_) {
    if (posts_ == 0) finish(failing_);
    return;
  }
  post_chunks();
  if (posts_ == 0) finish(nullptr);
}

void Mailbox::SendPart::take_back() noexcept {
  if (posts_ == 0) {
    finish(failing_);
  } else {
    mailbox().port_.withdraw(*this);
  }
}

// --- RecvPart -----------------------------------------------------------------------------------------------------------

void Mailbox::RecvPart::begin() noexcept {
  if (take_early()) {
    finish(nullptr);
    return;
  }
  if (done_ || failing_) return;  // it did not fit
  const Exchange& mine = exchange();
  std::list<Early>& early = group().bucket(mine.sequence_, tag_, peer_).early;
  for (auto entry = early.begin(); entry != early.end(); ++entry) {
    if (entry->header.kind != MessageKind::kOffer || entry->from != peer_ || entry->header.tag != tag_ ||
        entry->header.sequence != mine.sequence_) {
      continue;
    }
    const MessageHeader offer = entry->header;
    early.erase(entry);
    grant(offer);
    return;
  }
}

void Mailbox::RecvPart::early_came() noexcept {
  if (!failing_ && take_early()) finish(nullptr);
}

bool Mailbox::RecvPart::take_early() noexcept {
  const Exchange& mine = exchange();
  std::list<Early>& early = group().bucket(mine.sequence_, tag_, peer_).early;
  for (auto entry = early.begin(); entry != early.end(); ++entry) {
    if (entry->header.kind != MessageKind::kEager || !entry->placed || entry->from != peer_ ||
        entry->header.tag != tag_ || entry->header.sequence != mine.sequence_) {
      continue;
    }
    if (!fits(entry->header)) return false;
    if (buffer_.data != nullptr && buffer_.bytes > 0) std::memcpy(buffer_.data, entry->bytes.data(), buffer_.bytes);
    mailbox().peers_[peer_].stored -= entry->bytes.size();
    mailbox().free_credit(peer_, entry->bytes.size());
    early.erase(entry);
    return true;
  }
  return false;
}

// Calls that have the same fingerprint may still differ in the length of a block that only its two ends know; sends and
// receives of pairs are compared only here.
bool Mailbox::RecvPart::fits(const MessageHeader& header) noexcept {
  const Exchange& mine = exchange();
  if (header.fingerprint != mine.fingerprint_) {
    mailbox().ask(group(), peer_, header, mine.note_);
    return false;
  }
  if (header.total == buffer_.bytes) return true;
  AbortNotice notice;
  notice.code = Code::kMismatch;
  notice.rank = mailbox().group_rank(group(), peer_);
  notice.text = fmt::format(
      "rank {} sends rank {} {} bytes where rank {} expects {}, in operation {} of their group ({}): "
      "both ends of a block give the same count",
      notice.rank, group().rank, header.total, group().rank, buffer_.bytes, header.sequence & ~Exchange::kPairSequence,
      mine.note_.describe());
  mailbox().end_group(group(), notice, std::make_exception_ptr(Error(notice.code, notice.text, notice.rank)));
  return false;
}

void Mailbox::RecvPart::grant(const MessageHeader& offer) noexcept {
  if (failing_ || granted_ || !fits(offer)) return;
  granted_ = true;
  mailbox().post_header(peer_, header(MessageKind::kGrant));
}

MessageReceiver::Placement Mailbox::RecvPart::place(const MessageHeader& header) noexcept {
  constexpr Placement kDropped{Placement::Action::kDrop, {}};
  if (failing_ || !fits(header)) return kDropped;
  if (header.kind == MessageKind::kData && !granted_) return kDropped;
  if (header.offset > buffer_.bytes || header.length > buffer_.bytes - header.offset) return kDropped;
  const bool again = std::any_of(placing_.begin(), placing_.end(),
                                 [&](const MessageHeader& known) { return known.offset == header.offset; });
  if (!again) placing_.push_back(header);
  return {Placement::Action::kInto, buffer_.slice(header.offset, header.length)};
}

void Mailbox::RecvPart::placed(const MessageHeader& header) noexcept {
  const auto place = std::find_if(placing_.begin(), placing_.end(),
                                  [&](const MessageHeader& known) { return known.offset == header.offset; });
  if (place == placing_.end()) return;
  placing_.erase(place);
  received_ += header.length;
  if (failing_) {
    if (placing_.empty()) finish(failing_);
  } else if (received_ == buffer_.bytes) {
    finish(nullptr);
  }
}

void Mailbox::RecvPart::take_back() noexcept {
  if (placing_.empty()) {
    finish(failing_);
    return;
  }
  for (const MessageHeader& header : placing_) mailbox().port_.revoke(peer_, header);
}

void Mailbox::RecvPart::peer_lost() noexcept {
  placing_.clear();
  if (failing_) finish(failing_);
}

// --- Transfer -----------------------------------------------------------------------------------------------------------

Transfer::Transfer(Exchange& exchange, Stop& stop, std::optional<To> to, std::optional<From> from)
    : Leaf(exchange.mailbox_.loop_, stop), exchange_(exchange) {
  const Mailbox::Group& group = exchange.group_;
  if ((to && to->rank == group.rank) || (from && from->rank == group.rank)) {
    throw Error(Code::kInvalidArgument, fmt::format("rank {} cannot send to itself", group.rank), group.rank);
  }
  if (from) recv_.emplace(*this, exchange.mailbox_.world_rank(group, from->rank), from->tag, from->into);
  if (to) send_.emplace(*this, exchange.mailbox_.world_rank(group, to->rank), to->tag, to->data);
  pending_ = (send_ ? 1 : 0) + (recv_ ? 1 : 0);
}

bool Transfer::try_now() {
  if (exchange_.group_.error) std::rethrow_exception(exchange_.group_.error);
  return false;
}

void Transfer::begin() noexcept {
  if (recv_) recv_->start();
  if (send_) send_->start();
}

bool Transfer::let_go(const std::exception_ptr& reason) noexcept {
  if (send_) send_->let_go(reason);
  if (recv_) recv_->let_go(reason);
  return false;  // the last part to be done ends the wait
}

void Transfer::part_done(Mailbox::Part& part, const std::exception_ptr& error) noexcept {
  if (error && !error_) error_ = error;
  --pending_;
  if (error && send_ && &part != &*send_) send_->let_go(error);
  if (error && recv_ && &part != &*recv_) recv_->let_go(error);
  if (pending_ != 0 || ended_) return;
  ended_ = true;
  if (error_) {
    fail(error_);
  } else {
    complete();
  }
}

// --- Exchange -----------------------------------------------------------------------------------------------------------

Exchange::Exchange(Mailbox& mailbox, const ViewPtr& view, int rank, std::uint64_t sequence, std::uint64_t fingerprint,
                   CallNote note)
    : mailbox_(mailbox),
      group_((mailbox.join(view, rank), mailbox.group(view->id()))),
      sequence_(sequence),
      fingerprint_(fingerprint),
      note_(note) {
  if (group_.error) std::rethrow_exception(group_.error);
  group_.exchanges.push_back(*this);
  if ((sequence & kPairSequence) != 0) return;
  if (const Mailbox::Early* other = group_.early_unlike(sequence, fingerprint); other != nullptr) {
    mailbox_.ask(group_, other->from, other->header, note_);
  }
}

MessageHeader Exchange::header(MessageKind kind, int peer, std::uint32_t tag, std::size_t bytes) const noexcept {
  MessageHeader header = mailbox_.header(group_, kind, peer);
  const bool bulk = kind == MessageKind::kData && !urgent_;
  header.traffic = bulk ? TrafficClass::kBulk : TrafficClass::kLatency;
  header.tag = tag;
  header.sequence = sequence_;
  header.fingerprint = fingerprint_;
  header.total = bytes;
  return header;
}

void Exchange::announce(int to, std::uint32_t tag, std::size_t bytes) noexcept {
  if (bytes <= Mailbox::kEagerBytes || group_.error) return;
  const int peer = mailbox_.world_rank(group_, to);
  announced_.push_back({peer, tag, false});
  mailbox_.post_header(peer, header(MessageKind::kOffer, peer, tag, bytes));
}

Exchange::Announced* Exchange::announced(int peer, std::uint32_t tag) noexcept {
  const auto found = std::find_if(announced_.begin(), announced_.end(),
                                  [&](const Announced& one) { return one.peer == peer && one.tag == tag; });
  return found == announced_.end() ? nullptr : &*found;
}

std::optional<Exchange::Announced> Exchange::take_announced(int peer, std::uint32_t tag) noexcept {
  Announced* const found = announced(peer, tag);
  if (found == nullptr) return std::nullopt;
  const Announced taken = *found;
  announced_.erase(announced_.begin() + (found - announced_.data()));
  return taken;
}

Exchange::~Exchange() { group_.past.add(sequence_, fingerprint_, note_); }

}  // namespace aiacc
