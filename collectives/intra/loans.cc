#include "collectives/intra/loans.h"

#include <algorithm>
#include <utility>

#include "base/data/cpu_compute.h"
#include "base/error.h"

namespace aiacc {

Loans::Loans(HostDomain& domain, MessageMemory& memory, FlagRef reads,
             std::span<const std::atomic<std::uint64_t>> marks, const Program* program) noexcept
    : domain_(domain), memory_(memory), reads_(reads), marks_(marks), program_(program), needed_(domain.loop()) {}

Loans::~Loans() {
  stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the group is gone")));
  for (const Loan& loan : loans_) {
    if (domain_.leaving(domain_.rank())) break;  // as in ~IntraMessages
    if (loan.copy.bytes > 0) memory_.release(loan.copy);
  }
}

bool Loans::has_room() noexcept {
  if (free_.empty() && loans_.size() == kMost) collect();
  return !free_.empty() || loans_.size() < kMost;
}

Loans::Loan& Loans::lend(LoanNote& note, std::span<const std::byte> payload) {
  if (!watcher_) {
    seen_ = domain_.line(reads_.owner, reads_.line).word[reads_.word].load(std::memory_order_acquire);
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
  loan.patiences = 0;
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
  loans.seen_before_ = loans.seen_;
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
    watches_.emplace(stop_);
    try {
      co_await domain_.at_least_later(reads_, seen_ + 1, *watches_);
    } catch (...) {
      if (stop_.requested()) throw;
    }
    watches_.reset();
  }
}

// Of each message that was read the send is complete, and a copy is not needed any more.
void Loans::collect() noexcept {
  const std::uint64_t reads = domain_.line(reads_.owner, reads_.line).word[reads_.word].load(std::memory_order_acquire);
  if (reads == seen_) return;
  seen_ = reads;
  lent_.for_each([this](Loan& loan) {
    const std::uint64_t marks = marks_[loan.mark / 64].load(std::memory_order_acquire);
    const bool inverted = (marks >> loan.mark % 64 & 1) != 0;
    if (inverted == loan.inverted) return;
    loan.inverted = inverted;
    loan.unlink();
    if (loan.waiter != nullptr) complete(loan);
    if (loan.copy.bytes > 0) memory_.release(std::exchange(loan.copy, {}));
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
  loan.note->copy.store(LoanNote::kRevoked, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the caller's stores come after it
  loan.unlink();
}

// A loop that watches flags stays awake for them.
void Loans::waits_no_more() noexcept {
  if (--waiting_ > 0) return;
  patience_.disarm();
  if (watches_) watches_->request(std::make_exception_ptr(Error(Code::kAborted, "nobody waits any more")));
}

// --- impatience ---------------------------------------------------------------------------------------------------------

// For which a send waits.
Loans::Loan* Loans::oldest() noexcept {
  Loan* oldest = nullptr;
  lent_.for_each([&oldest](Loan& loan) {
    if (oldest == nullptr && loan.waiter != nullptr) oldest = &loan;
  });
  return oldest;
}

// A receiver that reads the oldest is not late: with 1 GB/s.
Duration Loans::patience() noexcept {
  const Loan* const loan = oldest();
  return kPatience + std::chrono::nanoseconds(loan == nullptr ? 0 : loan->payload.size());
}

void Loans::impatient() noexcept {
  collect();
  if (waiting_ == 0) return;
  const bool copied = is_late() && copy_oldest();
  if (waiting_ == 0) return;
  seen_before_ = seen_;
  Loop& loop = domain_.loop();
  loop.arm(patience_, copied ? loop.now() : after(loop.now(), patience()));
}

bool Loans::is_late() noexcept {
  constexpr int kMostPatiences = 10;
  if (++oldest()->patiences >= kMostPatiences) return true;
  return seen_ == seen_before_ && (program_ == nullptr || program_->waits());
}

bool Loans::copy_oldest() noexcept {
  Loan& loan = *oldest();
  try {
    loan.copy = memory_.acquire(loan.payload.size());
  } catch (...) {
    return false;  // then it stays lent
  }
  CpuCompute::copy_now(memory_.view(loan.copy), loan.payload.data(), loan.payload.size());
  loan.note->copy.store(loan.copy.offset + 1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the caller's stores come after it
  late_at_ = seen_;
  complete(loan);
  return true;
}

}  // namespace aiacc
