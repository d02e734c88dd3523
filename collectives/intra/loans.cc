#include "collectives/intra/loans.h"

#include <algorithm>
#include <utility>

#include "base/data/cpu_compute.h"
#include "base/error.h"

namespace aiacc {

Loans::Loans(HostDomain& domain, MessageMemory& memory, const Receiver& receiver, const Program* program) noexcept
    : domain_(domain), memory_(memory), receiver_(receiver), program_(program), needed_(domain.loop()) {}

Loans::~Loans() {
  stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the group is gone")));
  for (Loan& loan : loans_) {
    if (domain_.leaving(domain_.rank())) break;  // as in ~IntraMessages
    release_copy(loan);
  }
}

bool Loans::has_room() noexcept {
  if (free_.empty() && loans_.size() == kMost) collect();
  return !free_.empty() || loans_.size() < kMost;
}

Loans::Loan& Loans::lend(LoanNote& note, std::span<const std::byte> payload) {
  if (!watcher_) {
    seen_ = count_of_reads();
    watcher_.emplace(domain_.loop(), watch(), static_cast<Root::Owner&>(*this));
    watcher_->start();
  }
  if (free_.empty()) {
    free_.reserve(loans_.size() + 1);
    const auto mark = static_cast<std::uint32_t>(loans_.size());
    loans_.emplace_back().mark = mark;
    free_.push_back(mark);
  }
  Loan& loan = loans_[free_.back()];
  free_.pop_back();
  loan.note = &note;
  loan.payload = payload;
  loan.lent = payload.size();
  loan.limit = {};
  note.lent.store(loan.lent, std::memory_order_relaxed);
  note.mark = loan.mark;
  if (const auto offset = domain_.offset_of(payload.data(), payload.size())) {
    note.place = *offset;
    note.in_slice = 1;
  } else {
    note.place = reinterpret_cast<std::uintptr_t>(payload.data());
  }
  lent_.push_back(loan);
  return loan;
}

// --- waiting ------------------------------------------------------------------------------------------------------------

Loans::Await::Await(Loans& loans, Loan& loan, Stop& stop) noexcept
    : Leaf(loans.domain_.loop(), stop), loans_(loans), loan_(&loan) {
  loan.waiter = this;
  if (loans.waiting_++ > 0) return;
  loans.needed_.set();
  loans.progress_before_ = loans.present_progress();
  loop().arm(loans.patience_, after(loop().now(), loans.patience()));
}

Loans::Await::~Await() {
  if (loan_ != nullptr) loans_.revoke(*loan_);
}

void Loans::Await::cancel() noexcept { loans_.revoke(*std::exchange(loan_, nullptr)); }

Task<void> Loans::watch() {
  for (;;) {
    collect();
    if (waiting_ == 0) {
      needed_.reset();
      co_await needed_.wait(stop_);
      continue;
    }
    if (copy_ahead()) {
      co_await yield_turn(domain_.loop(), stop_);
      continue;
    }
    watches_.emplace(stop_);
    try {
      co_await domain_.at_least_later(receiver_.reads, seen_ + 1, *watches_);
    } catch (...) {
      if (stop_.requested()) throw;
    }
    watches_.reset();
  }
}

std::uint64_t Loans::count_of_reads() const noexcept {
  const FlagRef at = receiver_.reads;
  return domain_.line(at.owner, at.line).word[at.word].load(std::memory_order_acquire);
}

// Of each message that was read the send is complete, and a copy is not needed any more.
void Loans::collect() noexcept {
  const std::uint64_t reads = count_of_reads();
  if (reads == seen_) return;
  seen_ = reads;
  lent_.for_each([this](Loan& loan) {
    const std::uint64_t marks = receiver_.marks[loan.mark / 64].load(std::memory_order_acquire);
    const bool inverted = (marks >> loan.mark % 64 & 1) != 0;
    if (inverted == loan.inverted) return;
    loan.inverted = inverted;
    loan.unlink();
    if (loan.waiter != nullptr) complete(loan);
    release_copy(loan);
    free_.push_back(loan.mark);
  });
}

void Loans::complete(Loan& loan) noexcept {
  Await& waiter = *std::exchange(loan.waiter, nullptr);
  waiter.loan_ = nullptr;
  waiter.complete();
  waits_no_more();
}

// If the message was read, its header may be gone. Else its mark is not used again: it may be read now.
void Loans::revoke(Loan& loan) noexcept {
  loan.waiter = nullptr;
  waits_no_more();
  collect();
  if (!loan.linked()) return;
  loan.note->lent.store(LoanNote::kRevoked, std::memory_order_relaxed);
  std::atomic_thread_fence(
      std::memory_order_seq_cst);  // the caller's stores come after it, and those of who gets the copy's memory
  loan.unlink();
  release_copy(loan);
}

// A loop that watches flags stays awake for them.
void Loans::waits_no_more() noexcept {
  if (--waiting_ > 0) return;
  patience_.disarm();
  if (watches_) watches_->request(std::make_exception_ptr(Error(Code::kAborted, "nobody waits any more")));
}

// --- copies -------------------------------------------------------------------------------------------------------------

bool Loans::copy_ahead() noexcept {
  Loan* next = lent_.first();
  while (next != nullptr && (next->waiter == nullptr || is_met(*next))) next = lent_.after(*next);
  if (next == nullptr) return false;
  if (next->copy.bytes == 0 && (!may_begin_copy(*next) || !begin_copy(*next))) return false;
  copy_piece(*next, kPieceBytes);
  return true;
}

// The receiver reads the last bytes that are lent, or has all.
bool Loans::is_met(const Loan& loan) const noexcept {
  const std::uint64_t progress = receiver_.progress.load(std::memory_order_acquire);
  return progress >> kMarkShift == loan.mark + 1 && progress + kPieceBytes >= this->progress(loan.mark, loan.lent);
}

bool Loans::may_begin_copy(const Loan& loan) const noexcept {
  const std::size_t bytes = loan.payload.size();
  return memory_.has_place(bytes) && (copies_ < kLeastAhead || copied_bytes_ + bytes <= kMostAhead);
}

// False: there is no memory, and it stays lent.
bool Loans::begin_copy(Loan& loan) noexcept {
  try {
    loan.copy = memory_.acquire(loan.payload.size());
  } catch (...) {
    return false;
  }
  loan.note->copy = loan.copy.offset;
  ++copies_;
  copied_bytes_ += loan.copy.bytes;
  return true;
}

void Loans::copy_piece(Loan& loan, std::size_t bytes) noexcept {
  bytes = std::min<std::size_t>(bytes, loan.lent);
  loan.lent -= bytes;
  CpuCompute::copy_now(memory_.view(loan.copy) + loan.lent, loan.payload.data() + loan.lent, bytes);
  loan.note->lent.store(loan.lent, std::memory_order_release);
  if (loan.lent > 0) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the caller's stores come after it
  complete(loan);
}

bool Loans::copy_whole(Loan& loan) noexcept {
  if (loan.copy.bytes == 0 && !begin_copy(loan)) return false;
  copy_piece(loan, loan.lent);
  return true;
}

void Loans::release_copy(Loan& loan) noexcept {
  if (loan.copy.bytes == 0) return;
  --copies_;
  copied_bytes_ -= loan.copy.bytes;
  memory_.release(std::exchange(loan.copy, {}));
}

// --- impatience ---------------------------------------------------------------------------------------------------------

// For which a send waits.
Loans::Loan* Loans::oldest() noexcept {
  Loan* loan = lent_.first();
  while (loan != nullptr && loan->waiter == nullptr) loan = lent_.after(*loan);
  return loan;
}

// Of reads, and within one.
std::uint64_t Loans::present_progress() const noexcept {
  return seen_ + receiver_.progress.load(std::memory_order_relaxed);
}

// A receiver that reads the oldest is not late: with 1 GB/s.
Duration Loans::most_patience(const Loan& loan) const noexcept {
  return kPatience + std::chrono::nanoseconds(loan.payload.size());
}

Duration Loans::patience() noexcept {
  const Loan* const loan = oldest();
  if (loan == nullptr) return kPatience;
  const bool has_place = loan->copy.bytes > 0 || memory_.has_place(loan->payload.size());
  return has_place && program_waits() ? kPatienceWithPlace : most_patience(*loan);
}

bool Loans::program_waits() const noexcept { return program_ == nullptr || program_->waits(); }

void Loans::impatient() noexcept {
  collect();
  if (waiting_ == 0) return;
  Loop& loop = domain_.loop();
  Loan& loan = *oldest();
  Duration next = patience();
  if (is_late(loan)) {
    const bool copied = copy_whole(loan);
    if (copied) late_at_ = seen_;
    const Loan* const then = oldest();
    if (then == nullptr) return;
    next = copied && memory_.has_place(then->payload.size()) ? Duration::zero() : most_patience(*then);
  }
  progress_before_ = present_progress();
  loop.arm(patience_, after(loop.now(), next));
}

bool Loans::is_late(Loan& oldest) noexcept {
  constexpr int kMostPatiences = 10;
  const Instant now = domain_.loop().now();
  if (oldest.limit == Instant{}) oldest.limit = after(now, kMostPatiences * most_patience(oldest));
  if (now >= oldest.limit) return true;
  return present_progress() == progress_before_ && program_waits();
}

}  // namespace aiacc
