#include "collectives/intra/intra_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "collectives/intra/intra_messages_now.h"

namespace aiacc {
namespace {

// How much memory of received messages a member keeps: the members of a small group share the first number.
constexpr std::uint64_t kSpareBytesOfAll = 64 << 20;
constexpr std::uint64_t kLeastSpareBytes = 8 << 20;
constexpr std::uint64_t kLargestSlab = 512 << 10;

}  // namespace

IntraMessages::IntraMessages(HostDomain& domain, std::uint64_t view_id, std::vector<int> domain_ranks,
                             std::vector<int> ranks, int me, const Loans::Program* program)
    : domain_(domain),
      key_(Hash64().add(view_id).add("post").value() | 1),
      domain_ranks_(std::move(domain_ranks)),
      ranks_(std::move(ranks)),
      consecutive_(ranks_.back() - ranks_.front() == static_cast<int>(ranks_.size()) - 1),
      me_(me),
      slice_(domain_.slice(domain_.rank()).data()),
      lines_(domain_ranks_.size()),
      memory_(domain, std::max(kLeastSpareBytes, kSpareBytesOfAll / domain_ranks_.size())),
      program_(program) {
  const auto members = static_cast<std::uint32_t>(domain_ranks_.size());
  lines_[static_cast<std::size_t>(me_)] = domain_.claim_lines(key_, line_count());
  for (int member = 0; member < static_cast<int>(members); ++member) {
    to_.push_back(&out_.emplace_back(member));
    from_.push_back(&in_.emplace_back(member, domain_.loop()));
    const FlagRef taken = flag(me_, kTaken, member);
    in_.back().taken_here = &domain_.own_line(taken.line).word[taken.word];
    in_.back().reads_here = flag(me_, kReads, member);
    const FlagRef progress = flag(me_, kProgress, member);
    in_.back().progress_here = &domain_.own_line(progress.line).word[progress.word];
    out_.back().posted_here = flag(me_, kPosted, member);
  }
}

IntraMessages::~IntraMessages() {
  // Ends the waits of all listeners, which refer to the domain.
  listening_.request(std::make_exception_ptr(Error(Code::kAborted, "the group is gone")));
  for (Outgoing& to : out_) {
    if (domain_.leaving(domain_.rank())) break;  // members that are late read them when this one has gone
    for (const Run& run : to.runs) {
      if (!run.in_slabs) domain_.free(run.own);
    }
    for (const Slab& slab : to.slabs) domain_.free(slab.range);
  }
  domain_.release_lines(key_);
}

Task<void> IntraMessages::open(Stop& stop) {
  for (int member = 0; member < static_cast<int>(lines_.size()); ++member) {
    if (member != me_) co_await find_lines(member, stop);
  }
}

Task<void> IntraMessages::find_lines(int member, Stop& stop) {
  const auto at = static_cast<std::size_t>(member);
  const FlagRef claims = HostDomain::claims(domain_ranks_[at]);
  while (true) {
    const std::uint64_t seen =
        domain_.line(claims.owner, claims.line).word[claims.word].load(std::memory_order_acquire);
    if (const auto found = domain_.find_lines(domain_ranks_[at], key_, line_count())) {
      lines_[at] = *found;
      in_[at].slice = domain_.slice(domain_ranks_[at]);
      in_[at].posted = &word(member, kPosted, me_);
      out_[at].taken = &word(member, kTaken, me_);
      const FlagRef theirs = marks(member, me_);
      const Loans::Receiver receiver{
          flag(member, kReads, me_),
          std::span(domain_.line(theirs.owner, theirs.line).word).subspan(theirs.word, Loans::kMarkWords),
          word(member, kProgress, me_)};
      out_[at].loans.emplace(domain_, memory_, receiver, program_);
      Incoming& from = in_[at];
      if (domain_.can_read(domain_ranks_[at]))
        domain_.publish(from.reads_here.line, from.reads_here.word, ++from.reads);
      co_return;
    }
    co_await domain_.at_least(claims, seen + 1, stop);
  }
}

int IntraMessages::search_member(int rank) const noexcept {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found != ranks_.end() && *found == rank ? static_cast<int>(found - ranks_.begin()) : -1;
}

// The word in `owner`'s table for member `about`.
FlagRef IntraMessages::flag(int owner, Table table, int about) const noexcept {
  const auto at = static_cast<std::size_t>(owner);
  const auto other = static_cast<std::uint32_t>(about);
  return {domain_ranks_[at], lines_[at] + table * lines_per_table() + other / kWordsPerLine, other % kWordsPerLine};
}

const std::atomic<std::uint64_t>& IntraMessages::word(int owner, Table table, int about) const noexcept {
  const FlagRef at = flag(owner, table, about);
  return domain_.line(at.owner, at.line).word[at.word];
}

void IntraMessages::throw_corrupt(int member, const std::string& what) const {
  const int rank = ranks_[static_cast<std::size_t>(member)];
  throw Error(Code::kProtocol,
              fmt::format("the shared memory of rank {} {}: something has overwritten the host's segment", rank, what),
              rank);
}

void IntraMessages::throw_no_message(int member, std::uint64_t offset, std::size_t bytes) const {
  if (offset % sizeof(Header) == 0) domain_.view(domain_ranks_[static_cast<std::size_t>(member)], offset, bytes);
  throw_corrupt(member, fmt::format("names a message at {}, where none begins", offset));
}

// Allocates memory for the next message to this member, of which it becomes the last of `runs`. What was received is given back when
// there is no room otherwise, and long ones soon: the receiver's count lies in a line that it keeps writing to.
[[gnu::noinline]] std::byte* IntraMessages::place_anywhere(Outgoing& to, std::size_t bytes) {
  const bool is_long = aligned(bytes) > kLongestInSlab;
  to.run = nullptr;
  if (!is_long) return place_in_slab(to, aligned(bytes));
  reclaim(to);
  to.loans->collect();
  to.runs.push_back({1, false, {}});
  try {
    to.runs.back().own = memory_.acquire(bytes);
  } catch (...) {
    to.runs.pop_back();
    throw;
  }
  ++to.own_ranges;
  return memory_.view(to.runs.back().own);
}

std::byte* IntraMessages::place_in_slab(Outgoing& to, std::size_t bytes) {
  const auto fits = [&] { return !to.slabs.empty() && to.slabs.back().range.bytes - to.slabs.back().filled >= bytes; };
  if (!fits() || to.own_ranges > 0) reclaim(to);
  if (!fits()) add_slab(to, bytes);
  if (to.runs.empty() || !to.runs.back().in_slabs) {
    to.runs.emplace_back();
  } else {
    ++to.runs.back().messages;
  }
  Slab& slab = to.slabs.back();
  const std::uint64_t at = slab.filled;
  slab.filled += bytes;
  ++slab.messages;
  if (to.own_ranges == 0) {
    to.run = &to.runs.back();
    to.slab = &slab;
  }
  return slab.memory + at;
}

void IntraMessages::add_slab(Outgoing& to, std::size_t bytes) {
  if (!to.slabs.empty() && to.slabs.back().messages == 0) {  // an empty slab that is too short
    to.slab_bytes -= to.slabs.back().range.bytes;
    memory_.release(to.slabs.back().range);
    to.slabs.pop_back();
  }
  // Doubles the waiting bytes: many messages need few allocations, and few messages little memory, which the caches of both ends
  // keep, also after there were many.
  const std::uint64_t waiting = std::min((to.posted - to.freed) * bytes, to.slab_bytes);
  const std::uint64_t wanted = std::max<std::uint64_t>(bytes, std::min(waiting, kLargestSlab));
  to.slabs.emplace_back();
  Slab& slab = to.slabs.back();
  try {
    slab.range = memory_.acquire(std::bit_ceil(wanted));  // few sizes, so that one is spare
  } catch (...) {
    to.slabs.pop_back();
    throw;
  }
  slab.memory = memory_.view(slab.range);
  to.slab_bytes += slab.range.bytes;
}

void IntraMessages::drop_oldest(Outgoing& to) noexcept {
  Run& oldest = to.runs.front();
  const bool in_slabs = oldest.in_slabs;
  if (!in_slabs) {
    memory_.release(oldest.own);
    --to.own_ranges;
  }
  if (--oldest.messages == 0) to.runs.pop_front();
  if (!in_slabs || --to.slabs.front().messages > 0) return;
  if (to.slabs.size() == 1) {
    to.slabs.front().filled = 0;
    return;
  }
  to.slab_bytes -= to.slabs.front().range.bytes;
  memory_.release(to.slabs.front().range);
  to.slabs.pop_front();
}

// Message i is needed until message i + 1 was received, because it tells where i + 1 is.
void IntraMessages::reclaim(Outgoing& to) noexcept {
  const std::uint64_t taken = to.taken->load(std::memory_order_acquire);  // pairs with tell_taken()
  while (to.freed + 1 < taken) {
    drop_oldest(to);
    ++to.freed;
  }
}

std::uint64_t IntraMessages::new_fingerprint(DType type, Codec codec, std::uint64_t count) noexcept {
  Shape& last = last_shape_;
  Call call;
  call.kind = Collective::kSend;
  call.count = count;
  call.reduction.type = type;
  call.reduction.codec = codec;
  last = {type, codec, count, call.fingerprint()};
  return last.fingerprint;
}

// Whether the payload may stay where it is.
bool IntraMessages::can_lend(Outgoing& to, const Buffer& send) noexcept {
  if (to.loans == std::nullopt || !send.on_host() || send.bytes <= kLongestInSlab) return false;
  return word(to.member, kReads, me_).load(std::memory_order_acquire) != 0 && to.loans->has_room() && can_be_read(send);
}

// By others. The kernel reads no mapping of a device.
bool IntraMessages::can_be_read(const Buffer& memory) noexcept {
  if (domain_.offset_of(memory.data, memory.bytes)) return true;
  try {
    std::byte byte{};
    for (const std::size_t at : {std::size_t{0}, memory.bytes - 1}) {
      domain_.read_private(domain_.rank(), memory.data + at, {&byte, 1});
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool IntraMessages::wants_to_lend(Outgoing& to, const Buffer& send) noexcept {
  // A receiver that sends nothing meanwhile takes what is copied soon. One that does, leaves it for long.
  const bool both_send = from(to.member).waiting > 0;
  const auto has_place = [this, &send, both_send] {
    const std::size_t bytes = sizeof(Header) + send.bytes;
    return send.bytes <= kLongestCopied && (both_send ? memory_.has_cached_place(bytes) : memory_.has_place(bytes));
  };
  if (to.loans == std::nullopt || has_place()) return false;
  reclaim(to);
  to.loans->collect();
  if (has_place() || to.loans->reader_is_late()) return false;
  return can_lend(to, send);
}

Loans::Loan& IntraMessages::lend(Outgoing& to, const Call& call, const Buffer& send) {
  const Reduction& elements = call.reduction;
  std::byte* const place = begin_message(to, {elements.type, elements.codec, call.count, call.tag, sizeof(LoanNote)});
  auto* const header = std::launder(reinterpret_cast<Header*>(place));
  header->bytes = send.bytes;
  header->type |= kLent;
  Loans::Loan& loan = to.loans->lend(*new (place + sizeof(Header)) LoanNote, {send.data, send.bytes});
  post_message(to, place, sizeof(LoanNote));
  return loan;
}

Task<void> IntraMessages::send(Operation& op) {
  Outgoing& to = this->to(member_of(op.call.root));
  Loans::Loan* loan = nullptr;
  {
    // A copy may suspend (in the simulator), so a turn keeps the messages in the order of the calls.
    co_await TurnQueue::Await(to.turns, domain_.loop(), op.stop);
    const TurnQueue::Holder turn(to.turns);
    const Reduction& elements = op.call.reduction;
    std::byte* place = nullptr;
    if (!lends(to.member, op.send)) {
      try {
        place = begin_message(to, {elements.type, elements.codec, op.call.count, op.call.tag, op.send.bytes});
      } catch (const Error& error) {
        if (error.code() != Code::kOutOfMemory || !can_lend(to, op.send)) throw;
      }
    }
    if (place == nullptr) {
      loan = &lend(to, op.call, op.send);
    } else {
      const Buffer inside{place + sizeof(Header), op.send.bytes};
      if (op.send.bytes > 0) co_await op.team.compute.copy(inside, op.send, op.stop);
      post_message(to, place, op.send.bytes);
    }
  }
  if (loan != nullptr) co_await Loans::Await(*to.loans, *loan, op.stop);
}

// Word 0 is the number of the statement, 0 while there is none; then the sender, the count, and the type with the tag.
FlagRef IntraMessages::statement(int owner) const noexcept {
  const auto at = static_cast<std::size_t>(owner);
  return {domain_ranks_[at], lines_[at] + kTables * lines_per_table(), 0};
}

FlagRef IntraMessages::marks(int owner, int about) const noexcept {
  const FlagRef before = statement(owner);
  const std::uint32_t word = static_cast<std::uint32_t>(about) * Loans::kMarkWords;
  return {before.owner, before.line + 1 + word / kWordsPerLine, word % kWordsPerLine};
}

void IntraMessages::state_receiving(const CallSummary* call) noexcept {
  ControlLine& line = domain_.own_line(statement(me_).line);
  line.word[0].store(0, std::memory_order_relaxed);
  if (call == nullptr) return;
  const bool any = call->kind == Collective::kRecvAny;
  line.word[1].store(any ? ~std::uint64_t{0} : static_cast<std::uint64_t>(call->root), std::memory_order_release);
  line.word[2].store(call->count, std::memory_order_release);
  line.word[3].store(static_cast<std::uint64_t>(call->type) << 32 | call->tag, std::memory_order_release);
  line.word[0].store(++statements_, std::memory_order_release);
}

std::optional<CallSummary> IntraMessages::receiving_of(int rank) const noexcept {
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
