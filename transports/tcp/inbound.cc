#include "transports/tcp/inbound.h"

#include <fmt/format.h>

#include <cstring>

namespace aiacc::tcp {
namespace {

constexpr std::uint64_t kMaxHeldMessage = 64 << 20;  // in one piece; nobody holds more than a chunk

bool same_place(const MessageHeader& one, const MessageHeader& other) noexcept {
  return one.group == other.group && one.sequence == other.sequence && one.tag() == other.tag() &&
         one.offset == other.offset && one.kind == other.kind;
}

}  // namespace

void Inbound::begin(const MessageHeader& header) {
  if (begun_) {
    if (std::memcmp(&header, &header_, sizeof header) == 0) return;
    throw Error(Code::kProtocol, fmt::format("{} sent another message in place of one that a broken connection cut",
                                             shared_.name(rank_)));
  }
  const MessageReceiver::Placement placement = shared_.receiver->on_header(rank_, header);
  if (placement.action == Action::kHold && header.length > kMaxHeldMessage) {
    throw Error(Code::kProtocol, fmt::format("{} sent {} bytes where at most {} can wait for a place",
                                             shared_.name(rank_), header.length, kMaxHeldMessage));
  }
  begun_ = true;
  revoked_ = false;
  header_ = header;
  action_ = placement.action;
  place_ = {};
  if (action_ == Action::kInto) {
    AIACC_INVARIANT(placement.into.bytes == header.length, "a place has the length of what it is for");
    place_ = {placement.into.data, placement.into.bytes};
  } else if (action_ == Action::kHold) {
    arriving_.emplace_back(Held{header, std::vector<std::byte>(header.length)});
    place_ = arriving_.back().bytes;
    held_bytes_ += header.length;
    releases_at_begin_ = releases_;
  }
}

void Inbound::finish() noexcept {
  ++count_;
  begun_ = false;
  place_ = {};
  switch (action_) {
    case Action::kInto:
      if (!revoked_) shared_.receiver->on_placed(rank_, header_);
      break;
    case Action::kHold:
      held_.splice(held_.end(), arriving_);
      // Released while it was arriving: nothing else would offer it again.
      if (releases_ != releases_at_begin_)
        shared_.notify_later({Notification::What::kRelease, rank_, nullptr, nullptr, {}});
      break;
    case Action::kDrop: break;
  }
}

bool Inbound::revoke(const MessageHeader& header) noexcept {
  if (!begun_ || action_ != Action::kInto || revoked_ || !same_place(header_, header)) return false;
  revoked_ = true;
  place_ = {};
  return true;
}

void Inbound::ask_again() noexcept {
  std::list<Held> asked;
  asked.swap(held_);
  while (!asked.empty() && !shared_.closed) {
    std::list<Held> one;
    one.splice(one.end(), asked, asked.begin());
    const Held& held = one.front();
    const MessageReceiver::Placement placement = shared_.receiver->on_header(rank_, held.header);
    if (placement.action == Action::kHold) {
      held_.splice(held_.end(), one);
      continue;
    }
    held_bytes_ -= held.bytes.size();
    if (placement.action == Action::kDrop) continue;
    if (!held.bytes.empty()) std::memcpy(placement.into.data, held.bytes.data(), held.bytes.size());
    shared_.receiver->on_placed(rank_, held.header);
  }
}

void Inbound::forget() noexcept {
  begun_ = false;
  place_ = {};
  arriving_.clear();
  held_.clear();
  held_bytes_ = 0;
}

}  // namespace aiacc::tcp
