#include "collectives/host/channel.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace aiacc::host {
namespace {

// The sender's line 0.
constexpr std::uint32_t kPosted = 0;
constexpr std::uint32_t kFilled = 1;
constexpr std::uint32_t kDescriptorLine = 1;
constexpr std::uint32_t kSenderLines = 17;
// The receiver's line 0.
constexpr std::uint32_t kDrained = 0;
constexpr std::uint32_t kStateLine = 1;
constexpr std::uint32_t kReceiverLines = 5;

constexpr std::size_t kBesideBytes = kMessagesInFlight * kSmallMessageBytes;
constexpr std::size_t kMemoryBytes = kBesideBytes + kMessageChunks * kMessageChunkBytes;

// What became of message `number`: grows over the life of a place in the ring.
constexpr std::uint64_t asked_for(std::uint64_t number) { return 2 * number + 1; }
constexpr std::uint64_t consumed(std::uint64_t number) { return 2 * number + 2; }

std::uint32_t ring_place(std::uint64_t number) { return static_cast<std::uint32_t>(number % kMessagesInFlight); }

}  // namespace

Task<std::uint32_t> await_lines(HostDomain& domain, int owner, std::uint64_t key, Stop& stop) {
  const FlagRef claims = HostDomain::claims(owner);
  for (;;) {
    const std::uint64_t seen = domain.line(owner, claims.line).word[claims.word].load(std::memory_order_acquire);
    if (const auto found = domain.find_lines(owner, key)) co_return *found;
    co_await domain.at_least(claims, seen + 1, stop);
  }
}

std::array<std::uint64_t, 4> Descriptor::words() const noexcept {
  const auto kind = static_cast<std::uint64_t>(type) << 8 | static_cast<std::uint64_t>(place);
  return {tag, kind, count, offset};
}

Descriptor Descriptor::from_words(std::uint64_t number, const std::array<std::uint64_t, 4>& words) noexcept {
  return {number,
          static_cast<std::uint32_t>(words[0]),
          static_cast<DType>(words[1] >> 8),
          static_cast<Place>(words[1] & 0xff),
          words[2],
          words[3]};
}

// --- sending ---------------------------------------------------------------------------------------------------------

SendChannel::SendChannel(HostDomain& domain, std::uint64_t key, int to)
    : domain_(domain), key_(key), to_(to), mine_(0), memory_(domain.allocate(kMemoryBytes)) {
  try {
    mine_ = domain_.claim_lines(key_, kSenderLines);
  } catch (...) {
    domain_.free(memory_);
    throw;
  }
}

SendChannel::~SendChannel() {
  domain_.release_lines(key_);
  if (closed_) domain_.free(memory_);
}

std::byte* SendChannel::beside(std::uint64_t number) noexcept {
  return domain_.view(domain_.rank(), memory_.offset) + ring_place(number) * kSmallMessageBytes;
}

std::byte* SendChannel::chunk(std::uint64_t number) noexcept {
  return domain_.view(domain_.rank(), memory_.offset) + kBesideBytes + number % kMessageChunks * kMessageChunkBytes;
}

Task<void> SendChannel::await_state(std::uint64_t number, std::uint64_t state, Stop& stop) {
  if (!theirs_) theirs_ = co_await await_lines(domain_, to_, key_, stop);
  const std::uint32_t place = ring_place(number);
  const FlagRef flag{to_, *theirs_ + kStateLine + place / 16, place % 16};
  co_await domain_.at_least(flag, state, stop);
}

Task<void> SendChannel::send(const Call& call, Buffer data, Compute& compute, Stop& stop) {
  Descriptor message;
  message.tag = call.tag;
  message.type = call.reduction.type;
  message.count = call.count;
  {
    co_await TurnQueue::Await(posting_, domain_.loop(), stop);
    const TurnQueue::Holder posting(posting_);
    message.number = posted_;
    if (posted_ >= kMessagesInFlight) {
      const std::uint64_t before = posted_ - kMessagesInFlight;
      co_await await_state(before, consumed(before), stop);
    }
    if (data.bytes <= kSmallMessageBytes) {
      const Buffer place{beside(posted_), data.bytes};
      message.offset = memory_.offset + ring_place(posted_) * kSmallMessageBytes;
      co_await compute.copy(place, data);
    } else if (const auto offset = domain_.offset_of(data.data, data.bytes)) {
      message.place = Descriptor::Place::kShared;
      message.offset = *offset;
    } else {
      message.place = Descriptor::Place::kStreamed;
      message.offset = memory_.offset + kBesideBytes;
    }
    const std::array<std::uint64_t, 4> words = message.words();
    const std::uint32_t place = ring_place(posted_);
    ControlLine& line = domain_.own_line(mine_ + kDescriptorLine + place / 4);
    for (std::uint32_t i = 0; i < words.size(); ++i) {
      line.word[place % 4 * 4 + i].store(words[i], std::memory_order_relaxed);
    }
    domain_.publish(mine_, kPosted, ++posted_);
  }
  if (message.place == Descriptor::Place::kBeside) co_return;
  const bool streamed = message.place == Descriptor::Place::kStreamed;
  co_await await_state(message.number, streamed ? asked_for(message.number) : consumed(message.number), stop);
  if (streamed) co_await stream(data, compute, stop);
}

Task<void> SendChannel::stream(Buffer data, Compute& compute, Stop& stop) {
  const FlagRef drained{to_, *theirs_, kDrained};
  for (std::size_t at = 0; at < data.bytes; at += kMessageChunkBytes, ++chunks_) {
    if (chunks_ >= kMessageChunks) co_await domain_.at_least(drained, chunks_ + 1 - kMessageChunks, stop);
    const Buffer from = data.slice(at, std::min(kMessageChunkBytes, data.bytes - at));
    const Buffer to{chunk(chunks_), from.bytes};
    co_await compute.copy_for_others(to, from);
    domain_.publish(mine_, kFilled, chunks_ + 1);
  }
}

// --- receiving -------------------------------------------------------------------------------------------------------

RecvChannel::RecvChannel(HostDomain& domain, std::uint64_t key, int from)
    : domain_(domain), key_(key), from_(from), mine_(domain.claim_lines(key, kReceiverLines)) {}

RecvChannel::~RecvChannel() { domain_.release_lines(key_); }

void RecvChannel::set_state(std::uint64_t number, std::uint64_t state) noexcept {
  const std::uint32_t place = ring_place(number);
  domain_.publish(mine_ + kStateLine + place / 16, place % 16, state);
}

// Takes what was posted since, and gives each message to the first recv that wants its tag.
void RecvChannel::take_posted() {
  const std::uint64_t posted = domain_.line(from_, *theirs_).word[kPosted].load(std::memory_order_acquire);
  for (; seen_ < posted; ++seen_) {
    const std::uint32_t place = ring_place(seen_);
    const ControlLine& line = domain_.line(from_, *theirs_ + kDescriptorLine + place / 4);
    std::array<std::uint64_t, 4> words;
    for (std::uint32_t i = 0; i < words.size(); ++i) {
      words[i] = line.word[place % 4 * 4 + i].load(std::memory_order_relaxed);
    }
    const Descriptor message = Descriptor::from_words(seen_, words);
    bool given = false;
    waiting_.for_each([&given, &message](Waiting& waiting) {
      if (given || waiting.message || waiting.tag != message.tag) return;
      waiting.message = message;
      waiting.wake.set();
      given = true;
    });
    if (!given) unexpected_.push_back(message);
  }
}

void RecvChannel::wake_next() noexcept {
  if (!listening_ && !waiting_.empty()) waiting_.front().wake.set();
}

Task<void> RecvChannel::listen(Stop& stop) {
  listening_ = true;
  try {
    if (!theirs_) theirs_ = co_await await_lines(domain_, from_, key_, stop);
    const FlagRef flag{from_, *theirs_, kPosted};
    co_await domain_.at_least(flag, seen_ + 1, stop);
  } catch (...) {
    listening_ = false;
    throw;
  }
  listening_ = false;
  take_posted();
}

Task<Descriptor> RecvChannel::match(std::uint32_t tag, Stop& stop) {
  if (theirs_) take_posted();
  const auto found = std::find_if(unexpected_.begin(), unexpected_.end(),
                                  [tag](const Descriptor& message) { return message.tag == tag; });
  if (found != unexpected_.end()) {
    const Descriptor message = *found;
    unexpected_.erase(found);
    co_return message;
  }
  Waiting self(domain_.loop(), tag);
  waiting_.push_back(self);
  while (!self.message) {
    if (!listening_) {
      co_await listen(stop);
    } else {
      co_await self.wake.wait(stop);
      self.wake.reset();
    }
  }
  static_cast<ListNode<Waiting>&>(self).unlink();
  wake_next();
  co_return *self.message;
}

Task<void> RecvChannel::recv(const Call& call, int from_rank, Buffer into, Compute& compute, Stop& stop) {
  const Descriptor message = co_await match(call.tag, stop);
  if (message.count != call.count || message.type != call.reduction.type) {
    throw Error(
        Code::kMismatch,
        fmt::format("a message is not what its receiver expects: rank {} sent {} {}, tag {}; the receiver calls {}",
                    from_rank, message.count, name_of(message.type), message.tag, call.describe()),
        from_rank);
  }
  if (message.place == Descriptor::Place::kStreamed) {
    co_await drain(message, into, compute, stop);
  } else {
    const Buffer from{domain_.view(from_, message.offset), into.bytes};
    co_await compute.copy(into, from);
  }
  set_state(message.number, consumed(message.number));
}

Task<void> RecvChannel::drain(const Descriptor& message, Buffer into, Compute& compute, Stop& stop) {
  co_await TurnQueue::Await(draining_, domain_.loop(), stop);
  const TurnQueue::Holder draining(draining_);
  set_state(message.number, asked_for(message.number));
  const FlagRef filled{from_, *theirs_, kFilled};
  for (std::size_t at = 0; at < into.bytes; at += kMessageChunkBytes, ++chunks_) {
    co_await domain_.at_least(filled, chunks_ + 1, stop);
    const Buffer to = into.slice(at, std::min(kMessageChunkBytes, into.bytes - at));
    const std::uint64_t offset = message.offset + chunks_ % kMessageChunks * kMessageChunkBytes;
    const Buffer from{domain_.view(from_, offset), to.bytes};
    co_await compute.copy(to, from);
    domain_.publish(mine_, kDrained, chunks_ + 1);
  }
}

}  // namespace aiacc::host
