// The receiving end of IntraMessages: matching, the listeners, and the receives that wait.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/data/cpu_compute.h"
#include "base/error.h"
#include "base/prefetch.h"
#include "collectives/intra/intra_messages_now.h"

namespace aiacc {
namespace {

// The most messages of one member that have not been received.
constexpr std::uint64_t kMostPosted = std::uint64_t{1} << 28;
// A lent payload is read in such pieces by who can serve others in between.
constexpr std::size_t kReadAtOnce = 16 << 20;
// So many marks of messages (Incoming::finished) are made at once.
constexpr std::uint64_t kMoreFinished = 64;

}  // namespace

// A receive without a message, until it has one.
class IntraMessages::MatchAwait final : public Leaf, public Receiver {
 public:
  MatchAwait(IntraMessages& messages, Incoming& from, std::uint32_t tag, Stop& stop) noexcept
      : Leaf(messages.domain_.loop(), stop), Receiver(tag), messages_(messages), from_(from) {}
  Arrived await_resume() const {
    Leaf::await_resume();
    return message_;
  }
  void matched(const Arrived& message) noexcept {
    message_ = message;
    Leaf::complete();
  }

 private:
  bool try_now() override {
    if (from_.broken) std::rethrow_exception(from_.broken);
    if (messages_.take_unexpected(from_, tag(), &message_)) return true;
    messages_.listen_to(from_);
    return false;
  }
  void begin() noexcept override { messages_.wait_for(from_, *this); }
  void cancel() noexcept override { messages_.wait_no_more(from_, *this); }

  IntraMessages& messages_;
  Incoming& from_;
  Arrived message_;
};

void IntraMessages::wait_no_more(Incoming& from, Receiver& receiver) noexcept {
  from.receives.remove(receiver);
  --from.waiting;
  stop_listening_if_idle(from);
}

// Reads the messages that were posted since the last call, and gives each to the first receive that waits for its tag.
void IntraMessages::follow(Incoming& from) {
  const std::uint64_t posted = from.posted->load(std::memory_order_acquire);
  if (posted == from.seen) return;
  if (posted < from.seen || posted - from.taken > kMostPosted) {
    throw_corrupt(from.member, fmt::format("says that {} messages were sent, of which {} came", posted, from.seen));
  }
  try {
    while (from.seen < posted) accept(from);
  } catch (...) {
    tell_received();
    throw;
  }
  tell_received();
  tell_taken(from);
}

void IntraMessages::tell_received() noexcept {
  if (const std::size_t count = std::exchange(received_count_, 0); count > 0) {
    owner_->received_all({received_.data(), count});
  }
}

inline void IntraMessages::finish(Incoming& from, std::uint64_t number) noexcept {
  if (number != from.taken) {
    from.finished[number - from.taken] = 1;
    return;
  }
  do {
    ++from.taken;
    if (!from.finished.empty()) from.finished.pop_front();
  } while (!from.finished.empty() && from.finished.front() != 0);
}

// Who posted it is told soon, together with others.
inline void IntraMessages::complete(Incoming& from, Posted& receive, const Arrived& arrived,
                                    const Header& message) noexcept {
  try {
    const auto type = static_cast<DType>(receive.type_);
    if (message.fingerprint != fingerprint(type, Codec::kNone, receive.count_)) {
      throw_differs(message, receive.plain(*this).call());
    }
    copy_payload(from, arrived.offset, message, {receive.into_, std::size_t{receive.count_} * size_of(type)});
    finish(from, arrived.number);
  } catch (...) {
    tell_received();
    return owner_->received(receive, std::current_exception());
  }
  if (received_count_ == received_.size()) tell_received();
  received_[received_count_++] = &receive;
}

void IntraMessages::accept(Incoming& from) {
  std::uint64_t offset = 0;
  if (from.last_header == nullptr) {
    offset = word(from.member, kFirst, me_).load(std::memory_order_acquire) - 1;
  } else {
    const Header& last = *from.last_header;
    const std::uint64_t link = last.next.load(std::memory_order_acquire);
    offset = link != 0 ? link - 1 : from.last + aligned(sizeof(Header) + bytes_behind(last));
  }
  const Header& header = this->header(from, offset);
  prefetch(reinterpret_cast<const std::byte*>(&header) + kPrefetched);
  const std::uint32_t tag = header.tag;
  const std::uint64_t before = from.seen - from.taken;
  if (before != 0 && from.finished.size() <= before) from.finished.resize(before + kMoreFinished);
  from.last = offset;
  from.last_header = &header;
  const Arrived message{from.seen++, offset};
  Receiver* const receiver = from.receives.pop_front(tag);
  if (receiver == nullptr) {
    keep_unexpected(from, tag, message);
    if (any_source_ > 0) observer_->unexpected_message(tag);
    return;
  }
  --from.waiting;
  if (receiver->posted_) {
    complete(from, static_cast<Posted&>(*receiver), message, header);
  } else {
    static_cast<MatchAwait*>(receiver)->matched(message);
  }
}

void IntraMessages::keep_unexpected(Incoming& from, std::uint32_t tag, const Arrived& message) {
  if (free_unexpected_.empty()) {
    free_unexpected_.reserve(unexpected_.size() + 1);
    free_unexpected_.push_back(&unexpected_.emplace_back());
  }
  Unexpected& kept = *free_unexpected_.back();
  free_unexpected_.pop_back();
  kept.message = message;
  from.messages.push_back(kept, tag);
}

// The first message with this tag that no other receive has.
bool IntraMessages::take_unexpected(Incoming& from, std::uint32_t tag, Arrived* message) {
  follow(from);
  Unexpected* const first = from.messages.pop_front(tag);
  if (first == nullptr) return false;
  *message = first->message;
  free_unexpected_.push_back(first);
  return true;
}

void IntraMessages::listen_to(Incoming& from) {
  if (from.listener) return;
  from.listener.emplace(domain_.loop(), listen(from), static_cast<Root::Owner&>(*this));
  from.listener->start();
}

// It does not poll in here before the loop does: a receive that is posted with others behind it would take that time.
Task<void> IntraMessages::listen(Incoming& from) {
  for (;;) {
    if (from.waiting == 0 && any_source_ == 0) {
      from.needed.reset();
      co_await from.needed.wait(listening_);
      continue;
    }
    from.listens.emplace(listening_);
    bool arrived = true;
    try {
      co_await domain_.at_least_later(flag(from.member, kPosted, me_), from.seen + 1, *from.listens);
    } catch (...) {
      if (listening_.requested()) throw;
      arrived = false;
    }
    from.listens.reset();
    if (arrived) follow(from);
  }
}

// A loop that watches flags stays awake for them.
void IntraMessages::stop_listening_if_idle(Incoming& from) noexcept {
  if (from.waiting > 0 || any_source_ > 0 || !from.listens) return;
  from.listens->request(std::make_exception_ptr(Error(Code::kAborted, "nobody waits any more")));
}

// The member says what cannot be. Whoever waits for it hears why, and so does whoever comes later.
void IntraMessages::root_ended(Root& listener, std::exception_ptr error) noexcept {
  for (Incoming& from : in_) {
    if (!from.listener || &*from.listener != &listener) continue;
    from.broken = error;
    from.waiting = 0;
    while (Receiver* receiver = from.receives.pop_any()) {
      if (receiver->posted_) {
        owner_->received(static_cast<Posted&>(*receiver), error);
      } else {
        static_cast<MatchAwait*>(receiver)->fail(error);
      }
    }
    if (any_source_ > 0) observer_->source_failed(error);
  }
}

// Release: pairs with reclaim(). Earlier messages are not read any more. No waiter needs to be notified.
void IntraMessages::tell_taken(Incoming& from) noexcept {
  if (from.told == from.taken) return;
  from.told = from.taken;
  from.taken_here->store(from.taken, std::memory_order_release);
}

void IntraMessages::throw_differs(const Header& message, const Call& call) const {
  throw Error(
      Code::kMismatch,
      fmt::format("rank {} sent {} bytes of {} with tag {}, but rank {} expects {} bytes of {}: sizes and types of "
                  "a message agree on both ends",
                  call.root, message.bytes, name_of(static_cast<DType>(message.type & ~kLent)), message.tag,
                  ranks_[static_cast<std::size_t>(me_)], call.bytes(), name_of(call.reduction.type)),
      call.root);
}

// --- payloads -----------------------------------------------------------------------------------------------------------

inline void IntraMessages::copy_payload(Incoming& from, std::uint64_t offset, const Header& message,
                                        const Buffer& into) {
  if (into.bytes == 0) return;
  if ((message.type & kLent) != 0) [[unlikely]]
    return take_lent(from, offset, into);
  CpuCompute::copy_now(into.data, payload(from, offset, into.bytes), into.bytes);
  if (into.bytes > kLongestInSlab) copy_ahead(from.member, into.bytes);
}

[[gnu::noinline]] void IntraMessages::take_lent(Incoming& from, std::uint64_t offset, const Buffer& into) {
  const auto& note = *reinterpret_cast<const LoanNote*>(payload(from, offset, sizeof(LoanNote)));
  for (std::size_t at = 0; at < into.bytes;) at = take_piece(from, note, at, into);
  tell_read(from, note);
}

Task<void> IntraMessages::copy_payload(Operation& op, Incoming& from, std::uint64_t offset, const Header& message) {
  const auto copy = [&op](std::size_t at, const std::byte* source) {  // which is only read
    const std::size_t bytes = op.recv.bytes - at;
    return op.team.compute.copy(op.recv.slice(at, bytes), {const_cast<std::byte*>(source), bytes}, op.stop);
  };
  if ((message.type & kLent) == 0) {
    co_await copy(0, payload(from, offset, op.recv.bytes));
    if (op.recv.bytes > kLongestInSlab) copy_ahead(from.member, op.recv.bytes);
    co_return;
  }
  const auto& note = *reinterpret_cast<const LoanNote*>(payload(from, offset, sizeof(LoanNote)));
  AIACC_INVARIANT(op.recv.on_host(), "a lent payload goes into memory of the host");
  std::size_t yielded = 0;
  for (std::size_t at = 0; at < op.recv.bytes;) {
    if (still_lent(from, note) == 0) {
      co_await copy(at, copy_of_lent(from, note, at, op.recv.bytes - at));
      break;
    }
    at = take_piece(from, note, at, op.recv);
    if (at - yielded < kReadAtOnce) continue;
    co_await yield_turn(op.team.loop, op.stop);
    yielded = at;
  }
  tell_read(from, note);
}

// So many bytes, from the first.
std::uint64_t IntraMessages::still_lent(const Incoming& from, const LoanNote& note) const {
  const std::uint64_t lent = note.lent.load(std::memory_order_acquire);
  if (lent == LoanNote::kRevoked) {
    throw Error(Code::kAborted,
                fmt::format("rank {} has given up its send",
                            ranks_[static_cast<std::size_t>(from.member)]));  // the group's first error says why
  }
  return lent;
}

// Copies what follows `at`, from where it is now. Returns up to where the payload is there: `at` if it was taken back meanwhile.
std::size_t IntraMessages::take_piece(Incoming& from, const LoanNote& note, std::size_t at, const Buffer& into) {
  const std::uint64_t lent = still_lent(from, note);
  const std::size_t end = std::min(at + Loans::kPieceBytes, into.bytes);
  if (at >= lent) {
    CpuCompute::copy_now(into.data + at, copy_of_lent(from, note, at, end - at), end - at);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // as below
    still_lent(from, note);  // or all is copied; but if it was revoked, others may have written there
    from.progress_here->store(Loans::progress(note.mark, end), std::memory_order_release);  // so that it is not late
    copy_ahead(from.member, end - at);
    return end;
  }
  const std::size_t bytes = std::min<std::uint64_t>(end, lent) - at;
  read_lent(from, note, at, into.slice(at, bytes));
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with those of Loans, before the sender's stores
  if (still_lent(from, note) == 0) return at;
  from.progress_here->store(Loans::progress(note.mark, at + bytes),
                            std::memory_order_release);  // pairs with Loans::is_met()
  copy_ahead(from.member, bytes);
  return at + bytes;
}

void IntraMessages::read_lent(const Incoming& from, const LoanNote& note, std::size_t at, const Buffer& into) {
  const int owner = domain_ranks_[static_cast<std::size_t>(from.member)];
  try {
    if (note.in_slice != 0) {
      CpuCompute::copy_now(into.data, domain_.view(owner, note.place + at, into.bytes), into.bytes);
    } else {
      domain_.read_private(owner, reinterpret_cast<const std::byte*>(note.place + at), {into.data, into.bytes});
    }
  } catch (const Error&) {
    if (still_lent(from, note) > 0) throw;
  }
}

const std::byte* IntraMessages::copy_of_lent(const Incoming& from, const LoanNote& note, std::size_t at,
                                             std::size_t bytes) const {
  return domain_.view(domain_ranks_[static_cast<std::size_t>(from.member)], note.copy + at, bytes);
}

// For a rank that receives as much as it sends: both go on, and what it has copied stays in the caches.
void IntraMessages::copy_ahead(int member, std::size_t bytes) noexcept {
  std::optional<Loans>& loans = to(member).loans;
  if (!loans) return;
  loans->collect();
  for (std::size_t copied = 0; copied < bytes && loans->copy_ahead();) copied += Loans::kPieceBytes;
}

// The sender's memory is not read any more.
void IntraMessages::tell_read(Incoming& from, const LoanNote& note) {
  if (note.mark >= Loans::kMost) throw_corrupt(from.member, fmt::format("gives a message the mark {}", note.mark));
  from.progress_here->store(0, std::memory_order_relaxed);
  const FlagRef first = marks(me_, from.member);
  std::atomic<std::uint64_t>& word = domain_.own_line(first.line).word[first.word + note.mark / 64];
  word.store(word.load(std::memory_order_relaxed) ^ std::uint64_t{1} << note.mark % 64, std::memory_order_release);
  domain_.publish(from.reads_here.line, from.reads_here.word, ++from.reads);  // pairs with Loans::collect()
}

// ------------------------------------------------------------------------------------------------------------------------

Task<void> IntraMessages::recv(Operation& op) {
  Incoming& from = this->from(member_of(op.call.root));
  const Arrived arrived = co_await MatchAwait(*this, from, op.call.tag, op.stop);
  const Header& message = header(from, arrived.offset);
  const Reduction& elements = op.call.reduction;
  if (message.fingerprint != fingerprint(elements.type, elements.codec, op.call.count)) throw_differs(message, op.call);
  if (op.recv.bytes > 0) co_await copy_payload(op, from, arrived.offset, message);
  finish(from, arrived.number);
  tell_taken(from);
}

bool IntraMessages::recv_now(int member, const PlainCall& call, const Buffer& recv) noexcept {
  Incoming& from = this->from(member);
  try {
    if (from.broken) return false;
    follow(from);
    const Unexpected* const first = from.messages.first(call.tag);
    if (first == nullptr) return false;
    const Arrived arrived = first->message;
    const Header& message = header(from, arrived.offset);
    if (message.fingerprint != fingerprint(call.type, Codec::kNone, call.count)) return false;
    copy_payload(from, arrived.offset, message, recv);
    free_unexpected_.push_back(from.messages.pop_front(call.tag));
    finish(from, arrived.number);
    tell_taken(from);
    return true;
  } catch (...) {
    return false;
  }
}

// --- receives that wait without a coroutine -----------------------------------------------------------------------------

bool IntraMessages::prepare_to_post(int member, const PlainCall& call) noexcept {
  if (!may_be_posted(call)) return false;
  Incoming& from = this->from(member);
  try {
    listen_to(from);
  } catch (const std::bad_alloc&) {
    return false;
  }
  // One that is there already is given to no receive that waits: an operation takes it, or says that it differs.
  return from.broken == nullptr && from.messages.first(call.tag) == nullptr;
}

PlainCall IntraMessages::Posted::plain(const IntraMessages& messages) const noexcept {
  return {Collective::kRecv, static_cast<DType>(type_), ReduceOp::kSum, tag(), messages.ranks_[member_], count_};
}

void IntraMessages::withdraw(Posted& receive) noexcept { wait_no_more(from(receive.member_), receive); }

Buffer IntraMessages::Posted::into() const noexcept {
  return {into_, std::size_t{count_} * size_of(static_cast<DType>(type_))};
}

int IntraMessages::find_unexpected(std::uint32_t tag, int first) {
  int found = -1;
  for (Incoming& from : in_) {
    if (from.member == me_) continue;
    follow(from);
    const bool has = from.messages.first(tag) != nullptr;
    const int rank = ranks_[static_cast<std::size_t>(from.member)];
    if (has && (found < 0 || (found < first && rank >= first))) found = rank;
  }
  return found;
}

IntraMessages::AnySource::~AnySource() {
  if (--messages_.any_source_ > 0) return;
  for (Incoming& from : messages_.in_) messages_.stop_listening_if_idle(from);
}

IntraMessages::AnySource::AnySource(IntraMessages& messages, UnexpectedObserver& observer) : messages_(messages) {
  for (Incoming& from : messages_.in_) {
    if (from.member == messages_.me_) continue;
    if (from.broken) std::rethrow_exception(from.broken);
    messages_.listen_to(from);
  }
  messages_.observer_ = &observer;
  if (messages_.any_source_++ > 0) return;
  for (Incoming& from : messages_.in_) from.needed.set();
}

}  // namespace aiacc
