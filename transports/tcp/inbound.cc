#include "transports/tcp/inbound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace aiacc::tcp {
namespace {

constexpr std::uint64_t kMaxHeldMessage = 64 << 20;  // in one piece; nobody holds more than a chunk
constexpr std::size_t kMaxSpareInbound = 16;

bool same_place(const MessageHeader& one, const MessageHeader& other) noexcept {
  return one.group == other.group && one.sequence == other.sequence && one.tag() == other.tag() &&
         one.offset == other.offset && one.kind == other.kind;
}

}  // namespace

void Inbound::hold(const MessageHeader& header, const std::byte* bytes) {
  held_.push_back(Held{nullptr, header, std::vector<std::byte>(bytes, bytes + header.length)});
  held_bytes_ += header.length;
}

Incoming* Inbound::begin(const Frame& frame, const MessageHeader& header) {
  if (frame.length > header.length || frame.traffic != header.traffic) {
    throw Error(Code::kProtocol, fmt::format("{} sent a message and a frame that do not agree", shared_.name(rank_)));
  }
  if (!is_new(frame)) {
    for (const Incoming& one : classes_[index(frame)].begun) {
      if (one.number != frame.number || std::memcmp(&one.header, &header, sizeof header) == 0) continue;
      throw Error(Code::kProtocol, fmt::format("{} sent another message in place of one that a broken connection cut",
                                               shared_.name(rank_)));
    }
    return find(frame);
  }
  Class& its = classes_[index(frame)];
  if (frame.number != its.headers + 1) {
    throw Error(Code::kProtocol, fmt::format("{} sent message {} after message {} of a traffic class",
                                             shared_.name(rank_), frame.number, its.headers));
  }
  const MessageReceiver::Placement placement = shared_.receiver->on_header(rank_, header);
  if (placement.action == Action::kHold && header.length > kMaxHeldMessage) {
    throw Error(Code::kProtocol, fmt::format("{} sent {} bytes where at most {} can wait for a place",
                                             shared_.name(rank_), header.length, kMaxHeldMessage));
  }
  if (spare_.empty()) spare_.emplace_back();
  its.begun.splice(its.begun.end(), spare_, spare_.begin());
  Incoming& message = its.begun.back();
  message.number = ++its.headers;
  message.action = placement.action;
  message.revoked = false;
  message.header = header;
  message.place = {};
  message.missing = header.length;
  message.ranges.clear();
  if (message.action == Action::kInto) {
    AIACC_INVARIANT(placement.into.bytes == header.length, "a place has the length of what it is for");
    message.place = {placement.into.data, placement.into.bytes};
  } else if (message.action == Action::kHold) {
    held_.push_back(Held{&message, header, std::vector<std::byte>(header.length)});
    message.place = held_.back().bytes;
    held_bytes_ += header.length;
  }
  return &message;
}

Incoming* Inbound::find(const Frame& frame) {
  if (is_new(frame)) {
    throw Error(Code::kProtocol,
                fmt::format("{} sent a part of message {} before its header", shared_.name(rank_), frame.number));
  }
  for (Incoming& one : classes_[index(frame)].begun) {
    if (one.number == frame.number) return if_missing(frame, one);
  }
  return nullptr;
}

bool Inbound::lacks_bytes() const noexcept {
  return std::any_of(classes_.begin(), classes_.end(), [](const Class& its) { return !its.begun.empty(); });
}

// The peer divides a message once, so what comes again has the same ends.
Incoming* Inbound::if_missing(const Frame& frame, Incoming& message) const {
  const std::uint64_t all = message.header.length;
  if (frame.offset > all || frame.length > all - frame.offset) {
    throw Error(Code::kProtocol, fmt::format("{} sent bytes {} to {} of a message of {}", shared_.name(rank_),
                                             frame.offset, frame.offset + frame.length, all));
  }
  const std::uint64_t end = frame.offset + frame.length;
  for (const auto& [from, to] : message.ranges) {
    if (end <= from || frame.offset >= to) continue;
    if (frame.offset >= from && end <= to) return nullptr;
    throw Error(Code::kProtocol, fmt::format("{} sent bytes {} to {} of a message again, with others",
                                             shared_.name(rank_), frame.offset, end));
  }
  return &message;
}

void Inbound::bytes_came(const Frame& frame, Incoming& message) noexcept {
  Class& its = classes_[index(frame)];
  if (frame.length == message.header.length) {
    message.missing = 0;
  } else if (frame.length > 0) {
    const std::uint64_t end = frame.offset + frame.length;
    auto after = std::find_if(message.ranges.begin(), message.ranges.end(),
                              [&](const auto& range) { return range.second >= frame.offset; });
    if (after != message.ranges.end() && after->first <= frame.offset && end <= after->second) return;
    message.missing -= frame.length;
    if (after == message.ranges.end() || after->first > end) {
      message.ranges.insert(after, {frame.offset, end});
    } else {
      after->first = std::min(after->first, frame.offset);
      after->second = std::max(after->second, end);
      const auto next = std::next(after);
      if (next != message.ranges.end() && next->first <= after->second) {
        after->second = next->second;
        message.ranges.erase(next);
      }
    }
  }
  if (message.missing == 0) finish(its, message);
}

void Inbound::finish(Class& its, Incoming& message) noexcept {
  readers_.arrived(message);
  auto found = its.begun.begin();
  while (&*found != &message) ++found;
  spare_.splice(spare_.begin(), its.begun, found);
  its.whole = its.begun.empty() ? its.headers : its.begun.front().number - 1;
  if (message.action == Action::kHold) {
    for (Held& held : held_) {
      if (held.message == &message) held.message = nullptr;
    }
  }
  if (message.action == Action::kInto && !message.revoked) shared_.receiver->on_placed(rank_, message.header);
  if (spare_.size() > kMaxSpareInbound) spare_.pop_back();
}

bool Inbound::revoke(const MessageHeader& header) noexcept {
  for (Incoming& message : classes_[static_cast<std::size_t>(header.traffic)].begun) {
    if (message.action != Action::kInto || message.revoked || !same_place(message.header, header)) continue;
    message.revoked = true;
    message.place = {};
    readers_.place_changed(message);
    return true;
  }
  return false;
}

void Inbound::ask_again() noexcept {
  std::list<Held> asked;
  asked.swap(held_);
  while (!asked.empty() && !shared_.closed) {
    std::list<Held> one;
    one.splice(one.end(), asked, asked.begin());
    Held& held = one.front();
    const MessageReceiver::Placement placement = shared_.receiver->on_header(rank_, held.header);
    if (placement.action == Action::kHold) {
      held_.splice(held_.end(), one);
      continue;
    }
    held_bytes_ -= held.bytes.size();
    if (held.message != nullptr) {
      place_later(held, placement);
      continue;
    }
    if (placement.action == Action::kDrop) continue;
    if (!held.bytes.empty()) std::memcpy(placement.into.data, held.bytes.data(), held.bytes.size());
    shared_.receiver->on_placed(rank_, held.header);
  }
}

// The message is still arriving: what has come is copied, and the rest goes to its place.
void Inbound::place_later(Held& held, const MessageReceiver::Placement& placement) noexcept {
  Incoming& message = *held.message;
  message.action = placement.action;
  message.place = {};
  if (placement.action == Action::kInto) message.place = {placement.into.data, placement.into.bytes};
  readers_.place_changed(message);
  if (!message.place.empty()) std::memcpy(message.place.data(), held.bytes.data(), held.bytes.size());
}

void Inbound::forget() noexcept {
  for (Class& its : classes_) {
    its.headers = its.whole;
    its.begun.clear();
  }
  held_.clear();
  held_bytes_ = 0;
}

}  // namespace aiacc::tcp
