// What a Link does with what arrives: it offers messages in their order, keeps those without a place, fetches payloads, and takes
// back places that the receiver wants again.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/active/link.h"

namespace aiacc::active {
namespace {

using Action = MessageReceiver::Placement::Action;

bool same_place(const MessageHeader& one, const MessageHeader& other) noexcept {
  return one.group == other.group && one.sequence == other.sequence && one.tag() == other.tag() &&
         one.offset == other.offset && one.kind == other.kind && one.traffic == other.traffic;
}

}  // namespace

bool Link::arrived(Worker* at, const Frame& frame, std::span<const std::byte> rest, void* payload, std::size_t bytes,
                   bool eager) noexcept {
  if (losing_ || broken_) return false;
  if (static_cast<std::size_t>(frame.traffic) < kClasses) {
    if (!std::exchange(way_of(travels_with(frame)).heard, true)) settle_later();
    switch (frame.kind) {
      case FrameKind::kMessage:
      case FrameKind::kPart: {
        Arrived one;
        one.at = at;
        one.number = frame.number;
        one.payload = payload;
        one.bytes = bytes;
        one.eager = eager;
        one.asks = frame.kind == FrameKind::kPart;
        if (rest.size() != sizeof one.header + (one.asks ? sizeof one.offset : 0)) break;
        std::memcpy(&one.header, rest.data(), sizeof one.header);
        if (one.asks) std::memcpy(&one.offset, &rest[sizeof one.header], sizeof one.offset);
        return message_came(frame, one);
      }
      case FrameKind::kCame: return acknowledged(frame), false;
      case FrameKind::kWithdrawn: return withdrawn_came(frame), false;
      case FrameKind::kFarewell:
      case FrameKind::kCounts: {
        Counts counts;
        if (rest.size() != sizeof counts) break;
        std::memcpy(&counts, rest.data(), sizeof counts);
        frame.kind == FrameKind::kFarewell ? farewell_came(counts) : counts_came(counts);
        return false;
      }
      case FrameKind::kReceived:
        farewell_answered_ = farewell_said_;
        settle_later();
        return false;
    }
  }
  lost_by(Code::kProtocol, fmt::format("it sent a frame of kind {} that makes no sense", static_cast<int>(frame.kind)));
  return false;
}

bool Link::message_came(const Frame& frame, Arrived& one) noexcept {
  const MessageHeader& header = one.header;
  const bool fits = one.asks && one.eager ? one.offset <= header.length && one.bytes <= header.length - one.offset &&
                                                (one.bytes > 0 || header.length == 0)
                                          : one.offset == 0 && one.bytes == header.length;
  if (header.version != kMessageVersion || !is_kind(header.kind) || header.traffic != frame.traffic || !fits) {
    lost_by(Code::kProtocol, fmt::format("it sent a message of version {} with {} bytes in place of {}", header.version,
                                         one.bytes, header.length));
    return false;
  }
  Class& its = class_of(frame.traffic);
  if (frame.number != its.offered) {
    if (frame.number > its.offered && !its.early.contains(frame.number)) {
      const bool kept = keep(one);
      its.early.emplace(frame.number, std::move(one));
      losses_.look();
      return kept;
    }
    lost_by(Code::kProtocol, fmt::format("it sent message {} of a traffic class again", frame.number));
    return false;
  }
  const bool kept = in_turn(one, false);
  while (!losing_ && !shared_.closed && !its.early.empty() && its.early.begin()->first == its.offered) {
    in_turn(its.early.extract(its.early.begin()).mapped(), true);
  }
  if (their_counts_ && !shared_.closed) farewell_came(*their_counts_);
  return kept;
}

// Of each class the message that has not come although one behind it has, or its own or a later one's withdrawal, or the peer has said
// that it has sent it; 0: there is none.
Counts Link::gaps() const noexcept {
  Counts missing{};
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    const Class& its = classes_[traffic];
    if (!its.early.empty() || !its.withdrawn.empty() || announced_[traffic] > its.offered)
      missing[traffic] = its.offered + 1;
  }
  return missing;
}

void Link::counts_came(const Counts& counts) noexcept {
  announced_ = counts;
  losses_.look();
}

void Link::say_counts() noexcept { say(FrameKind::kCounts); }

void Link::messages_lost() noexcept { broken("messages were lost with it"); }

// For longer than the module's callback lasts. Whether the module keeps the payload.
bool Link::keep(Arrived& one) {
  if (one.bytes == 0 || !one.eager) return one.bytes > 0;
  if (one.copy == nullptr) {
    one.copy = std::make_shared_for_overwrite<std::byte[]>(one.bytes);
    std::memcpy(one.copy.get(), one.payload, one.bytes);
    one.payload = one.copy.get();
  }
  return false;
}

bool Link::in_turn(const Arrived& one, bool kept) noexcept {
  Class& its = class_of(one.header.traffic);
  ++its.offered;
  const bool withdrawn = its.withdrawn.erase(one.number) > 0;
  const bool is_whole = one.bytes == one.header.length;
  if (is_whole || withdrawn) its.joined = Arrived();  // of a message that was withdrawn between its parts
  if (!withdrawn) {
    if (is_whole) return offer(one, kept);
    part_came(one);
    return false;
  }
  if (kept) drop(one);
  acknowledge(one.header, one.number, one.asks);
  return false;
}

// The message is offered when its last part has come.
void Link::part_came(const Arrived& one) noexcept {
  Arrived& joined = class_of(one.header.traffic).joined;
  if (one.offset == 0 && one.header.length <= kMostDivided) {
    joined = Arrived();
    joined.header = one.header;
    joined.copy = std::make_shared_for_overwrite<std::byte[]>(one.header.length);
    joined.payload = joined.copy.get();
  }
  if (joined.copy == nullptr || one.offset != joined.bytes || one.header.length != joined.header.length) {
    return lost_by(Code::kProtocol, fmt::format("it sent bytes {} to {} of a message without those before them",
                                                one.offset, one.offset + one.bytes));
  }
  std::memcpy(&joined.copy[joined.bytes], one.payload, one.bytes);
  joined.bytes += one.bytes;
  acknowledge(one.header, one.number, true);
  if (joined.bytes < joined.header.length) return;
  Arrived whole = std::exchange(joined, Arrived());
  whole.number = one.number;
  offer(whole, false);
}

// `kept`: the payload is, from before. Returns whether it is afterwards.
bool Link::offer(const Arrived& one, bool kept) noexcept {
  const MessageReceiver::Placement placement = shared_.receiver->on_header(rank_, one.header);
  if (shared_.closed) return false;
  switch (placement.action) {
    case Action::kHold: {
      Arrived held = one;
      const bool kept_now = keep(held);
      held.asks = false;
      held_.push_back(std::move(held));
      acknowledge(one.header, one.number, one.asks);
      held_bytes_ += one.header.length;
      if (held_bytes_ > ActivePort::kHeldBytes) {
        lost_by(Code::kProtocol, fmt::format("it sent {} bytes that have no place yet", held_bytes_));
      }
      return kept_now;
    }
    case Action::kInto:
      if (one.header.length > 0 && !one.eager) {
        fetch_into(one, placement.into);
        return true;
      }
      if (one.header.length > 0) std::memcpy(placement.into.data, one.payload, one.header.length);
      shared_.receiver->on_placed(rank_, one.header);
      break;
    case Action::kDrop: break;
  }
  if (kept) drop(one);
  if (!shared_.closed) acknowledge(one.header, one.number, one.asks);
  return false;
}

// What is sent next need not wait for this message any more.
void Link::acknowledge(const MessageHeader& header, std::uint64_t number, bool asks) noexcept {
  if (asks) say(FrameKind::kCame, header.traffic, number);
}

void Link::acknowledged(const Frame& frame) noexcept {
  windows_.acknowledged(frame.traffic, frame.number, shared_.loop.now());
  if (waits()) begin_waiting();
}

void Link::drop(const Arrived& one) noexcept {
  if (one.header.length > 0 && !one.eager) shared_.module.drop(one.at, one.payload);
}

void Link::fetch_into(const Arrived& one, const Buffer& place) noexcept {
  Fetch& fetch = fetches_.emplace_back();
  fetch.link = this;
  fetch.self = std::prev(fetches_.end());
  fetch.header = one.header;
  fetch.number = one.number;
  fetch.asks = one.asks;
  const char* problem = nullptr;
  const Began began = shared_.module.fetch(one.at, one.payload, place.data, one.header.length, fetch, &problem);
  if (began != Began::kPending) fetched(fetch, began == Began::kDone ? nullptr : problem);
}

// The place of a fetch that failed stays the port's until the peer is lost.
void Link::fetched(Fetch& fetch, const char* problem) noexcept {
  if (fetch.abandoned) {
    fetch.abandoned = false;
    if (fetch.forgotten) abandoned_.erase(fetch.self);
    return;
  }
  if (problem != nullptr && !losing_) {
    broken(problem);
    if (!fetch.revoked) {
      fetch.failed = true;
      return;
    }
  }
  const MessageHeader header = fetch.header;
  const bool revoked = fetch.revoked;
  if (!shared_.closed) acknowledge(header, fetch.number, fetch.asks);
  fetches_.erase(fetch.self);
  if (losing_ || shared_.closed) return settle_later();
  if (revoked) {
    shared_.notify_later({Notification::What::kRevoked, rank_, nullptr, nullptr, header});
  } else {
    shared_.receiver->on_placed(rank_, header);
  }
  if (their_counts_ && !shared_.closed) farewell_came(*their_counts_);
}

void Link::forget(Fetch& fetch) noexcept {
  fetch.forgotten = true;
  if (fetch.abandoned) {
    abandoned_.splice(abandoned_.end(), fetches_, fetch.self);
  } else {
    fetches_.erase(fetch.self);
  }
}

void Link::revoke(const MessageHeader& header) noexcept {
  for (Fetch& fetch : fetches_) {
    if (fetch.revoked || !same_place(fetch.header, header)) continue;
    if (fetch.failed) {
      forget(fetch);
      return shared_.notify_later({Notification::What::kRevoked, rank_, nullptr, nullptr, header});
    }
    fetch.revoked = true;
    fetch.since = shared_.loop.now();
    return watch_answer(fetch.since);
  }
}

void Link::ask_held_again() noexcept {
  std::list<Arrived> asked;
  asked.swap(held_);
  held_bytes_ = 0;
  while (!asked.empty() && !losing_ && !shared_.closed) {
    const Arrived one = asked.front();
    asked.pop_front();
    offer(one, true);
  }
  if (!shared_.closed) std::for_each(asked.begin(), asked.end(), [this](const Arrived& one) { drop(one); });
}

// A message that was offered goes on, unless it is held.
void Link::withdrawn_came(const Frame& frame) noexcept {
  Class& its = class_of(frame.traffic);
  if (frame.number >= its.offered) {
    its.withdrawn.insert(frame.number);
    losses_.look();
    return;
  }
  const auto held = std::find_if(held_.begin(), held_.end(), [&](const Arrived& one) {
    return one.number == frame.number && one.header.traffic == frame.traffic;
  });
  if (held == held_.end()) return;
  held_bytes_ -= held->header.length;
  drop(*held);
  held_.erase(held);
}

}  // namespace aiacc::active
