// What a short message takes when nothing is unusual, of IntraMessages and inline: the calls between these functions would cost a part
// of what the whole message does.
#pragma once

#include <cstdint>
#include <new>

#include "base/data/cpu_compute.h"
#include "base/prefetch.h"
#include "collectives/intra/intra_messages.h"

namespace aiacc {

// What most messages need: there is room behind the last message, and no message with a range of its own is to be looked after.
// Otherwise null.
inline std::byte* IntraMessages::place_behind(Outgoing& to, std::size_t message_bytes) noexcept {
  const std::uint64_t bytes = aligned(message_bytes);
  if (to.run == nullptr || bytes > kLongestInSlab || to.slab->range.bytes - to.slab->filled < bytes) return nullptr;
  Slab& slab = *to.slab;
  const std::uint64_t at = slab.filled;
  slab.filled += bytes;
  ++slab.messages;
  ++to.run->messages;
  return slab.memory + at;
}

// Allocates the next message to this member and writes its header; the payload's place follows that.
inline std::byte* IntraMessages::begin_message(Outgoing& to, const Envelope& envelope) {
  const std::size_t bytes = sizeof(Header) + envelope.bytes;
  std::byte* place = place_behind(to, bytes);
  if (place == nullptr) [[unlikely]]
    place = place_anywhere(to, bytes);
  prefetch_for_write(place + kPrefetched);
  auto* made = new (place) Header;
  made->bytes = envelope.bytes;
  made->fingerprint = fingerprint(envelope.type, envelope.codec, envelope.count);
  made->tag = envelope.tag;
  made->type = static_cast<std::uint32_t>(envelope.type);
  return place;
}

// What it knows of the message stays in registers: on the stack, it would be read there while the message is still being written, which
// takes as long as its cache line does to come from the other end.
inline void IntraMessages::post_message(Outgoing& to, std::byte* message, std::size_t bytes) noexcept {
  const auto offset = static_cast<std::uint64_t>(message - slice_);
  if (to.posted == 0) {
    const FlagRef first = flag(me_, kFirst, to.member);
    domain_.own_line(first.line).word[first.word].store(offset + 1, std::memory_order_release);
  } else if (to.behind != offset) {
    std::launder(reinterpret_cast<Header*>(to.last))->next.store(offset + 1, std::memory_order_release);
  }
  const std::uint64_t taken = aligned(sizeof(Header) + bytes);
  to.last = message;
  to.behind = taken > kLongestInSlab ? kNowhere : offset + taken;
  domain_.publish(to.posted_here.line, to.posted_here.word, ++to.posted);  // pairs with the acquire in follow()
}

inline bool IntraMessages::send_now(int member, const PlainCall& call, const Buffer& send) noexcept {
  Outgoing& to = this->to(member);
  if (!to.turns.free()) return false;
  try {
    std::byte* const place = begin_message(to, {call.type, Codec::kNone, call.count, call.tag, send.bytes});
    CpuCompute::copy_now(place + sizeof(Header), send.data, send.bytes);
    post_message(to, place, send.bytes);
  } catch (...) {
    return false;  // the operation fails in the same way and reports the error
  }
  return true;
}

template <class Wait>
bool IntraMessages::recv_soon(int member, const PlainCall& call, const Buffer& recv, Wait&& wait) noexcept {
  Incoming& from = this->from(member);
  while (!recv_now(member, call, recv)) {
    // A message that is there differs; and a recv of this tag that waits already comes first.
    if (from.broken != nullptr || from.messages.first(call.tag) != nullptr) return false;
    if (from.receives.first(call.tag) != nullptr) return false;
    do {  // once in any case: others' messages may come without end
      if (!wait()) return false;
    } while (from.posted->load(std::memory_order_acquire) == from.seen);
  }
  return true;
}

inline bool IntraMessages::only_waits(int member, const PlainCall& call) noexcept {
  const Incoming& from = this->from(member);
  return from.listener && from.broken == nullptr && from.messages.empty() &&
         from.posted->load(std::memory_order_acquire) == from.seen && may_be_posted(call);
}

inline void IntraMessages::wait_for(Incoming& from, Receiver& receiver) noexcept {
  from.receives.push_back(receiver);
  if (from.waiting++ == 0) from.needed.set();
}

inline void IntraMessages::post(Posted& receive, Posted::Owner& owner) noexcept {
  owner_ = &owner;
  wait_for(from(receive.member_), receive);
}

}  // namespace aiacc
