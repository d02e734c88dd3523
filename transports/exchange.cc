#include "transports/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace aiacc {

// --- PostedRequest: what sends and receives share --------------------------------------------------------------------

const Exchange& PostedRequest::exchange() const noexcept { return owner_.exchange(); }
Mailbox& PostedRequest::mailbox() const noexcept { return owner_.exchange().mailbox(); }
MatchGroup& PostedRequest::group() const noexcept { return owner_.exchange().group(); }

bool PostedRequest::matches(std::uint64_t sequence, Tag tag, int peer) const noexcept {
  return tag_ == tag && peer_ == peer && owner_.exchange().id().sequence == sequence;
}

MessageHeader PostedRequest::header(MessageKind kind) const noexcept {
  return owner_.exchange().header(kind, peer_, tag_, buffer_.bytes);
}

void PostedRequest::start() noexcept {
  if (done_) return;  // the transfer's other half has failed already
  started_ = true;
  owner_.exchange().parts().push_back(*this);
  MatchIndex<PostedRequest>& index = kind_ == Kind::kSend ? group().sends : group().receives;
  index.add(*this, WireId::hash_of(owner_.exchange().id().sequence, tag_, peer_));
  if (kind_ == Kind::kSend) {
    static_cast<PostedSend*>(this)->begin();
  } else {
    static_cast<PostedReceive*>(this)->begin();
  }
}

void PostedRequest::revoke(const std::exception_ptr& reason) noexcept {
  if (done_ || failing_) return;
  failing_ = reason;
  if (!started_) {
    finish(reason);
  } else if (kind_ == Kind::kSend) {
    static_cast<PostedSend*>(this)->take_back();
  } else {
    static_cast<PostedReceive*>(this)->take_back();
  }
}

void PostedRequest::finish(const std::exception_ptr& error) noexcept {
  done_ = true;
  unlink();
  unindex();
  if (kind_ == Kind::kRecv) static_cast<PostedReceive*>(this)->ended();
  owner_.request_done(*this, error);
}

// --- PostedSend ------------------------------------------------------------------------------------------------------

void PostedSend::begin() noexcept {
  if (begun_ != nullptr) {
    next_ = buffer_.bytes;
    posts_ = 1;
    return begun_->hand_over(*this);
  }
  Peer& peer = mailbox().peer(peer_);
  if (buffer_.bytes <= most_eager_ && peer.eager_sent + buffer_.bytes <= peer.may_send) {
    peer.eager_sent += buffer_.bytes;
    MessageHeader eager = header(MessageKind::kEager);
    eager.length = next_ = buffer_.bytes;
    ++posts_;
    mailbox().post(peer_, eager, buffer_, *this, owner_.exchange().immediate());
    return;
  }
  const std::optional<Exchange::EarlyRts> early_rts = owner_.exchange().take_early_rts(peer_, tag_);
  awaits_cts_ = !early_rts || !early_rts->cts_came;
  if (!early_rts) mailbox().post_header(peer_, header(MessageKind::kRts));
  if (!awaits_cts_) post_chunks();
}

void PostedSend::cts_came() noexcept {
  if (!awaits_cts_ || failing_) return;  // a duplicate CTS, or the send is failing
  awaits_cts_ = false;
  post_chunks();
}

void PostedSend::post_chunks() noexcept {
  const int most = mailbox().port().chunks_in_flight(peer_);
  const std::size_t longest = mailbox().port().chunk_bytes();
  while (posts_ < most && next_ < buffer_.bytes) {
    MessageHeader chunk = header(MessageKind::kData);
    chunk.offset = next_;
    chunk.length = std::min(longest, buffer_.bytes - next_);
    next_ += chunk.length;
    ++posts_;
    mailbox().post(peer_, chunk, buffer_.slice(chunk.offset, chunk.length), *this);
  }
}

void PostedSend::sent(std::exception_ptr error) noexcept {
  --posts_;
  if (error && !failing_) revoke(error);
  if (done_) return;
  if (failing_) {
    if (posts_ == 0) finish(failing_);
    return;
  }
  post_chunks();
  if (posts_ == 0) finish(nullptr);
}

void PostedSend::take_back() noexcept {
  if (posts_ == 0) {
    finish(failing_);
  } else {
    mailbox().port().withdraw(begun_ != nullptr ? static_cast<SendCompletion&>(*begun_) : *this);
  }
}

// --- PostedReceive ---------------------------------------------------------------------------------------------------

void PostedReceive::begin() noexcept {
  if (begun_ != nullptr && take_over()) return;
  if (take_unexpected()) {
    finish(nullptr);
    return;
  }
  if (done_ || failing_) return;  // the unexpected message did not fit
  UnexpectedMessage* unexpected = group().find_early(MessageKind::kRts, true, exchange().id().sequence, tag_, peer_);
  if (unexpected == nullptr) return;
  const MessageHeader rts = unexpected->header;
  group().drop(*unexpected);
  send_cts(rts);
}

// Whether its message is arriving already.
bool PostedReceive::take_over() noexcept {
  const std::optional<MessageHeader> header = mailbox().take_placing(*begun_);
  begun_->hand_over();
  if (!header) return false;
  placing_.add(*header);
  note_arriving();
  return true;
}

void PostedReceive::unexpected_came() noexcept {
  if (!failing_ && take_unexpected()) finish(nullptr);
}

bool PostedReceive::take_unexpected() noexcept {
  UnexpectedMessage* unexpected = group().find_early(MessageKind::kEager, true, exchange().id().sequence, tag_, peer_);
  if (unexpected == nullptr || !fits(unexpected->header)) return false;
  settle(unexpected->header);
  mailbox().take_unexpected(group(), *unexpected, buffer_);
  // A message may turn out short enough to be sent eagerly after its early RTS; that RTS needs no CTS then.
  UnexpectedMessage* rts = group().find_early(MessageKind::kRts, true, exchange().id().sequence, tag_, peer_);
  if (rts != nullptr) group().drop(*rts);
  return true;
}

// Replaces the bound of the length by the message's actual length.
void PostedReceive::settle(const MessageHeader& message) noexcept {
  if (!bounded_) return;
  bounded_ = false;
  buffer_.bytes = message.total;
}

// Calls with equal fingerprints may still differ in the length of a block that only its two ends know. Point-to-point calls are
// compared only here.
bool PostedReceive::fits(const MessageHeader& header) noexcept {
  const Exchange& mine = exchange();
  if (header.fingerprint != mine.fingerprint()) {
    mailbox().observer().calls_differ(group(), peer_, header, mine.note());
    return false;
  }
  if (bounded_ ? header.total <= buffer_.bytes : header.total == buffer_.bytes) return true;
  const int sender = mailbox().group_rank(group(), peer_);
  const std::string sentence = fmt::format(
      "rank {} sends rank {} {} bytes where rank {} expects {}{}, in operation {} of their group ({}): "
      "both ends of a block give the same {}",
      sender, group().rank, header.total, group().rank, bounded_ ? "at most " : "", buffer_.bytes,
      header.sequence & ~kPairSequence, mine.note().describe(), bounded_ ? "bound" : "count");
  mailbox().observer().lengths_differ(group(), peer_, sentence);
  return false;
}

void PostedReceive::send_cts(const MessageHeader& rts) noexcept {
  if (failing_ || cts_sent_ || !fits(rts)) return;
  cts_sent_ = true;
  note_arriving();
  mailbox().post_header(peer_, header(MessageKind::kCts));
}

MessageReceiver::Placement PostedReceive::place(const MessageHeader& header) noexcept {
  constexpr MessageReceiver::Placement kDropped{MessageReceiver::Placement::Action::kDrop, {}};
  if (failing_ || !fits(header)) return kDropped;
  if (header.kind == MessageKind::kData && !cts_sent_) return kDropped;
  settle(header);
  if (header.offset > buffer_.bytes || header.length > buffer_.bytes - header.offset) return kDropped;
  placing_.add(header);
  note_arriving();
  return {MessageReceiver::Placement::Action::kInto, buffer_.slice(header.offset, header.length)};
}

void PostedReceive::placed(const MessageHeader& header) noexcept {
  if (!placing_.remove(header)) return;
  received_ += header.length;
  if (failing_) {
    if (placing_.empty()) finish(failing_);
  } else if (received_ == buffer_.bytes) {
    finish(nullptr);
  }
}

void PostedReceive::note_arriving() noexcept {
  if (!std::exchange(arriving_, true)) ++group().arriving;
}

void PostedReceive::ended() noexcept {
  if (std::exchange(arriving_, false)) --group().arriving;
}

void PostedReceive::take_back() noexcept {
  if (placing_.empty()) {
    finish(failing_);
    return;
  }
  placing_.for_each([&](const MessageHeader& header) { mailbox().port().revoke(peer_, header); });
}

void PostedReceive::peer_lost() noexcept {
  placing_.clear();
  if (failing_) finish(failing_);
}

// --- Transfer -----------------------------------------------------------------------------------------------------------

Transfer::Transfer(Exchange& exchange, Stop& stop, std::optional<To> to, std::optional<From> from)
    : Leaf(exchange.loop(), stop), exchange_(exchange) {
  const MatchGroup& group = exchange.group();
  if ((to && to->rank == group.rank) || (from && from->rank == group.rank)) {
    throw Error(Code::kInvalidArgument, fmt::format("rank {} cannot send to itself", group.rank), group.rank);
  }
  if (from)
    recv_.emplace(*this, exchange.mailbox().world_rank(group, from->rank), from->tag, from->into, from->bounded,
                  from->begun);
  const bool both = to && from && to->rank == from->rank && !exchange.id().is_pair();
  if (to)
    send_.emplace(*this, exchange.mailbox().world_rank(group, to->rank), to->tag, to->data,
                  exchange.most_eager(both || to->swaps), to->begun);
  // Of either half: the first to leave tells the credit.
  if (to && (both || to->swaps) && exchange.swaps_long() && to->data.bytes > Mailbox::kLeastCreditedSwap)
    exchange.mailbox().swaps_with(send_->peer());
  if (from && (both || from->swaps) && exchange.swaps_long() && from->into.bytes > Mailbox::kLeastCreditedSwap)
    exchange.mailbox().swaps_with(recv_->peer());
  pending_ = (send_ ? 1 : 0) + (recv_ ? 1 : 0);
}

bool Transfer::try_now() {
  if (exchange_.group().error) std::rethrow_exception(exchange_.group().error);
  return false;
}

void Transfer::begin() noexcept {
  if (recv_) recv_->start();
  if (send_) send_->start();
}

bool Transfer::revoke(const std::exception_ptr& reason) noexcept {
  if (send_) send_->revoke(reason);
  if (recv_) recv_->revoke(reason);
  return false;  // the wait ends when both requests are done
}

void Transfer::request_done(PostedRequest& request, const std::exception_ptr& error) noexcept {
  if (error && !error_) error_ = error;
  --pending_;
  if (error && send_ && &request != &*send_) send_->revoke(error);
  if (error && recv_ && &request != &*recv_) recv_->revoke(error);
  if (pending_ != 0 || ended_) return;
  ended_ = true;
  if (error_) {
    fail(error_);
  } else {
    complete();
  }
}

// --- Exchange -----------------------------------------------------------------------------------------------------------

Exchange::Exchange(Mailbox& mailbox, const ViewPtr& view, int rank, const WireId& id, std::uint64_t fingerprint,
                   CallNote note)
    : mailbox_(mailbox),
      group_((mailbox.join(view, rank), mailbox.group(view->id()))),
      id_(id),
      fingerprint_(fingerprint),
      note_(note) {
  if (group_.error) std::rethrow_exception(group_.error);
  enlist(id.is_pair() ? group_.messages : group_.calls);
  group_.exchanges.add(*this, id.hash());
  if (id.is_pair()) return;
  if (const UnexpectedMessage* other = group_.unexpected_unlike(id.sequence, fingerprint); other != nullptr) {
    mailbox_.observer().calls_differ(group_, other->from, other->header, note_);
  }
}

// Collectives may begin in another order than they were made (runtime/group/short_queue.h): few that were made later have begun.
void Exchange::enlist(IntrusiveList<Exchange>& those) noexcept {
  Exchange* later = nullptr;
  if (!id_.is_pair() && id_.sequence <= std::exchange(group_.newest_call, std::max(group_.newest_call, id_.sequence))) {
    later = those.first_of_last([this](const Exchange& other) { return other.id().sequence > id_.sequence; });
  }
  later == nullptr ? those.push_back(*this) : those.insert_before(*later, *this);
}

MessageHeader Exchange::header(MessageKind kind, int peer, Tag tag, std::size_t bytes) const noexcept {
  MessageHeader header = mailbox_.header(group_, kind, peer);
  const bool is_long = kind == MessageKind::kEager && bytes > Mailbox::kSwappedEagerBytes;
  header.traffic = kind == MessageKind::kData || is_long ? traffic_.data : traffic_.headers;
  header.step = tag.step;
  header.algorithm = tag.algorithm;
  header.sequence = id_.sequence;
  header.fingerprint = fingerprint_;
  header.total = bytes;
  return header;
}

void Exchange::send_early_rts(int to, Tag tag, std::size_t bytes, bool swaps) noexcept {
  if (bytes <= most_eager(swaps) || group_.error) return;
  const int peer = mailbox_.world_rank(group_, to);
  early_rts_.push_back({peer, tag, false});
  mailbox_.post_header(peer, header(MessageKind::kRts, peer, tag, bytes));
}

int Exchange::chunks_in_flight(int to) const noexcept {
  return mailbox_.port().chunks_in_flight(mailbox_.world_rank(group_, to));
}

Exchange::EarlyRts* Exchange::early_rts(int peer, Tag tag) noexcept {
  const auto found = std::find_if(early_rts_.begin(), early_rts_.end(),
                                  [&](const EarlyRts& one) { return one.peer == peer && one.tag == tag; });
  return found == early_rts_.end() ? nullptr : &*found;
}

std::optional<Exchange::EarlyRts> Exchange::take_early_rts(int peer, Tag tag) noexcept {
  EarlyRts* const found = early_rts(peer, tag);
  if (found == nullptr) return std::nullopt;
  const EarlyRts taken = *found;
  early_rts_.erase(early_rts_.begin() + (found - early_rts_.data()));
  return taken;
}

void Exchange::fail(const std::exception_ptr& error) noexcept {
  while (PostedRequest* const request = parts_.pop_front()) {
    ending_.push_back(*request);
    request->revoke(error);
  }
}

Exchange::~Exchange() { group_.past.add(id_.sequence, fingerprint_, note_); }

}  // namespace aiacc
