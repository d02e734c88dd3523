#include "collectives/host/host_post.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>

#include "base/error.h"
#include "base/hash.h"

namespace aiacc {
namespace {

// What is kept of memory that came back, for the next messages: an allocation populates pages, which costs 0.1 µs a KiB.
constexpr std::uint64_t kSpareBytes = 8 << 20;
constexpr std::uint64_t kSmallestRange = 4096;

}  // namespace

HostPost::HostPost(HostDomain& domain, std::uint64_t view_id, std::vector<int> domain_ranks, std::vector<int> ranks,
                   int me)
    : domain_(domain),
      key_(Hash64().add(view_id).add("post").value() | 1),
      domain_ranks_(std::move(domain_ranks)),
      ranks_(std::move(ranks)),
      me_(me),
      lines_(domain_ranks_.size()) {
  const auto members = static_cast<std::uint32_t>(domain_ranks_.size());
  const std::uint32_t lines_per_table = (members + kWordsPerLine - 1) / kWordsPerLine;
  lines_[static_cast<std::size_t>(me_)] = domain_.claim_lines(key_, kTables * lines_per_table + 1);
  for (int member = 0; member < static_cast<int>(members); ++member) {
    out_.emplace_back(member);
    in_.emplace_back(member);
  }
}

HostPost::~HostPost() {
  for (Outgoing& to : out_) {
    for (const HostRange& range : to.ranges) domain_.free(range);
  }
  for (const auto& [bytes, range] : spare_) domain_.free(range);
  domain_.release_lines(key_);
}

Task<void> HostPost::open(Stop& stop) {
  for (int member = 0; member < static_cast<int>(lines_.size()); ++member) {
    if (member != me_) co_await find_lines(member, stop);
  }
}

Task<void> HostPost::find_lines(int member, Stop& stop) {
  const auto at = static_cast<std::size_t>(member);
  const FlagRef claims = HostDomain::claims(domain_ranks_[at]);
  while (true) {
    const std::uint64_t seen =
        domain_.line(claims.owner, claims.line).word[claims.word].load(std::memory_order_acquire);
    if (const auto found = domain_.find_lines(domain_ranks_[at], key_)) {
      lines_[at] = *found;
      co_return;
    }
    co_await domain_.at_least(claims, seen + 1, stop);
  }
}

int HostPost::member_of(int rank) const noexcept {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found != ranks_.end() && *found == rank ? static_cast<int>(found - ranks_.begin()) : -1;
}

// The word of `owner`'s table about another member.
FlagRef HostPost::flag(int owner, Table table, int about) const noexcept {
  const auto at = static_cast<std::size_t>(owner);
  const auto other = static_cast<std::uint32_t>(about);
  const auto lines_per_table = (static_cast<std::uint32_t>(lines_.size()) + kWordsPerLine - 1) / kWordsPerLine;
  return {domain_ranks_[at], lines_[at] + table * lines_per_table + other / kWordsPerLine, other % kWordsPerLine};
}

std::uint64_t HostPost::read(int owner, Table table, int about) const noexcept {
  const FlagRef at = flag(owner, table, about);
  return domain_.line(at.owner, at.line).word[at.word].load(std::memory_order_acquire);
}

const HostPost::Header& HostPost::header(int member, std::uint64_t offset) const noexcept {
  return *reinterpret_cast<const Header*>(domain_.view(domain_ranks_[static_cast<std::size_t>(member)], offset));
}

HostRange HostPost::take_range(std::size_t bytes) {
  const std::uint64_t rounded = std::max(std::bit_ceil(std::uint64_t{bytes}), kSmallestRange);
  // Powers of two are found again; large messages are not rounded: their memory would be half unused.
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

void HostPost::give_range(HostRange range) noexcept {
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

// Message i is needed until message i + 1 was taken: the receiver finds i + 1 in it.
void HostPost::reclaim(Outgoing& to) noexcept {
  const std::uint64_t taken = read(to.member, kTaken, me_);
  while (to.freed + 1 < taken) {
    give_range(to.ranges.front());
    to.ranges.pop_front();
    ++to.freed;
  }
}

Task<void> HostPost::send(Operation& op) {
  Outgoing& to = out_[static_cast<std::size_t>(member_of(op.call.root))];
  // A copy may take time (in the simulator): messages are hung up in the order of the calls.
  co_await host::TurnQueue::Await(to.turns, domain_.loop(), op.stop);
  const host::TurnQueue::Holder turn(to.turns);
  reclaim(to);
  const HostRange range = take_range(sizeof(Header) + op.send.bytes);
  to.ranges.push_back(range);
  std::byte* memory = domain_.view(domain_.rank(), range.offset);
  auto* made = new (memory) Header;
  made->bytes = op.send.bytes;
  made->fingerprint = op.call.fingerprint();
  made->tag = op.call.tag;
  made->type = static_cast<std::uint32_t>(op.call.reduction.type);
  if (op.send.bytes > 0) {
    Buffer inside = op.send;
    inside.data = memory + sizeof(Header);
    co_await op.team.compute.copy(inside, op.send);
  }
  if (to.posted == 0) {
    const FlagRef first = flag(me_, kFirst, to.member);
    domain_.own_line(first.line).word[first.word].store(range.offset + 1, std::memory_order_release);
  } else {
    const HostRange& before = to.ranges[to.ranges.size() - 2];
    auto* last = std::launder(reinterpret_cast<Header*>(domain_.view(domain_.rank(), before.offset)));
    last->next.store(range.offset + 1, std::memory_order_release);
  }
  const FlagRef posted = flag(me_, kPosted, to.member);
  domain_.publish(posted.line, posted.word, ++to.posted);  // pairs with the acquire in follow()
}

// Sees what was posted since, and gives each message to the first that waits for its tag.
void HostPost::follow(Incoming& from) {
  const std::uint64_t posted = read(from.member, kPosted, me_);
  while (from.seen < posted) {
    const std::uint64_t link = from.seen == 0 ? read(from.member, kFirst, me_)
                                              : header(from.member, from.last).next.load(std::memory_order_acquire);
    from.last = link - 1;
    const Arrived message{from.seen++, from.last};
    from.finished.push_back(0);
    const std::uint32_t tag = header(from.member, message.offset).tag;
    Waiting* receiver = nullptr;
    from.waiting.for_each([&](Waiting& waiting) {
      if (receiver == nullptr && waiting.tag == tag) receiver = &waiting;
    });
    if (receiver == nullptr) {
      from.unasked.push_back(message);
      continue;
    }
    receiver->unlink();
    receiver->message = message;
    receiver->matched = true;
  }
}

void HostPost::finish(Incoming& from, std::uint64_t number) noexcept {
  from.finished[number - from.taken] = 1;
  while (!from.finished.empty() && from.finished.front() != 0) {
    from.finished.pop_front();
    ++from.taken;
  }
  // Release: pairs with reclaim(); nothing is read in messages before this one any more. Nobody waits for it.
  const FlagRef taken = flag(me_, kTaken, from.member);
  domain_.own_line(taken.line).word[taken.word].store(from.taken, std::memory_order_release);
}

Task<void> HostPost::recv(Operation& op) {
  Incoming& from = in_[static_cast<std::size_t>(member_of(op.call.root))];
  follow(from);
  Waiting self(op.call.tag);
  const auto early = std::find_if(from.unasked.begin(), from.unasked.end(), [&](const Arrived& message) {
    return header(from.member, message.offset).tag == op.call.tag;
  });
  if (early != from.unasked.end()) {
    self.message = *early;
    self.matched = true;
    from.unasked.erase(early);
  } else {
    from.waiting.push_back(self);
  }
  while (!self.matched) {
    co_await domain_.at_least(flag(from.member, kPosted, me_), from.seen + 1, op.stop);
    follow(from);
  }
  const Header& message = header(from.member, self.message.offset);
  if (message.fingerprint != op.call.fingerprint()) {
    throw Error(
        Code::kMismatch,
        fmt::format("rank {} sent {} bytes of {} with tag {}, but rank {} expects {} bytes of {}: sizes and types of "
                    "a message agree on both ends",
                    op.call.root, message.bytes, name_of(static_cast<DType>(message.type)), message.tag, op.team.rank,
                    op.recv.bytes, name_of(op.call.reduction.type)),
        op.call.root);
  }
  if (op.recv.bytes > 0) {
    Buffer inside = op.recv;
    inside.data =
        domain_.view(domain_ranks_[static_cast<std::size_t>(from.member)], self.message.offset + sizeof(Header));
    co_await op.team.compute.copy(op.recv, inside);
  }
  finish(from, self.message.number);
}

// Word 0 is the number of the statement, 0 while there is none; then who sends, the count, and the type with the tag.
FlagRef HostPost::statement(int owner) const noexcept {
  const auto lines_per_table = (static_cast<std::uint32_t>(lines_.size()) + kWordsPerLine - 1) / kWordsPerLine;
  const auto at = static_cast<std::size_t>(owner);
  return {domain_ranks_[at], lines_[at] + kTables * lines_per_table, 0};
}

void HostPost::state_receiving(const CallSummary* call) noexcept {
  ControlLine& line = domain_.own_line(statement(me_).line);
  line.word[0].store(0, std::memory_order_relaxed);
  if (call == nullptr) return;
  const bool any = call->kind == Collective::kRecvAny;
  line.word[1].store(any ? ~std::uint64_t{0} : static_cast<std::uint64_t>(call->root), std::memory_order_release);
  line.word[2].store(call->count, std::memory_order_release);
  line.word[3].store(static_cast<std::uint64_t>(call->type) << 32 | call->tag, std::memory_order_release);
  line.word[0].store(++statements_, std::memory_order_release);
}

std::optional<CallSummary> HostPost::receiving_of(int rank) const noexcept {
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

int HostPost::find_unasked(std::uint32_t tag, int first) {
  int found = -1;
  for (Incoming& from : in_) {
    if (from.member == me_) continue;
    follow(from);
    const bool has = std::any_of(from.unasked.begin(), from.unasked.end(), [&](const Arrived& message) {
      return header(from.member, message.offset).tag == tag;
    });
    const int rank = ranks_[static_cast<std::size_t>(from.member)];
    if (has && (found < 0 || (found < first && rank >= first))) found = rank;
  }
  return found;
}

Task<void> HostPost::watch(int member, Event& news, Stop& stop) {
  Incoming& from = in_[static_cast<std::size_t>(member)];
  for (;;) {
    co_await domain_.at_least(flag(member, kPosted, me_), from.seen + 1, stop);
    follow(from);
    news.set();
  }
}

}  // namespace aiacc
