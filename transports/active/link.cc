// The connection of a Link, what it sends, the loss of its peer and the farewell. What arrives: link_receives.cc.
#include "transports/active/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace aiacc::active {
namespace {

ClassTurns::Limits limits_of(const ActivePort::Marks& marks) noexcept {
  ClassTurns::Limits limits;
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    const io::TrafficMarks& its = marks[traffic];
    if (its.share) limits.shares[traffic] = static_cast<std::uint32_t>(*its.share);
    limits.takes_turns = limits.takes_turns || its.share.has_value();
    limits.bytes_per_second[traffic] = its.rate.value_or(0) / 8;
  }
  return limits;
}

ClassWindows::Delays delays_of(const ActivePort::Marks& marks) noexcept {
  ClassWindows::Delays delays;
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) delays[traffic] = marks[traffic].delay;
  return delays;
}

}  // namespace

Link::Link(Shared& shared, int rank, std::uint32_t epoch)
    : shared_(shared),
      rank_(rank),
      epoch_(epoch),
      turns_(limits_of(shared.settings.marks)),
      windows_(delays_of(shared.settings.marks), shared.eager_bytes > 0),
      losses_(shared.loop, *this, shared.settings.gap_limit) {
  patience_.link = this;
  pacing_.link = this;
  const ActivePort::WorkerOfClass& mine = shared_.peer(shared_.settings.rank).worker_of;
  const ActivePort::WorkerOfClass& theirs = shared_.peer(rank_).worker_of;
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    ways_[traffic].link = this;
    while (mine[way_of_[traffic]] != mine[traffic] || theirs[way_of_[traffic]] != theirs[traffic]) ++way_of_[traffic];
  }
}

std::exception_ptr Link::has_gone() const {
  return std::make_exception_ptr(
      Error(Code::kPeerFailed, fmt::format("{} has left the job", shared_.name(rank_)), rank_));
}

// --- sending ----------------------------------------------------------------------------------------------------------------

Outgoing& Link::add(std::list<Outgoing>& to) {
  Outgoing& one = to.emplace_back();
  one.link = this;
  one.in = &to;
  one.self = std::prev(to.end());
  one.message.frame.from = static_cast<std::uint32_t>(shared_.settings.rank);
  one.message.frame.epoch = epoch_;
  one.message.frame.token = shared_.token;
  return one;
}

void Link::post(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion, bool now) {
  if (losing_ || peer_left_) {
    const std::exception_ptr why = losing_ ? losing_ : has_gone();
    shared_.notify_later({Notification::What::kTold, rank_, &completion, why, {}});
    if (!losing_) shared_.notify_later({Notification::What::kLost, rank_, nullptr, why, {}});
    return;
  }
  const bool latency_in_use = shared_.latency_in_use();
  const bool takes_turns = turns_.posts(header.traffic, latency_in_use);
  const bool waits_its_turn = takes_turns || windows_.limits(header.traffic, latency_in_use) || waits();
  Outgoing& one = add(waits_its_turn ? class_of(header.traffic).waiting : outgoing_);
  one.promise(completion);
  one.message.frame.traffic = header.traffic;
  one.message.header = header;
  one.bytes = header.length;
  one.lent = header.length > ActivePort::kCopyBytes;
  if (one.lent) {
    for (const Buffer& piece : pieces) {
      if (piece.bytes > 0) one.extents.push_back({piece.data, piece.bytes});
    }
  } else if (header.length > 0) {
    one.copy.reserve(header.length);
    for (const Buffer& piece : pieces) {
      const auto* const data = static_cast<const std::byte*>(piece.data);
      one.copy.insert(one.copy.end(), data, data + piece.bytes);
    }
    one.extents.push_back({one.copy.data(), one.copy.size()});
  }
  if (waits_its_turn) return begin_waiting();
  if (!begin(one)) return;
  if (!now || leaving_) return ended(one, nullptr);
  SendCompletion* const told = one.take_completion();
  turns_.ended(index_of(header.traffic), one.bytes);
  outgoing_.erase(one.self);
  told->sent(nullptr);
}

// Of outgoing_. Whether it is gone already, as transmit() says.
bool Link::begin(Outgoing& one) noexcept {
  const TrafficClass traffic = one.message.frame.traffic;
  one.message.frame.number = class_of(traffic).sent++;
  turns_.took(index_of(traffic), one.bytes);
  const bool limited = windows_.may_limit(traffic) && windows_.limits(traffic, shared_.latency_in_use());
  if (limited) windows_.began(traffic, one.message.frame.number, one.bytes, shared_.loop.now());
  const bool is_part = limited || one.bytes < one.message.header.length;
  if (is_part) one.message.frame.kind = FrameKind::kPart;
  losses_.sent();
  return transmit(one, is_part ? sizeof one.message : kMessageBytes, &one.message);
}

// So many of a waiting message are sent at once. What goes in parts does so to its end.
std::uint64_t Link::next_bytes(const Outgoing& one) noexcept {
  const TrafficClass traffic = one.message.header.traffic;
  const bool is_begun = one.message.offset > 0;
  const bool is_long = one.lent && one.bytes > ClassWindows::kWholeBytes && one.bytes <= kMostDivided;
  if (!is_begun && !is_long) return one.bytes;
  const bool latency_in_use = shared_.latency_in_use();
  if (!is_begun && !windows_.divides(traffic, latency_in_use)) return one.bytes;
  const bool limited = windows_.limits(traffic, latency_in_use);
  const std::uint64_t part = std::max(windows_.part_bytes(traffic), limited ? 0 : shared_.eager_bytes);
  return std::min(one.bytes, part);
}

// Its first bytes, which are copied: the receiver gets parts without a rendezvous.
Outgoing& Link::take_part(Outgoing& of, std::uint64_t bytes) {
  Outgoing& part = add(outgoing_);
  part.message = of.message;
  part.bytes = bytes;
  part.copy.reserve(bytes);
  auto from = of.extents.begin();
  for (std::uint64_t left = bytes; left > 0;) {
    const std::size_t its = std::min<std::uint64_t>(left, from->bytes);
    auto* const data = static_cast<std::byte*>(from->data);
    part.copy.insert(part.copy.end(), data, data + its);
    *from = {data + its, from->bytes - its};
    if (from->bytes == 0) ++from;
    left -= its;
  }
  of.extents.erase(of.extents.begin(), from);
  part.extents.push_back({part.copy.data(), part.copy.size()});
  of.bytes -= bytes;
  of.message.offset += bytes;
  return part;
}

unsigned Link::waiting_classes() const noexcept {
  unsigned waiting = 0;
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    if (!classes_[traffic].waiting.empty()) waiting |= 1U << traffic;
  }
  return waiting;
}

// Those whose turn it is.
void Link::begin_waiting() noexcept {
  while (const unsigned waiting = losing_ || broken_ ? 0 : waiting_classes()) {
    ClassTurns::Bytes bytes{};
    for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
      const std::list<Outgoing>& its = classes_[traffic].waiting;
      if (!its.empty()) bytes[traffic] = next_bytes(its.front());
    }
    const Instant now = shared_.loop.now();
    const unsigned by_rate_now = turns_.permitted(waiting, now);
    windows_.only(by_rate_now);
    const unsigned held_back = windows_.held_back(by_rate_now, bytes, shared_.latency_in_use(), now);
    const std::optional<std::size_t> next = turns_.next(waiting, bytes, now, held_back);
    if (!next) {
      const Instant by_rate = turns_.next_by_rate(waiting, now);
      if (by_rate != kNever) shared_.loop.arm(pacing_, by_rate);  // also sooner than before
      return;
    }
    turns_.began(*next, bytes[*next], waiting, now);
    std::list<Outgoing>& its = classes_[*next].waiting;
    Outgoing& first = its.front();
    Outgoing& one = bytes[*next] < first.bytes ? take_part(first, bytes[*next]) : first;
    if (one.in != &outgoing_) outgoing_.splice(outgoing_.end(), its, one.self);
    one.in = &outgoing_;
    if (begin(one)) ended(one, nullptr);
  }
  windows_.only(waiting_classes());
}

void Link::Pacing::expired() noexcept { link->begin_waiting(); }

void Link::fail_waiting(std::exception_ptr error) noexcept {
  for (Class& its : classes_) {
    while (!its.waiting.empty()) ended(its.waiting.front(), error);
  }
}

void Link::say(FrameKind kind, TrafficClass traffic, std::uint64_t number) noexcept {
  if (losing_ || broken_) return;
  Outgoing& one = add(control_);
  Frame& frame = one.message.frame;
  frame.kind = kind;
  frame.traffic = traffic;
  frame.number = number;
  if (kind == FrameKind::kFarewell || kind == FrameKind::kCounts) {
    one.counts.frame = frame;
    for (std::size_t traffic_class = 0; traffic_class < kClasses; ++traffic_class) {
      one.counts.counts[traffic_class] = classes_[traffic_class].sent;
    }
    if (transmit(one, sizeof one.counts, &one.counts)) ended(one, nullptr);
  } else if (transmit(one, sizeof frame, &frame)) {
    ended(one, nullptr);
  }
}

bool Link::connect(TrafficClass traffic) noexcept {
  Way& way = way_of(traffic);
  if (way.endpoint != nullptr) return true;
  char problem[256] = "";
  const ActivePort::Peer& peer = shared_.peer(rank_);
  const std::vector<std::uint8_t>& address = peer.addresses[peer.worker_of[index_of(traffic)]];
  Worker* const worker = shared_.workers[shared_.worker_of(traffic)];
  way.endpoint = shared_.module.connect(worker, address.data(), address.size(), &way, problem, sizeof problem);
  if (way.endpoint == nullptr) broken(fmt::format("it cannot connect: {}", problem).c_str());
  return way.endpoint != nullptr;
}

bool Link::connected() const noexcept {
  return std::any_of(ways_.begin(), ways_.end(), [](const Way& each) { return each.endpoint != nullptr; });
}

// What is fetched by a way on which nothing was sent yet ends with an endpoint that is made for that.
void Link::disconnect() noexcept {
  for (const Fetch& fetch : fetches_) {
    const Way& way = way_of(fetch.header.traffic);
    if (!fetch.failed && way.endpoint == nullptr && !way.closed) connect(fetch.header.traffic);
  }
  for (const Way& each : ways_) {
    if (each.endpoint != nullptr) shared_.module.disconnect(each.endpoint);
  }
}

// Whether it is gone already, of which the caller tells. What cannot be sent is told when the peer has been lost for it.
bool Link::transmit(Outgoing& one, std::size_t header_bytes, const void* header) noexcept {
  const char* problem = nullptr;
  const TrafficClass traffic = travels_with(one.message.frame);
  if (broken_ || !connect(traffic)) {
    ended(one, std::make_exception_ptr(
                   Error(Code::kPeerFailed, fmt::format("{} cannot connect", shared_.library()), rank_)));
    return false;
  }
  const bool rendezvous = one.lent && one.message.offset == 0 && one.bytes > shared_.eager_bytes;
  switch (shared_.module.send(way_of(traffic).endpoint, header, header_bytes, one.extents.data(), one.extents.size(),
                              rendezvous, one, &problem)) {
    case Began::kDone: return true;
    case Began::kPending: break;
    case Began::kFailed: sent(one, problem); break;
  }
  return false;
}

void Link::sent(Outgoing& message, const char* problem) noexcept {
  std::exception_ptr error;
  const FrameKind kind = message.message.frame.kind;
  const bool for_nobody = peer_left_ && (kind == FrameKind::kCame || kind == FrameKind::kCounts);
  if (problem != nullptr && !for_nobody) {
    error = std::make_exception_ptr(
        Error(Code::kPeerFailed, fmt::format("{}: {}: {}", shared_.name(rank_), shared_.library(), problem), rank_));
    broken(problem);
  }
  ended(message, std::move(error));
}

void Link::ended(Outgoing& one, std::exception_ptr error) noexcept {
  const MessageHeader& header = one.message.header;
  if (one.in == &outgoing_) turns_.ended(index_of(header.traffic), one.bytes);
  one.error = std::move(error);
  if (one.withdrawn) {
    one.error = std::make_exception_ptr(Error(Code::kAborted, "the sender withdrew this message"));
  }
  ended_.splice(ended_.end(), *one.in, one.self);
  one.in = &ended_;
  settle_later();
}

void Link::settle_later() noexcept { shared_.notify_later({Notification::What::kSettle, rank_, nullptr, nullptr, {}}); }

// A message that failed waits until the peer is lost, so that it has the same reason.
void Link::settle() noexcept {
  std::list<Outgoing> ended;
  for (auto one = ended_.begin(); one != ended_.end();) {
    const auto next = std::next(one);
    if (!one->error || one->withdrawn || losing_) {
      one->in = &ended;
      ended.splice(ended.end(), ended_, one);
    }
    one = next;
  }
  while (!ended.empty() && !shared_.closed) {
    std::list<Outgoing> one;
    one.splice(one.end(), ended, ended.begin());
    const std::exception_ptr error =
        one.front().error && losing_ && !one.front().withdrawn ? losing_ : one.front().error;
    if (SendCompletion* completion = one.front().take_completion()) completion->sent(error);
  }
  if (shared_.closed) return;
  // The endpoints of who only receives, by which it hears of the peer's end, and ends fetches from it.
  for (std::size_t traffic = 0; traffic < kClasses && !losing_ && !broken_ && !peer_left_; ++traffic) {
    if (ways_[traffic].heard) connect(static_cast<TrafficClass>(traffic));
  }
  tell_lost();
  begin_waiting();
  if (leaving_ && !farewell_said_ && !waits() && outgoing_.empty() && !has_left()) say_farewell();
  shared_.links_changed.set();
  shared_.links_changed.reset();
}

void Link::withdraw(Outgoing& message) noexcept {
  if (!message.lent) {
    SendCompletion* const completion = message.take_completion();
    const auto error = std::make_exception_ptr(Error(Code::kAborted, "the sender withdrew this message"));
    shared_.notify_later({Notification::What::kTold, rank_, completion, error, {}});
  } else if ((message.in == &ended_ && message.error) ||
             message.in == &class_of(message.message.frame.traffic).waiting) {
    message.withdrawn = true;
    ended(message, nullptr);
  } else if (!message.withdrawn && message.in == &outgoing_) {
    message.withdrawn = true;
    message.since = shared_.loop.now();
    say(FrameKind::kWithdrawn, message.message.frame.traffic, message.message.frame.number);
    watch_answer(message.since);
  }
}

// --- loss ---------------------------------------------------------------------------------------------------------------------

void Link::lost_by(Code code, const std::string& what) noexcept {
  const Error error(code, fmt::format("{}: {}", shared_.name(rank_), what), rank_);
  shared_.notify_later({Notification::What::kLost, rank_, nullptr, std::make_exception_ptr(error), {}});
}

// A peer that leaves closes all its endpoints, and what it has said last may come by another one than that which breaks first.
void Link::broken(Way& way, const char* problem) noexcept {
  way.broken = true;
  const Way& control = way_of(TrafficClass::kControl);
  if (farewell_said_ && !farewell_answered_ && &way != &control && !control.broken) return;
  const auto goes_on = [](const Way& each) { return each.endpoint != nullptr && !each.broken; };
  if (their_counts_ && std::any_of(ways_.begin(), ways_.end(), goes_on)) return;
  broken(problem);
}

void Link::broken(const char* problem) noexcept {
  if (losing_ || broken_) return;
  broken_ = shared_.loop.now();
  problem_ = fmt::format("{} has lost the connection: {}", shared_.library(), problem);
  shared_.notify_later({Notification::What::kBroken, rank_, nullptr, nullptr, {}});
}

// All that was lent comes back. Why the peer is gone is for others to say, and they may not know yet.
void Link::path_broken() noexcept {
  if (losing_) return;
  disconnect();
  fail_waiting(std::make_exception_ptr(Error(Code::kPeerFailed, problem_, rank_)));
  if (peer_left_ || farewell_answered_) {
    endpoint_broken_ = true;
    if (!outgoing_.empty() || !ended_.empty()) lose(has_gone());
    return settle_later();
  }
  if (shared_.settings.broken_limit <= Duration::zero()) return patience_.expired();
  shared_.loop.arm(patience_, after(*broken_, shared_.settings.broken_limit));
  if (shared_.receiver != nullptr) shared_.receiver->on_path_broken(rank_);
}

void Link::Patience::expired() noexcept { link->lost_by(Code::kPeerFailed, link->problem_); }

std::optional<BrokenPath> Link::broken_path() const {
  if (!broken_ || losing_ || peer_left_) return std::nullopt;
  const auto [lower, higher] = std::minmax(shared_.settings.rank, rank_);
  return BrokenPath{*broken_, fmt::format("{} and {}", shared_.name(lower), shared_.name(higher)), problem_};
}

void Link::lose(std::exception_ptr why) noexcept {
  if (losing_) return;
  losing_ = std::move(why);
  disarm();
  patience_.disarm();
  losses_.stop();
  pacing_.disarm();
  fail_waiting(losing_);
  for (const Arrived& one : std::exchange(held_, {})) drop(one);
  for (Class& its : classes_) {
    for (const auto& [number, one] : std::exchange(its.early, {})) drop(one);
    its.joined = Arrived();
  }
  disconnect();
  settle_later();
}

// Nothing arrives on an endpoint that is gone. UCX 1.13 leaves receives in it that its peer had not answered.
void Link::closed(Way& way) noexcept {
  way.endpoint = nullptr;
  way.closed = true;
  for (auto one = fetches_.begin(); one != fetches_.end();) {
    Fetch& fetch = *one++;
    if (fetch.failed || &way_of(fetch.header.traffic) != &way) continue;
    fetch.failed = fetch.abandoned = true;
    if (!fetch.revoked) continue;
    shared_.notify_later({Notification::What::kRevoked, rank_, nullptr, nullptr, fetch.header});
    forget(fetch);
  }
  settle_later();
}

bool Link::is_fetching() const noexcept {
  return std::any_of(fetches_.begin(), fetches_.end(), [](const Fetch& one) { return !one.failed; });
}

void Link::tell_lost() noexcept {
  const bool over = !connected() && outgoing_.empty() && control_.empty() && !is_fetching() && ended_.empty();
  if (!losing_ || lost_ || !over) return;
  lost_ = true;
  while (!fetches_.empty()) forget(fetches_.front());
  if (shared_.receiver != nullptr) shared_.receiver->on_peer_lost(rank_, losing_);
}

void Link::close() noexcept {
  disarm();
  patience_.disarm();
  losses_.stop();
  pacing_.disarm();
  for (const Arrived& one : std::exchange(held_, {})) drop(one);
  for (Class& its : classes_) {
    for (const auto& [number, one] : std::exchange(its.early, {})) drop(one);
    its.joined = Arrived();
  }
}

void Link::forget() noexcept {
  for (Way& each : ways_) each.endpoint = nullptr;
  for (Class& its : classes_) its.waiting.clear();
  outgoing_.clear();
  control_.clear();
  ended_.clear();
  fetches_.clear();
  abandoned_.clear();
}

void Link::watch_answer(Instant since) noexcept {
  if (!armed()) shared_.loop.arm(*this, after(since, shared_.settings.answer_limit));
}

void Link::expired() noexcept {
  Instant oldest = kNever;
  for (const Outgoing& one : outgoing_) {
    if (one.withdrawn) oldest = std::min(oldest, one.since);
  }
  for (const Fetch& one : fetches_) {
    if (one.revoked && !one.failed) oldest = std::min(oldest, one.since);
  }
  if (oldest == kNever) return;
  if (after(oldest, shared_.settings.answer_limit) > shared_.loop.now()) return watch_answer(oldest);
  lost_by(Code::kPeerFailed, fmt::format("it did not let go of a message within {:.0f} s after that was stopped",
                                         seconds(shared_.settings.answer_limit)));
}

// --- farewell -----------------------------------------------------------------------------------------------------------------

void Link::leave() noexcept {
  leaving_ = true;
  settle_later();
}

bool Link::has_left() const noexcept {
  const bool heard = std::any_of(ways_.begin(), ways_.end(), [](const Way& each) { return each.heard; });
  const bool untouched = !connected() && !heard && outgoing_.empty() && !waits();
  if (untouched || lost_ || endpoint_broken_) return true;
  if (!control_.empty() || !outgoing_.empty() || waits()) return false;
  return farewell_answered_ || (peer_left_ && !farewell_said_);
}

// The peer answers when all messages before it have come.
void Link::say_farewell() noexcept {
  farewell_said_ = true;
  losses_.stop_counting();
  say(FrameKind::kFarewell);
}

void Link::farewell_came(const Counts& counts) noexcept {
  their_counts_ = counts;
  counts_came(counts);
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    if (classes_[traffic].offered < counts[traffic]) return;
  }
  if (is_fetching()) return;
  their_counts_.reset();
  peer_left_ = true;
  losses_.stop_counting();
  say(FrameKind::kReceived);
  settle_later();
}

}  // namespace aiacc::active
