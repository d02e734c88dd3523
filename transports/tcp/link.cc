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
  const bool divided = outbound_.divides();
  outbound_.add(header, pieces, completion);
  if (outbound_.divides() != divided) each_connection([this](Connection& each) { keep_unsent_low(each); });
  const Carrier* const lead = outbound_.lead(header.traffic);
  if (lead == nullptr) {
    connect(homes_[static_cast<std::size_t>(header.traffic)]);
  } else if (now) {
    lead->connection->write_now();
  } else {
    lead->connection->wake_writer();
  }
  if (header.length > Outbound::kWholeBytes && !long_messages_) chunk_came();
}

void Link::begin() {
  if (!outbound_.empty()) connect_missing();
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

void Link::connect(std::size_t stream) {
  Place& place = places_[stream];
  if (place.connection != nullptr || place.dial != nullptr) return;
  if (lost_ || shared_.closed || shared_.receiver == nullptr) return;
  const bool broken = any_connected() == nullptr;
  if (leaving_ && !broken) {  // what is there is enough
    fall_back(true);
    wake_all();
    return;
  }
  place.dial = std::make_unique<Dial>(shared_, static_cast<DialOwner&>(*this), rank_);
  place.dial->start();
  if (broken) shared_.notify_later({Notification::What::kBroken, rank_, nullptr, nullptr, {}});
}

void Link::connect_missing() {
  for (std::size_t stream = 0; stream < in_use_; ++stream) connect(stream);
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    if (!has_own(traffic)) continue;
    const bool used = places_[homes_[traffic]].connections > 0 || outbound_.has(static_cast<TrafficClass>(traffic));
    if (used) connect(homes_[traffic]);
  }
}

void Link::open_all() {
  const auto wanted = static_cast<std::size_t>(count_.wanted());
  if (long_messages_ && in_use_ != wanted && any_connected() != nullptr) use(wanted);
}

// Long messages begun from now on are shared by so many connections. Others stay open for what the peer sends, and for a time
// in which they are of use again.
void Link::use(std::size_t connections) noexcept {
  in_use_ = connections;
  outbound_.share_among(in_use_);
  connect_missing();
  for (Place& place : places_) {
    if (place.connection == nullptr) continue;
    place.connection->carrier().classes = classes_at(place);
    keep_unsent_low(*place.connection);
    place.connection->mark(marks_of(stream_of(place)));
  }
  each_connection([this](Connection& each) { take_leads(each); });
  wake_all();
}

// While connections of a lossless class are in use, now and then.
void Link::look_for_losses() noexcept {
  const TcpPort::Marks& marks = shared_.settings.marks;
  if (std::none_of(marks.begin(), marks.end(), [](const io::TrafficMarks& each) { return each.is_lossless(); })) return;
  const Instant now = shared_.loop.now();
  if (shared_.loss_noted() || now < after(losses_seen_, kLossesAgain)) return;
  losses_seen_ = now;
  for (const Place& place : places_) {
    if (place.connection != nullptr) look_for_losses(place, *place.connection);
  }
}

void Link::look_for_losses(const Place& place, const Connection& connection) noexcept {
  if (shared_.closed) return;
  const std::size_t stream = stream_of(place);
  const std::size_t traffic = stream >= kOfClass ? stream - kOfClass : static_cast<std::size_t>(TrafficClass::kBulk);
  if (shared_.settings.marks[traffic].is_lossless()) shared_.note_loss(traffic, rank_, connection.sent_again());
}

void Link::keep_unsent_low(Connection& connection) noexcept {
  connection.keep_unsent_below(outbound_.divides() ? kUnsentBytes : 0);
}

// At each acknowledgement: a period of the search for the best number of connections may be over. Its speed is that of the bytes
// that the other host has acknowledged: the peer's own acknowledgements wait for what the peer sends.
void Link::adapt() noexcept {
  if (!count_.adapts()) return;
  const Duration busy = outbound_.meter().busy(shared_.loop.now()) - period_busy_;
  if (busy < kPeriod) return;
  period_busy_ += busy;
  std::uint64_t bytes = 0;
  each_connection([&](Connection& each) { bytes += each.newly_acknowledged(); });
  if (bytes == 0) return;
  count_.period(static_cast<double>(bytes) / seconds(busy));
  open_all();
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
  const std::size_t place = place_of_stream(stream);
  terms.connections = place < places_.size() ? places_[place].connections : 0;
  terms.stream = static_cast<std::uint16_t>(stream);
  terms.streams = static_cast<std::uint16_t>(streams());
  terms.protection = shared_.protection;
  return terms;
}

Terms Link::my_terms(const Dial& dial) const noexcept {
  const Place* const place = place_of(dial);
  return my_terms(place == nullptr ? 0 : stream_of(*place));
}

void Link::mark(std::size_t stream, const io::Stream& socket) const noexcept { shared_.mark(socket, marks_of(stream)); }

// Those that share messages share the rate, too.
io::TrafficMarks Link::marks_of(std::size_t stream) const noexcept {
  if (stream >= kOfClass) return shared_.settings.marks[stream - kOfClass];
  io::TrafficMarks marks = shared_.settings.marks[static_cast<std::size_t>(TrafficClass::kBulk)];
  if (marks.rate) marks.rate = *marks.rate / in_use_;
  return marks;
}

void Link::mark(const Dial& dial, const io::Stream& stream) noexcept {
  if (const Place* const place = place_of(dial)) mark(stream_of(*place), stream);
}

wire::Verdict Link::judge(const Terms& theirs) const noexcept {
  if (lost_ || peer_left_ || shared_.closed) return wire::Verdict::kGone;
  const std::size_t index = place_of_stream(theirs.stream);
  if (index >= places_.size()) return wire::Verdict::kBusy;
  const Place& place = places_[index];
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
    look_for_losses(place, *place.connection);
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
  fall_back(leaving_);
  wake_all();
}

void Link::wake_all() noexcept {
  each_connection([](Connection& each) { each.wake_writer(); });
}

// --- traffic classes ------------------------------------------------------------------------------------------------------

// A class has a connection of its own if its marks are not those of bulk; classes with the same marks share it.
void Link::set_homes() noexcept {
  const TcpPort::Marks& marks = shared_.settings.marks;
  const io::TrafficMarks& of_bulk = marks[static_cast<std::size_t>(TrafficClass::kBulk)];
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    if (marks[traffic].same_flow(of_bulk)) continue;
    for (std::size_t same = traffic; same < kClasses; ++same) {
      if (marks[same].same_flow(marks[traffic])) homes_[traffic] = streams() + same;
    }
  }
}

unsigned Link::classes_at(const Place& place) const noexcept {
  const auto index = static_cast<std::size_t>(&place - places_.data());
  const std::size_t shared = count_.adapts() ? in_use_ : streams();
  unsigned classes = 0;
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    if (has_own(traffic) ? homes_[traffic] == index : index < shared) classes |= 1U << traffic;
  }
  return classes;
}

// A new connection leads the classes that it is for, unless another one for them does. One that only stood in for it goes on
// until what it has begun is acknowledged.
void Link::take_leads(Connection& connection) noexcept {
  Carrier& carrier = connection.carrier();
  for (std::size_t i = 0; i < kClasses; ++i) {
    if ((carrier.classes >> i & 1U) == 0) continue;
    const auto traffic = static_cast<TrafficClass>(i);
    const Carrier* const former = outbound_.lead(traffic);
    if (former != nullptr && (former->classes >> i & 1U) != 0) continue;
    if (outbound_.lead(traffic, carrier)) former->connection->ask();
  }
}

// A class whose connection is missing goes over those of bulk meanwhile, but bulk over no other's, except when nothing else is to
// be had (`anywhere`).
void Link::fall_back(bool anywhere) noexcept {
  for (std::size_t i = 0; i < kClasses; ++i) {
    const auto traffic = static_cast<TrafficClass>(i);
    if (outbound_.lead(traffic) != nullptr || (has_own(i) && !outbound_.has(traffic))) continue;
    const std::size_t end = anywhere ? places_.size() : streams();
    for (std::size_t index = 0; index < end; ++index) {
      if (places_[index].connection == nullptr) continue;
      outbound_.lead(traffic, places_[index].connection->carrier());
      break;
    }
  }
}

// Headers go where they arrive soonest.
void Link::choose_leads() noexcept {
  if (!outbound_.carries_chunks()) return;
  const Instant now = shared_.loop.now();
  if (now < leads_stay_) return;
  for (std::size_t i = 0; i < kClasses; ++i) {
    const auto traffic = static_cast<TrafficClass>(i);
    Carrier* const better = outbound_.better_lead(traffic);
    if (better == nullptr) continue;
    const Carrier* const former = outbound_.lead(traffic);
    if (outbound_.lead(traffic, *better)) former->connection->ask();
    better->connection->wake_writer();
    leads_stay_ = after(now, kLeadAtLeast);
  }
}

void Link::accept(std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface) {
  adopt(places_[place_of_stream(theirs.stream)], std::move(stream), theirs, std::move(preface));
}

void Link::reached(Dial& dial, std::unique_ptr<io::Stream> stream, const Terms& theirs) {
  adopt(const_cast<Place&>(*place_of(dial)), std::move(stream), theirs, {});
}

void Link::adopt(Place& place, std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface) {
  make_way(place);
  place.connections = std::max(place.connections, theirs.connections) + 1;
  count_.limit(theirs.streams);
  if (!count_.adapts()) outbound_.share_among(static_cast<std::size_t>(count_.wanted()));
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
                                                  std::move(preface), inbound_, outbound_, place.carried);
  const io::TrafficMarks marks = marks_of(stream_of(place));
  if (marks.delay) place.connection->limit_delay(*marks.delay);
  place.connection->carrier().classes = classes_at(place);
  outbound_.join(place.connection->carrier());
  take_leads(*place.connection);
  fall_back(leaving_);
  if (outbound_.divides()) keep_unsent_low(*place.connection);
  place.connection->start();
  if (leaving_) say_farewell();
  open_all();
}

// The peer is lost if nothing else connects to it. Otherwise this place is dialed again when another connection breaks.
void Link::out_of_reach(Dial& dial, std::exception_ptr why) noexcept {
  if (!wants(dial)) return;
  if (any_connected() == nullptr || as_error(why).code() == Code::kMismatch) {
    lose(std::move(why));
    return;
  }
  fall_back(true);
  wake_all();
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
  look_for_losses(*place, *ended);
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
  choose_leads();
  adapt();
  look_for_losses();
  const bool held_back = outbound_.held_back();
  if (outbound_.move_leads() || held_back || outbound_.shares()) wake_all();
}

void Link::look_later() noexcept {
  if ((streams() > 1 || outbound_.holds_back()) && !look_.armed())
    shared_.loop.arm(look_, after(shared_.loop.now(), kLookAgain));
}

void Link::farewell_came() noexcept {
  peer_left_ = true;
  for (Place& place : places_) {
    if (place.connection == nullptr) make_way(place);
  }
  fall_back(true);
  wake_all();
}
void Link::farewell_written() noexcept { farewell_ = true; }

void Link::settled() noexcept {
  shared_.links_changed.set();
  shared_.links_changed.reset();
}

}  // namespace aiacc::tcp
