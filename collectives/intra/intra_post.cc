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
// The most messages of one member that have not been received.
constexpr std::uint64_t kMostPosted = std::uint64_t{1} << 28;
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
  // No wait of a listener may be left with the domain.
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

void IntraPost::refuse(int member, const std::string& what) const {
  const int rank = ranks_[static_cast<std::size_t>(member)];
  throw Error(Code::kProtocol,
              fmt::format("the shared memory of rank {} {}: something has overwritten the host's segment", rank, what),
              rank);
}

// The offset comes from the member, so it is checked.
const IntraPost::Header& IntraPost::header(int member, std::uint64_t offset) const {
  if (offset % alignof(Header) != 0) refuse(member, fmt::format("names a message at {}, where none begins", offset));
  return *reinterpret_cast<const Header*>(
      domain_.view(domain_ranks_[static_cast<std::size_t>(member)], offset, sizeof(Header)));
}

HostRange IntraPost::take_range(std::size_t bytes) {
  const std::uint64_t rounded = std::max(std::bit_ceil(std::uint64_t{bytes}), kSmallestRange);
  // Rounded to powers of two for reuse; large messages are not rounded, because up to half of their memory would be
  // unused.
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

void IntraPost::give_range(HostRange range) noexcept {
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
      to.messages.back().range = take_range(bytes);
    } catch (...) {
      to.messages.pop_back();
      throw;
    }
    return;
  }
  if (to.slabs.empty() || to.slabs.back().range.bytes - to.slabs.back().filled < aligned) {
    if (!to.slabs.empty() && to.slabs.back().messages == 0) {  // an empty slab that is too short
      to.slab_bytes -= to.slabs.back().range.bytes;
      give_range(to.slabs.back().range);
      to.slabs.pop_back();
    }
    // Doubles the waiting bytes: many messages need few allocations, and few messages little memory.
    const std::uint64_t wanted = std::max(aligned, std::min(to.slab_bytes, kLargestSlab));
    to.slabs.emplace_back();
    try {
      to.slabs.back().range = take_range(wanted);
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
    give_range(oldest.range);
    return;
  }
  if (--to.slabs.front().messages > 0) return;
  if (to.slabs.size() == 1) {
    to.slabs.front().filled = 0;
    return;
  }
  to.slab_bytes -= to.slabs.front().range.bytes;
  give_range(to.slabs.front().range);
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

// Memory for the next message to this member, with its header; where its payload goes.
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
    return false;  // the operation fails in the same way, and says so
  }
  post_message(to);
  return true;
}

// A receive without a message, until it has one.
class IntraPost::MatchAwait final : public Leaf, public ListNode<MatchAwait> {
 public:
  MatchAwait(IntraPost& post, Incoming& from, std::uint32_t tag, Stop& stop) noexcept
      : Leaf(post.domain_.loop(), stop), post_(post), from_(from), tag_(tag) {}
  Arrived await_resume() const {
    Leaf::await_resume();
    return message_;
  }
  void matched(const Arrived& message) noexcept {
    message_ = message;
    complete();
  }

 private:
  bool try_now() override {
    if (from_.broken) std::rethrow_exception(from_.broken);
    if (post_.take_unexpected(from_, tag_, &message_)) return true;
    post_.listen_to(from_);
    return false;
  }
  void begin() noexcept override {
    from_.tags.find(tag_)->second.waiting.push_back(*this);
    if (from_.waiting++ == 0) from_.needed.set();
  }
  void cancel() noexcept override {
    ListNode<MatchAwait>::unlink();
    --from_.waiting;
    if (const auto its = from_.tags.find(tag_); its->second.empty()) from_.tags.erase(its);
    post_.listen_no_more(from_);
  }

  IntraPost& post_;
  Incoming& from_;
  std::uint32_t tag_;
  Arrived message_;
};

// Reads the messages that were posted since the last call, and gives each to the first receive that waits for its tag.
void IntraPost::follow(Incoming& from) {
  const std::uint64_t posted = read(from.member, kPosted, me_);
  if (posted < from.seen || posted - from.taken > kMostPosted) {
    refuse(from.member, fmt::format("says that {} messages were sent, of which {} came", posted, from.seen));
  }
  while (from.seen < posted) {
    const std::uint64_t link = from.seen == 0 ? read(from.member, kFirst, me_)
                                              : header(from.member, from.last).next.load(std::memory_order_acquire);
    from.last = link - 1;
    const Arrived message{from.seen++, from.last};
    from.finished.push_back(0);
    const std::uint32_t tag = header(from.member, message.offset).tag;
    const auto its = from.tags.try_emplace(tag).first;
    if (MatchAwait* receiver = its->second.waiting.pop_front(); receiver != nullptr) {
      if (its->second.empty()) from.tags.erase(its);
      --from.waiting;
      receiver->matched(message);
      continue;
    }
    keep_unexpected(its->second, message);
    if (any_source_ > 0) observer_->unexpected_message(tag);
  }
}

void IntraPost::keep_unexpected(ByTag& its, const Arrived& message) {
  std::uint32_t at = free_unexpected_;
  if (at == kNone) {
    at = static_cast<std::uint32_t>(unexpected_.size());
    unexpected_.emplace_back();
  } else {
    free_unexpected_ = unexpected_[at].next;
  }
  unexpected_[at] = {message, kNone};
  (its.first == kNone ? its.first : unexpected_[its.last].next) = at;
  its.last = at;
}

// The first message with this tag that no other receive has. Without one the tag is there for a receive to wait in.
bool IntraPost::take_unexpected(Incoming& from, std::uint32_t tag, Arrived* message) {
  follow(from);
  const auto its = from.tags.try_emplace(tag).first;
  const std::uint32_t first = its->second.first;
  if (first == kNone) return false;
  *message = unexpected_[first].message;
  its->second.first = std::exchange(unexpected_[first].next, std::exchange(free_unexpected_, first));
  if (its->second.empty()) from.tags.erase(its);
  return true;
}

void IntraPost::listen_to(Incoming& from) {
  if (from.listener) return;
  from.listener.emplace(domain_.loop(), listen(from), static_cast<Root::Owner&>(*this));
  from.listener->start();
}

Task<void> IntraPost::listen(Incoming& from) {
  for (;;) {
    if (from.waiting == 0 && any_source_ == 0) {
      from.needed.reset();
      co_await from.needed.wait(listening_);
      continue;
    }
    from.listens.emplace(listening_);
    bool arrived = true;
    try {
      co_await domain_.at_least(flag(from.member, kPosted, me_), from.seen + 1, *from.listens);
    } catch (...) {
      if (listening_.requested()) throw;
      arrived = false;
    }
    from.listens.reset();
    if (arrived) follow(from);
  }
}

// A loop that watches flags stays awake for them.
void IntraPost::listen_no_more(Incoming& from) noexcept {
  if (from.waiting > 0 || any_source_ > 0 || !from.listens) return;
  from.listens->request(std::make_exception_ptr(Error(Code::kAborted, "nobody waits any more")));
}

// The member says what cannot be. Whoever waits for it hears why, and so does whoever comes later.
void IntraPost::root_ended(Root& listener, std::exception_ptr error) noexcept {
  for (Incoming& from : in_) {
    if (!from.listener || &*from.listener != &listener) continue;
    from.broken = error;
    from.waiting = 0;
    for (auto& [tag, its] : from.tags) {
      while (MatchAwait* receiver = its.waiting.pop_front()) receiver->fail(error);
    }
    if (any_source_ > 0) observer_->source_failed(error);
  }
}

void IntraPost::finish(Incoming& from, std::uint64_t number) noexcept {
  from.finished[number - from.taken] = 1;
  while (!from.finished.empty() && from.finished.front() != 0) {
    from.finished.pop_front();
    ++from.taken;
  }
  // Release: pairs with reclaim(). Earlier messages are not read any more. No waiter needs to be notified.
  const FlagRef taken = flag(me_, kTaken, from.member);
  domain_.own_line(taken.line).word[taken.word].store(from.taken, std::memory_order_release);
}

Task<void> IntraPost::recv(Operation& op) {
  Incoming& from = in_[static_cast<std::size_t>(member_of(op.call.root))];
  const Arrived arrived = co_await MatchAwait(*this, from, op.call.tag, op.stop);
  const Header& message = header(from.member, arrived.offset);
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
    const int owner = domain_ranks_[static_cast<std::size_t>(from.member)];
    const Buffer inside{domain_.view(owner, arrived.offset + sizeof(Header), op.recv.bytes), op.recv.bytes};
    co_await op.team.compute.copy(op.recv, inside, op.stop);
  }
  finish(from, arrived.number);
}

bool IntraPost::recv_now(const Call& call, const Buffer& recv) noexcept {
  Incoming& from = in_[static_cast<std::size_t>(member_of(call.root))];
  try {
    if (from.broken) return false;
    follow(from);
    const auto its = from.tags.find(call.tag);
    if (its == from.tags.end() || its->second.first == kNone) return false;
    const Arrived arrived = unexpected_[its->second.first].message;
    if (header(from.member, arrived.offset).fingerprint != call.fingerprint()) return false;
    if (recv.bytes > 0) {
      const int owner = domain_ranks_[static_cast<std::size_t>(from.member)];
      CpuCompute::copy_now(recv.data, domain_.view(owner, arrived.offset + sizeof(Header), recv.bytes), recv.bytes);
    }
    Arrived taken;
    take_unexpected(from, call.tag, &taken);
    finish(from, taken.number);
    return true;
  } catch (...) {
    return false;
  }
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

int IntraPost::find_unasked(std::uint32_t tag, int first) {
  int found = -1;
  for (Incoming& from : in_) {
    if (from.member == me_) continue;
    follow(from);
    const auto its = from.tags.find(tag);
    const bool has = its != from.tags.end() && its->second.first != kNone;
    const int rank = ranks_[static_cast<std::size_t>(from.member)];
    if (has && (found < 0 || (found < first && rank >= first))) found = rank;
  }
  return found;
}

IntraPost::AnySource::~AnySource() {
  if (--post_.any_source_ > 0) return;
  for (Incoming& from : post_.in_) post_.listen_no_more(from);
}

IntraPost::AnySource::AnySource(IntraPost& post, UnexpectedObserver& observer) : post_(post) {
  for (Incoming& from : post_.in_) {
    if (from.member == post_.me_) continue;
    if (from.broken) std::rethrow_exception(from.broken);
    post_.listen_to(from);
  }
  post_.observer_ = &observer;
  if (post_.any_source_++ > 0) return;
  for (Incoming& from : post_.in_) from.needed.set();
}

}  // namespace aiacc
