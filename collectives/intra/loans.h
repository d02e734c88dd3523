// Loans: long messages to one member whose payload stays in the memory of the sender's program until the receiver has copied it
// from there: with process_vm_readv, or directly if it is memory that the ranks of the host share. One copy in place of two, and
// no memory of its own.
//
// The message is a header with a LoanNote. The receiver copies the payload when it has a receive for it, and then looks whether
// the note still says that it is lent: what it has read counts only then. It inverts the message's mark, a bit of its own control
// lines, and publishes how many it has read; by that the sender knows that its send is complete. So no member stores into
// another's memory.
//
// The sender may end a loan at any time. It copies the payload to shared memory and says where, which completes the send without
// the receiver; or it revokes the loan, when its operation ends with an error. In both cases the note is written before the
// program may use its memory again, and the receiver reads the note after it has read the payload.
//
// A sender copies the oldest when the receiver has read nothing for kPatience and the sender's program waits, and at the latest
// after ten times as long, also while the receiver reads others. So a send completes without a receive, as one that is copied at once
// does, as long as there is memory. After that nothing is lent to the receiver until it has read one again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/intrusive_list.h"
#include "base/task/scope.h"
#include "collectives/intra/message_memory.h"
#include "transports/host/host_domain.h"

namespace aiacc {

// Behind the header of a message that is lent. Written by the sender.
struct LoanNote {
  static constexpr std::uint64_t kRevoked = ~std::uint64_t{0};
  std::atomic<std::uint64_t> copy{0};  // offset plus 1 of a copy in the sender's slice; 0 while it is lent; or kRevoked
  std::uint64_t place = 0;             // an address of the sender's process, or an offset in its slice
  std::uint32_t mark = 0;
  std::uint32_t in_slice = 0;
};

class Loans final : private Root::Owner {
 public:
  struct Loan;
  static constexpr std::uint32_t kMarkWords = 4;
  static constexpr std::uint32_t kMost = 64 * kMarkWords;  // at a time
  static constexpr Duration kPatience = std::chrono::milliseconds(10);

  // Who knows whether this rank's program waits for its operations.
  class Program {
   public:
    virtual bool waits() const noexcept = 0;

   protected:
    ~Program() = default;
  };

  // `reads` is the receiver's count of messages that it has read, and `marks` are its marks.
  Loans(HostDomain& domain, MessageMemory& memory, FlagRef reads, std::span<const std::atomic<std::uint64_t>> marks,
        const Program* program) noexcept;
  ~Loans();
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  bool has_room() noexcept;
  // The receiver has read nothing since a loan ended by a copy, as far as collect() has seen.
  bool reader_is_late() const noexcept { return late_at_ == seen_; }
  // Releases what is not needed any more.
  void collect() noexcept;
  // Lends `payload` to the message with this note; which is published then, and awaited (Await).
  Loan& lend(LoanNote& note, std::span<const std::byte> payload);

  // co_await Loans::Await(loans, loan, stop): until the payload is not needed any more. A stop, and an await that never begins,
  // revoke the loan.
  class Await final : public Leaf {
   public:
    Await(Loans& loans, Loan& loan, Stop& stop) noexcept;
    ~Await();

   private:
    friend class Loans;
    void begin() noexcept override {}
    void cancel() noexcept override;
    Loans& loans_;
    Loan* loan_;  // null: it has ended
  };

 private:
  struct Patience final : Timer {
    explicit Patience(Loans& its) noexcept : loans(its) {}
    void expired() noexcept override { loans.impatient(); }
    Loans& loans;
  };

  void root_ended(Root&, std::exception_ptr) noexcept override {}
  Task<void> watch();
  void impatient() noexcept;
  bool is_late() noexcept;
  void waits_no_more() noexcept;
  bool copy_oldest() noexcept;
  void complete(Loan& loan) noexcept;
  void revoke(Loan& loan) noexcept;
  Loan* oldest() noexcept;
  Duration patience() noexcept;

  HostDomain& domain_;
  MessageMemory& memory_;
  FlagRef reads_;
  std::span<const std::atomic<std::uint64_t>> marks_;
  const Program* program_;
  std::uint64_t seen_ = 0;                     // the last count of reads
  std::uint64_t seen_before_ = 0;              // when the patience began
  std::uint64_t late_at_ = ~std::uint64_t{0};  // what it was when a loan was copied last
  std::deque<Loan> loans_;                     // by mark
  std::vector<std::uint32_t> free_;
  IntrusiveList<Loan> lent_;  // the oldest first
  std::size_t waiting_ = 0;   // of them
  Patience patience_{*this};
  Event needed_;
  Stop stop_;
  std::optional<Stop> watches_;  // while the counter is watched
  std::optional<Root> watcher_;
};

struct Loans::Loan : ListNode<Loan> {
  LoanNote* note = nullptr;
  std::span<const std::byte> payload;
  std::uint32_t mark = 0;
  bool inverted = false;    // the mark, so far
  int patiences = 0;        // that have ended while it was the oldest
  HostRange copy;           // if it has been made
  Await* waiter = nullptr;  // null: the send is complete
};

}  // namespace aiacc
