#include "transports/tcp/link.h"

#include <fmt/format.h>

#include <algorithm>

namespace aiacc::tcp {

void Link::post(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion, bool now) {
  if (lost_ || peer_left_) {
    const std::exception_ptr why = lost_ ? lost_ : has_gone();
    shared_.notify_later({Notification::What::kSent, rank_, &completion, why, {}});
    if (!lost_) shared_.notify_later({Notification::What::kLost, rank_, nullptr, why, {}});
    return;
  }
  outbound_.add(header, pieces, completion);
  if (connection_ == nullptr) {
    connect();
  } else if (now) {
    connection_->write_now();
  } else {
    connection_->wake_writer();
  }
}

void Link::begin() {
  if (!outbound_.empty()) connect();
}

void Link::withdraw(Outgoing& message) { outbound_.withdraw(message, *this); }

void Link::moved(const Outgoing& message, std::span<const io::Piece> before) noexcept {
  if (connection_ != nullptr) connection_->moved(message, before);
}

void Link::revoke(const MessageHeader& header) noexcept {
  if (!inbound_.revoke(header)) return;
  shared_.notify_later({Notification::What::kRevoked, rank_, nullptr, nullptr, header});
}

void Link::place_changed(Incoming& message) noexcept {
  if (connection_ != nullptr) connection_->place_changed(message);
}

void Link::arrived(Incoming& message) noexcept {
  if (connection_ != nullptr) connection_->arrived(message);
}

void Link::release() noexcept { shared_.notify_later({Notification::What::kRelease, rank_, nullptr, nullptr, {}}); }

void Link::ask_held_again() noexcept {
  if (lost_) return;
  inbound_.ask_again();
  if (connection_ != nullptr && !inbound_.holds_too_much()) connection_->room_again();
}

void Link::lose(std::exception_ptr why) noexcept {
  if (lost_) return;
  lost_ = std::move(why);
  make_way();
  outbound_.fail(lost_);
  inbound_.forget();
  if (!shared_.closed && shared_.receiver != nullptr) shared_.receiver->on_peer_lost(rank_, lost_);
  settled();
}

void Link::close() noexcept {
  make_way();
  outbound_.forget();
  inbound_.forget();
}

std::exception_ptr Link::has_gone() const noexcept {
  return std::make_exception_ptr(
      Error(Code::kPeerFailed, fmt::format("{} has left the job", shared_.name(rank_)), rank_));
}

// --- connections ----------------------------------------------------------------------------------------------------------

void Link::connect() {
  if (connection_ != nullptr || dial_ != nullptr || lost_ || shared_.closed || shared_.receiver == nullptr) return;
  dial_ = std::make_unique<Dial>(shared_, static_cast<DialOwner&>(*this), rank_);
  dial_->start();
  shared_.notify_later({Notification::What::kBroken, rank_, nullptr, nullptr, {}});
}

wire::Verdict Link::judge(const Terms& theirs) const noexcept {
  if (lost_ || peer_left_ || shared_.closed) return wire::Verdict::kGone;
  const bool stale = connection_ != nullptr && theirs.connections < connections_;
  const bool mine_wins = dial_ != nullptr && dial_->proof_sent() && shared_.settings.rank < rank_;
  return stale || mine_wins ? wire::Verdict::kBusy : wire::Verdict::kAccepted;
}

void Link::make_way() noexcept {
  if (dial_ != nullptr) {
    // A dial that is not needed goes on to where it would prove itself and ends there, so that no peer of this job looks like
    // an unauthenticated peer who fell silent.
    if (lost_ || shared_.closed) dial_->stop();
    old_dials_.push_back(std::move(dial_));
  }
  if (connection_ != nullptr) {
    connection_->stop(std::make_exception_ptr(Error(Code::kAborted, "this connection is not needed any more")));
    connection_->retire();
    old_connections_.push_back(std::move(connection_));
  }
  if (lost_ || shared_.closed) {
    for (const std::unique_ptr<Dial>& old : old_dials_) old->stop();
  }
}

void Link::accept(std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface) {
  make_way();
  connections_ = std::max(connections_, theirs.connections) + 1;
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    const std::uint64_t count = theirs.received[traffic];
    if (outbound_.arrived(static_cast<TrafficClass>(traffic), count, count)) continue;
    lose(std::make_exception_ptr(Error(
        Code::kProtocol,
        fmt::format("{} says that it has {} messages of a traffic class, which cannot be", shared_.name(rank_), count),
        rank_)));
    return;
  }
  if (lost_ || shared_.closed) return;  // in a completion
  connection_ = std::make_unique<Connection>(shared_, static_cast<ConnectionOwner&>(*this), std::move(stream),
                                             std::move(preface), inbound_, outbound_);
  connection_->lead();
  connection_->start();
  if (leaving_ && connection_ != nullptr) say_farewell();
}

void Link::reached(Dial&, std::unique_ptr<io::Stream> stream, const Terms& theirs) {
  accept(std::move(stream), theirs, {});
}

void Link::out_of_reach(Dial& dial, std::exception_ptr why) noexcept {
  if (wants(dial)) lose(std::move(why));
}

void Link::dial_ended(Dial& dial) noexcept {
  if (dial_.get() == &dial) {
    const std::unique_ptr<Dial> ended = std::move(dial_);
    return;
  }
  old_dials_.remove_if([&](const std::unique_ptr<Dial>& old) { return old.get() == &dial; });
}

void Link::connection_ended(Connection& connection, std::exception_ptr error) noexcept {
  if (connection_.get() != &connection) {
    old_connections_.remove_if([&](const std::unique_ptr<Connection>& old) { return old.get() == &connection; });
    return;
  }
  const std::unique_ptr<Connection> ended = std::move(connection_);
  ended->retire();
  if (shared_.closed) return;
  const Error cause = error ? as_error(error) : Error(Code::kPeerFailed, "end of stream");
  const bool junk = cause.code() == Code::kProtocol;
  if (junk && !peer_left_ && too_much_junk(cause)) return;
  if (!junk && cause.code() != Code::kPeerFailed && cause.code() != Code::kSystem) {
    lose(std::make_exception_ptr(
        Error(cause.code(), fmt::format("{}: {}", shared_.name(rank_), cause.message()), rank_)));
  } else if (peer_left_ || farewell_) {
    peer_left_ = true;
    if (!outbound_.empty()) lose(has_gone());
    settled();
  } else {
    connect();
  }
}

// Loses the peer if it is.
bool Link::too_much_junk(const Error& last) noexcept {
  const Instant now = shared_.loop.now();
  junk_.push_back(now);
  while (now - junk_.front() > kJunkTime) junk_.pop_front();
  if (junk_.size() < kMostJunk) return false;
  lose(std::make_exception_ptr(
      Error(Code::kProtocol,
            fmt::format("{}: {} connections within {:.1f} s brought what it cannot have sent, the last one this: {}. "
                        "Somebody on the path between the hosts alters what they say{}",
                        shared_.name(rank_), junk_.size(), seconds(now - junk_.front()), last.message(),
                        shared_.protection == wire::Protection::kNone
                            ? ", or speaks for them: AIACC_ENCRYPT=integrity makes such bytes harmless"
                            : ""),
            rank_)));
  return true;
}

// --- farewell -------------------------------------------------------------------------------------------------------------

void Link::leave() noexcept {
  leaving_ = true;
  if (has_left()) {
    settled();
  } else if (connection_ == nullptr) {
    connect();
  } else {
    say_farewell();
  }
}

bool Link::has_left() const noexcept {
  const bool untouched = connections_ == 0 && dial_ == nullptr && outbound_.empty();
  return untouched || lost_ || (peer_left_ && connection_ == nullptr);
}

void Link::say_farewell() noexcept {
  if (outbound_.empty()) {
    connection_->farewell();
  } else {
    connection_->ask();
  }
}

void Link::acknowledged() noexcept {
  if (leaving_ && outbound_.empty() && connection_ != nullptr) connection_->farewell();
}

void Link::farewell_came() noexcept { peer_left_ = true; }
void Link::farewell_written() noexcept { farewell_ = true; }

void Link::settled() noexcept {
  shared_.links_changed.set();
  shared_.links_changed.reset();
}

}  // namespace aiacc::tcp
