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
  Connection* const its = lead();
  if (its == nullptr) {
    connect(0);
  } else if (now) {
    its->write_now();
  } else {
    its->wake_writer();
  }
  if (header.length > Outbound::kWholeBytes && !long_messages_) chunk_came();
}

void Link::begin() {
  if (!outbound_.empty()) connect(0);
}

void Link::moved(const Outgoing& message, std::span<const io::Piece> before) noexcept {
  each_connection([&](Connection& each) { each.moved(message, before); });
}

void Link::revoke(const MessageHeader& header) noexcept {
  if (!inbound_.revoke(header)) return;
  shared_.notify_later({Notification::What::kRevoked, rank_, nullptr, nullptr, header});
}

void Link::place_changed(Incoming& message) noexcept {
  each_connection([&](Connection& each) { each.place_changed(message); });
}

void Link::arrived(Incoming& message) noexcept {
  each_connection([&](Connection& each) { each.arrived(message); });
}

void Link::release() noexcept { shared_.notify_later({Notification::What::kRelease, rank_, nullptr, nullptr, {}}); }

void Link::ask_held_again() noexcept {
  if (lost_) return;
  inbound_.ask_again();
  if (inbound_.holds_too_much()) return;
  each_connection([](Connection& each) { each.room_again(); });
}

void Link::lose(std::exception_ptr why) noexcept {
  if (lost_) return;
  lost_ = std::move(why);
  make_way_everywhere();
  outbound_.fail(lost_);
  inbound_.forget();
  if (!shared_.closed && shared_.receiver != nullptr) shared_.receiver->on_peer_lost(rank_, lost_);
  settled();
}

void Link::close() noexcept {
  make_way_everywhere();
  outbound_.forget();
  inbound_.forget();
}

std::exception_ptr Link::has_gone() const noexcept {
  return std::make_exception_ptr(
      Error(Code::kPeerFailed, fmt::format("{} has left the job", shared_.name(rank_)), rank_));
}

// --- connections ----------------------------------------------------------------------------------------------------------

const Link::Place* Link::place_of(const Dial& dial) const noexcept {
  const auto found =
      std::find_if(places_.begin(), places_.end(), [&](const Place& each) { return each.dial.get() == &dial; });
  return found == places_.end() ? nullptr : &*found;
}

const Link::Place* Link::any_connected() const noexcept {
  const auto found =
      std::find_if(places_.begin(), places_.end(), [](const Place& each) { return each.connection != nullptr; });
  return found == places_.end() ? nullptr : &*found;
}

Connection* Link::lead() const noexcept {
  for (const Place& place : places_) {
    if (place.connection != nullptr && place.connection->leads()) return place.connection.get();
  }
  return nullptr;
}

void Link::connect(std::size_t stream) {
  Place& place = places_[stream];
  if (place.connection != nullptr || place.dial != nullptr) return;
  if (lost_ || shared_.closed || shared_.receiver == nullptr) return;
  const bool broken = any_connected() == nullptr;
  if (leaving_ && !broken) return;  // what is there is enough
  place.dial = std::make_unique<Dial>(shared_, static_cast<DialOwner&>(*this), rank_);
  place.dial->start();
  if (broken) shared_.notify_later({Notification::What::kBroken, rank_, nullptr, nullptr, {}});
}

void Link::connect_missing() {
  for (std::size_t stream = 0; stream < in_use_; ++stream) connect(stream);
}

void Link::open_all() {
  if (!long_messages_ || in_use_ == agreed_ || any_connected() == nullptr) return;
  in_use_ = agreed_;
  connect_missing();
}

void Link::chunk_came() noexcept {
  long_messages_ = true;
  open_all();
}

std::optional<BrokenPath> Link::broken_path() const {
  if (any_connected() != nullptr) return std::nullopt;
  for (const Place& place : places_) {
    if (place.dial != nullptr) return place.dial->broken_path();
  }
  return std::nullopt;
}

std::string Link::obstacle() const {
  if (any_connected() != nullptr) return {};
  for (const Place& place : places_) {
    if (place.dial != nullptr) return place.dial->obstacle();
  }
  return {};
}

Terms Link::my_terms(std::size_t stream) const noexcept {
  Terms terms;
  terms.received = inbound_.wholes();
  terms.connections = stream < places_.size() ? places_[stream].connections : 0;
  terms.stream = static_cast<std::uint16_t>(stream);
  terms.streams = static_cast<std::uint16_t>(places_.size());
  terms.protection = shared_.protection;
  return terms;
}

Terms Link::my_terms(const Dial& dial) const noexcept {
  const Place* const place = place_of(dial);
  return my_terms(place == nullptr ? 0 : static_cast<std::size_t>(place - places_.data()));
}

wire::Verdict Link::judge(const Terms& theirs) const noexcept {
  if (lost_ || peer_left_ || shared_.closed) return wire::Verdict::kGone;
  if (theirs.stream >= places_.size()) return wire::Verdict::kBusy;
  const Place& place = places_[theirs.stream];
  const bool stale = place.connection != nullptr && theirs.connections < place.connections;
  const bool mine_wins = place.dial != nullptr && place.dial->proof_sent() && shared_.settings.rank < rank_;
  return stale || mine_wins ? wire::Verdict::kBusy : wire::Verdict::kAccepted;
}

// Before a dialer is accepted: no other connection of this place transfers data from now on.
void Link::make_way(Place& place) noexcept {
  if (place.dial != nullptr) {
    // A dial that is not needed goes on to where it would prove itself and ends there, so that no peer of this job looks like
    // an unauthenticated peer who fell silent.
    if (lost_ || shared_.closed) place.dial->stop();
    old_dials_.push_back(std::move(place.dial));
  }
  if (place.connection != nullptr) {
    Connection& former = *old_connections_.emplace_back(std::move(place.connection));
    former.stop(std::make_exception_ptr(Error(Code::kAborted, "this connection is not needed any more")));
    retire(former);
  }
}

void Link::make_way_everywhere() noexcept {
  for (Place& place : places_) make_way(place);
  if (!lost_ && !shared_.closed) return;
  for (const std::unique_ptr<Dial>& old : old_dials_) old->stop();
}

// What it carried goes on over the others.
void Link::retire(Connection& connection) noexcept {
  connection.retire();
  if (lost_ || shared_.closed) return;
  const Place* const other = any_connected();
  if (other != nullptr && !outbound_.has_lead()) other->connection->lead();
  each_connection([](Connection& each) { each.wake_writer(); });
}

void Link::accept(std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface) {
  adopt(places_[theirs.stream], std::move(stream), theirs, std::move(preface));
}

void Link::reached(Dial& dial, std::unique_ptr<io::Stream> stream, const Terms& theirs) {
  adopt(const_cast<Place&>(*place_of(dial)), std::move(stream), theirs, {});
}

void Link::adopt(Place& place, std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface) {
  make_way(place);
  place.connections = std::max(place.connections, theirs.connections) + 1;
  agreed_ = std::min<std::size_t>(places_.size(), theirs.streams);
  outbound_.share_among(agreed_);
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
  place.connection = std::make_unique<Connection>(shared_, static_cast<ConnectionOwner&>(*this), std::move(stream),
                                                  std::move(preface), inbound_, outbound_);
  if (!outbound_.has_lead()) place.connection->lead();
  place.connection->start();
  if (leaving_) say_farewell();
  open_all();
}

// The peer is lost if nothing else connects to it. Otherwise this place is dialed again when another connection breaks.
void Link::out_of_reach(Dial& dial, std::exception_ptr why) noexcept {
  if (!wants(dial)) return;
  if (any_connected() == nullptr || as_error(why).code() == Code::kMismatch) lose(std::move(why));
}

void Link::dial_ended(Dial& dial) noexcept {
  if (const Place* const place = place_of(dial)) {
    const std::unique_ptr<Dial> ended = std::move(const_cast<Place*>(place)->dial);
    return;
  }
  old_dials_.remove_if([&](const std::unique_ptr<Dial>& old) { return old.get() == &dial; });
}

void Link::connection_ended(Connection& connection, std::exception_ptr error) noexcept {
  const auto place = std::find_if(places_.begin(), places_.end(),
                                  [&](const Place& each) { return each.connection.get() == &connection; });
  if (place == places_.end()) {
    old_connections_.remove_if([&](const std::unique_ptr<Connection>& old) { return old.get() == &connection; });
    return;
  }
  const std::unique_ptr<Connection> ended = std::move(place->connection);
  retire(*ended);
  if (lost_ || shared_.closed) return;
  const Error cause = error ? as_error(error) : Error(Code::kPeerFailed, "end of stream");
  const bool junk = cause.code() == Code::kProtocol;
  if (junk && !peer_left_ && too_much_junk(cause)) return;
  if (!junk && cause.code() != Code::kPeerFailed && cause.code() != Code::kSystem) {
    lose(std::make_exception_ptr(
        Error(cause.code(), fmt::format("{}: {}", shared_.name(rank_), cause.message()), rank_)));
  } else if (peer_left_ || farewell_) {
    if (any_connected() != nullptr) return;  // what they bring may still count
    peer_left_ = true;
    if (!outbound_.empty()) lose(has_gone());
    settled();
  } else {
    connect_missing();
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
  } else if (any_connected() == nullptr) {
    connect(0);
  } else {
    say_farewell();
  }
}

bool Link::has_left() const noexcept {
  const bool untouched = outbound_.empty() && std::all_of(places_.begin(), places_.end(), [](const Place& each) {
                           return each.connections == 0 && each.dial == nullptr;
                         });
  return untouched || lost_ || (peer_left_ && any_connected() == nullptr);
}

void Link::say_farewell() noexcept {
  each_connection([all = outbound_.empty()](Connection& each) { all ? each.farewell() : each.ask(); });
}

void Link::acknowledged() noexcept {
  if (leaving_ && outbound_.empty()) say_farewell();
  if (places_.size() > 1 && outbound_.shares()) each_connection([](Connection& each) { each.wake_writer(); });
}

void Link::farewell_came() noexcept {
  peer_left_ = true;
  for (Place& place : places_) {
    if (place.connection == nullptr) make_way(place);
  }
}
void Link::farewell_written() noexcept { farewell_ = true; }

void Link::settled() noexcept {
  shared_.links_changed.set();
  shared_.links_changed.reset();
}

}  // namespace aiacc::tcp
