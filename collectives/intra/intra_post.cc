#include "collectives/intra/intra_post.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/data/cpu_compute.h"
#include "base/error.h"
#include "base/hash.h"

namespace aiacc {
namespace {

// Freed memory up to this size is kept for later messages, because an allocation populates pages, which costs 0.1 µs
// per KiB.
constexpr std::uint64_t kSpareBytes = 8 << 20;
constexpr std::uint64_t kSmallestRange = 4096;
// Longer messages get a range of their own.
constexpr std::uint64_t kLongestInSlab = 64 << 10;
constexpr std::uint64_t kLargestSlab = 512 << 10;

}  // namespace

IntraPost::IntraPost(HostDomain& domain, std::uint64_t view_id, std::vector<int> domain_ranks, std::vector<int> ranks,
                     int me)
    : domain_(domain),
      key_(Hash64().add(view_id).add("post").value() | 1),
      domain_ranks_(std::move(domain_ranks)),
      ranks_(std::move(ranks)),
      me_(me),
      lines_(domain_ranks_.size()) {
  const auto members = static_cast<std::uint32_t>(domain_ranks_.size());
  lines_[static_cast<std::size_t>(me_)] = domain_.claim_lines(key_, line_count());
  for (int member = 0; member < static_cast<int>(members); ++member) {
    out_.emplace_back(member);
    in_.emplace_back(member, domain_.loop());
  }
}

IntraPost::~IntraPost() {
  // Ends the waits of all listeners, which refer to the domain.
  listening_.request(std::make_exception_ptr(Error(Code::kAborted, "the group is gone")));
  for (Outgoing& to : out_) {
    for (const Placed& message : to.messages) {
      if (!message.in_slab) domain_.free(message.range);
    }
    for (const Slab& slab : to.slabs) domain_.free(slab.range);
  }
  for (const auto& [bytes, range] : spare_) domain_.free(range);
  domain_.release_lines(key_);
}

Task<void> IntraPost::open(Stop& stop) {
  for (int member = 0; member < static_cast<int>(lines_.size()); ++member) {
    if (member != me_) co_await find_lines(member, stop);
  }
}

Task<void> IntraPost::find_lines(int member, Stop& stop) {
  const auto at = static_cast<std::size_t>(member);
  const FlagRef claims = HostDomain::claims(domain_ranks_[at]);
  while (true) {
    const std::uint64_t seen =
        domain_.line(claims.owner, claims.line).word[claims.word].load(std::memory_order_acquire);
    if (const auto found = domain_.find_lines(domain_ranks_[at], key_, line_count())) {
      lines_[at] = *found;
      co_return;
    }
    co_await domain_.at_least(claims, seen + 1, stop);
  }
}

int IntraPost::member_of(int rank) const noexcept {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found != ranks_.end() && *found == rank ? static_cast<int>(found - ranks_.begin()) : -1;
}

// The word in `owner`'s table for member `about`.
FlagRef IntraPost::flag(int owner, Table table, int about) const noexcept {
  const auto at = static_cast<std::size_t>(owner);
  const auto other = static_cast<std::uint32_t>(about);
  return {domain_ranks_[at], lines_[at] + table * lines_per_table() + other / kWordsPerLine, other % kWordsPerLine};
}

std::uint64_t IntraPost::read(int owner, Table table, int about) const noexcept {
  const FlagRef at = flag(owner, table, about);
  return domain_.line(at.owner, at.line).word[at.word].load(std::memory_order_acquire);
}

void IntraPost::throw_corrupt(int member, const std::string& what) const {
  const int rank = ranks_[static_cast<std::size_t>(member)];
  throw Error(Code::kProtocol,
              fmt::format("the shared memory of rank {} {}: something has overwritten the host's segment", rank, what),
              rank);
}

// The offset comes from the member, so it is checked.
const IntraPost::Header& IntraPost::header(int member, std::uint64_t offset) const {
  if (offset % alignof(Header) != 0)
    throw_corrupt(member, fmt::format("names a message at {}, where none begins", offset));
  return *reinterpret_cast<const Header*>(
      domain_.view(domain_ranks_[static_cast<std::size_t>(member)], offset, sizeof(Header)));
}

HostRange IntraPost::acquire_range(std::size_t bytes) {
  const std::uint64_t rounded = std::max(std::bit_ceil(std::uint64_t{bytes}), kSmallestRange);
  // Small ranges are rounded to powers of two for reuse; rounding large ones could waste half of their memory.
  const std::uint64_t wanted = rounded <= kSpareBytes ? rounded : bytes;
  if (const auto spare = spare_.find(wanted); spare != spare_.end()) {
    const HostRange range = spare->second;
    spare_.erase(spare);
    spare_bytes_ -= wanted;
    return range;
  }
  HostRange range = domain_.allocate(wanted);
  range.bytes = wanted;
  return range;
}

void IntraPost::release_range(HostRange range) noexcept {
  if (range.bytes <= kSpareBytes - std::min(kSpareBytes, spare_bytes_)) {
    try {
      spare_.emplace(range.bytes, range);
      spare_bytes_ += range.bytes;
      return;
    } catch (const std::bad_alloc&) {
    }
  }
  domain_.free(range);
}

// Allocates memory for the next message to this member, the last of `messages`.
void IntraPost::place_message(Outgoing& to, std::size_t bytes) {
  const std::uint64_t aligned = (std::uint64_t{bytes} + alignof(Header) - 1) / alignof(Header) * alignof(Header);
  if (aligned > kLongestInSlab) {
    to.messages.emplace_back();
    try {
      to.messages.back().range = acquire_range(bytes);
    } catch (...) {
      to.messages.pop_back();
      throw;
    }
    return;
  }
  if (to.slabs.empty() || to.slabs.back().range.bytes - to.slabs.back().filled < aligned) {
    if (!to.slabs.empty() && to.slabs.back().messages == 0) {  // an empty slab that is too short
      to.slab_bytes -= to.slabs.back().range.bytes;
      release_range(to.slabs.back().range);
      to.slabs.pop_back();
    }
    // Doubles the waiting bytes: many messages need few allocations, and few messages little memory.
    const std::uint64_t wanted = std::max(aligned, std::min(to.slab_bytes, kLargestSlab));
    to.slabs.emplace_back();
    try {
      to.slabs.back().range = acquire_range(wanted);
    } catch (...) {
      to.slabs.pop_back();
      throw;
    }
    to.slab_bytes += to.slabs.back().range.bytes;
  }
  Slab& slab = to.slabs.back();
  to.messages.push_back({{slab.range.offset + slab.filled, aligned}, true});
  slab.filled += aligned;
  ++slab.messages;
}

void IntraPost::drop_oldest(Outgoing& to) noexcept {
  const Placed oldest = to.messages.front();
  to.messages.pop_front();
  if (!oldest.in_slab) {
    release_range(oldest.range);
    return;
  }
  if (--to.slabs.front().messages > 0) return;
  if (to.slabs.size() == 1) {
    to.slabs.front().filled = 0;
    return;
  }
  to.slab_bytes -= to.slabs.front().range.bytes;
  release_range(to.slabs.front().range);
  to.slabs.pop_front();
}

// Message i is needed until message i + 1 was received, because it contains the link to i + 1.
void IntraPost::reclaim(Outgoing& to) noexcept {
  const std::uint64_t taken = read(to.member, kTaken, me_);
  while (to.freed + 1 < taken) {
    drop_oldest(to);
    ++to.freed;
  }
}

// Allocates the next message to this member and writes its header; returns the place of its payload.
Buffer IntraPost::begin_message(Outgoing& to, const Call& call, std::size_t bytes) {
  reclaim(to);
  place_message(to, sizeof(Header) + bytes);
  std::byte* memory = domain_.view(domain_.rank(), to.messages.back().range);
  auto* made = new (memory) Header;
  made->bytes = bytes;
  made->fingerprint = call.fingerprint();
  made->tag = call.tag;
  made->type = static_cast<std::uint32_t>(call.reduction.type);
  return {memory + sizeof(Header), bytes};
}

void IntraPost::post_message(Outgoing& to) noexcept {
  const HostRange range = to.messages.back().range;
  if (to.posted == 0) {
    const FlagRef first = flag(me_, kFirst, to.member);
    domain_.own_line(first.line).word[first.word].store(range.offset + 1, std::memory_order_release);
  } else {
    const HostRange& before = to.messages[to.messages.size() - 2].range;
    auto* last = std::launder(reinterpret_cast<Header*>(domain_.view(domain_.rank(), before.offset, sizeof(Header))));
    last->next.store(range.offset + 1, std::memory_order_release);
  }
  const FlagRef posted = flag(me_, kPosted, to.member);
  domain_.publish(posted.line, posted.word, ++to.posted);  // pairs with the acquire in follow()
}

Task<void> IntraPost::send(Operation& op) {
  Outgoing& to = out_[static_cast<std::size_t>(member_of(op.call.root))];
  // A copy may suspend (in the simulator), so a turn keeps the messages in the order of the calls.
  co_await TurnQueue::Await(to.turns, domain_.loop(), op.stop);
  const TurnQueue::Holder turn(to.turns);
  const Buffer inside = begin_message(to, op.call, op.send.bytes);
  if (op.send.bytes > 0) co_await op.team.compute.copy(inside, op.send, op.stop);
  post_message(to);
}

bool IntraPost::send_now(const Call& call, const Buffer& send) noexcept {
  Outgoing& to = out_[static_cast<std::size_t>(member_of(call.root))];
  if (!to.turns.free()) return false;
  try {
    const Buffer inside = begin_message(to, call, send.bytes);
    if (send.bytes > 0) CpuCompute::copy_now(inside.data, send.data, send.bytes);
  } catch (...) {
    return false;  // the operation fails in the same way and reports the error
  }
  post_message(to);
  return true;
}

// Word 0 is the number of the statement, 0 while there is none; then the sender, the count, and the type with the tag.
FlagRef IntraPost::statement(int owner) const noexcept {
  const auto at = static_cast<std::size_t>(owner);
  return {domain_ranks_[at], lines_[at] + kTables * lines_per_table(), 0};
}

void IntraPost::state_receiving(const CallSummary* call) noexcept {
  ControlLine& line = domain_.own_line(statement(me_).line);
  line.word[0].store(0, std::memory_order_relaxed);
  if (call == nullptr) return;
  const bool any = call->kind == Collective::kRecvAny;
  line.word[1].store(any ? ~std::uint64_t{0} : static_cast<std::uint64_t>(call->root), std::memory_order_release);
  line.word[2].store(call->count, std::memory_order_release);
  line.word[3].store(static_cast<std::uint64_t>(call->type) << 32 | call->tag, std::memory_order_release);
  line.word[0].store(++statements_, std::memory_order_release);
}

std::optional<CallSummary> IntraPost::receiving_of(int rank) const noexcept {
  const FlagRef at = statement(member_of(rank));
  const ControlLine& line = domain_.line(at.owner, at.line);
  const std::uint64_t number = line.word[0].load(std::memory_order_acquire);
  const std::uint64_t from = line.word[1].load(std::memory_order_acquire);
  CallSummary call;
  call.count = line.word[2].load(std::memory_order_acquire);
  const std::uint64_t type_and_tag = line.word[3].load(std::memory_order_acquire);
  if (number == 0 || line.word[0].load(std::memory_order_relaxed) != number) return std::nullopt;
  const bool any = from == ~std::uint64_t{0};
  call.kind = any ? Collective::kRecvAny : Collective::kRecv;
  call.root = any ? 0 : static_cast<int>(from);
  call.type = static_cast<DType>(type_and_tag >> 32);
  call.tag = static_cast<std::uint32_t>(type_and_tag);
  return call;
}

}  // namespace aiacc
