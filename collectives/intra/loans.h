// Loans: long messages to one member whose payload stays in the memory of the sender's program until the receiver has copied it
// from there: with process_vm_readv, or directly if it is memory that the ranks of the host share. One copy in place of two, and
// no memory of its own.
//
// The message is a header with a LoanNote. The receiver copies the payload when it has a receive for it, piece by piece from its
// beginning, and looks after each piece whether the note still says that it is lent: what it has read counts only then. At the end it
// inverts the message's mark, a bit of its own control lines, and publishes how many it has read; by that the sender knows that its
// send is complete. So no member stores into another's memory.
//
// Meanwhile the sender, while it drives its loop or receives, copies the same payload to shared memory, piece by piece from its end. The
// receiver takes from there what is copied, in a third of the time that the kernel needs. So both ends are done where they meet:
//
//     lent      |--- read in the sender's memory --->        <--- copied by the sender ---|
//               0                           progress        LoanNote::lent             bytes
//
// With several messages the sender copies those that the receiver comes to next. It is ahead by few bytes only: they are in the caches
// then, where both copies take less time than one in memory does (docs/performance.md).
//
// So the sender may end a loan at any time. If all of it is copied, the send is complete without the receiver; or it revokes the loan,
// when its operation ends with an error. In both cases the note is written before the program may use its memory again, and the
// receiver reads the note after it has read the payload.
//
// A sender copies the oldest, also beyond what it may be ahead, when the receiver has made no progress for kPatience (or for
// kPatienceWithPlace, as long as there is memory that is kept anyway) and the sender's program waits, and at the latest after ten times
// kPatience, also while the receiver reads others. So a send completes without a receive, as one that is copied at once does, as long as
// there is memory. After that nothing is lent to the receiver until it has read one again.
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
  // So many bytes from the payload's beginning; the others are in the copy. Or kRevoked.
  std::atomic<std::uint64_t> lent{0};
  // The offset in the sender's slice of what will be a copy of all; written before `lent` falls.
  std::uint64_t copy = 0;
  std::uint64_t place = 0;  // an address of the sender's process, or an offset in its slice
  std::uint32_t mark = 0;
  std::uint32_t in_slice = 0;
};

class Loans final : private Root::Owner {
 public:
  struct Loan;
  static constexpr std::uint32_t kMarkWords = 4;
  static constexpr std::uint32_t kMost = 64 * kMarkWords;  // at a time
  static constexpr Duration kPatience = std::chrono::milliseconds(10);
  static constexpr Duration kPatienceWithPlace = std::chrono::microseconds(250);
  // Both ends copy so much at a time.
  static constexpr std::size_t kPieceBytes = 64 << 10;
  // By so much the sender is ahead; two messages in any case, so that it copies one while the receiver takes the other.
  static constexpr std::size_t kMostAhead = 2 << 20;
  static constexpr std::size_t kLeastAhead = 2;  // messages

  // What the receiver says while it reads one: its mark plus 1, and how many bytes it has read. 0: none.
  static constexpr int kMarkShift = 48;
  static constexpr std::uint64_t progress(std::uint32_t mark, std::size_t bytes) noexcept {
    return std::uint64_t{mark + 1} << kMarkShift | bytes;
  }

  // Who knows whether this rank's program waits for its operations.
  class Program {
   public:
    virtual bool waits() const noexcept = 0;

   protected:
    ~Program() = default;
  };

  // What the receiver says: its count of messages that it has read, its marks, and its progress() in the one that it reads.
  struct Receiver {
    FlagRef reads;
    std::span<const std::atomic<std::uint64_t>> marks;
    const std::atomic<std::uint64_t>& progress;
  };
  Loans(HostDomain& domain, MessageMemory& memory, const Receiver& receiver, const Program* program) noexcept;
  ~Loans();
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  bool has_room() noexcept;
  // The receiver has read nothing since a loan ended by a copy, as far as collect() has seen.
  bool reader_is_late() const noexcept { return late_at_ == seen_; }
  // Releases what is not needed any more.
  void collect() noexcept;
  // Copies the next piece of what the receiver will come to. False: there is none, or the sender is ahead enough.
  bool copy_ahead() noexcept;
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
  bool is_late(Loan& oldest) noexcept;
  void waits_no_more() noexcept;
  bool is_met(const Loan& loan) const noexcept;
  bool may_begin_copy(const Loan& loan) const noexcept;
  bool begin_copy(Loan& loan) noexcept;
  void copy_piece(Loan& loan, std::size_t bytes) noexcept;
  bool copy_whole(Loan& loan) noexcept;
  void release_copy(Loan& loan) noexcept;
  void complete(Loan& loan) noexcept;
  void revoke(Loan& loan) noexcept;
  Loan* oldest() noexcept;
  bool program_waits() const noexcept;
  Duration patience() noexcept;
  Duration most_patience(const Loan& loan) const noexcept;
  std::uint64_t count_of_reads() const noexcept;
  std::uint64_t present_progress() const noexcept;

  HostDomain& domain_;
  MessageMemory& memory_;
  Receiver receiver_;
  const Program* program_;
  std::uint64_t seen_ = 0;                     // the last count of reads
  std::uint64_t progress_before_ = 0;          // when the patience began
  std::uint64_t late_at_ = ~std::uint64_t{0};  // what the count was when a loan was copied last for impatience
  std::deque<Loan> loans_;                     // by mark
  std::vector<std::uint32_t> free_;
  IntrusiveList<Loan> lent_;        // the oldest first
  std::size_t waiting_ = 0;         // of them
  std::size_t copies_ = 0;          // of them
  std::uint64_t copied_bytes_ = 0;  // what these copies take
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
  std::uint64_t lent = 0;   // as in the note
  HostRange copy;           // if it has been begun
  Instant limit{};          // of the patience, once it was the oldest at the end of one
  Await* waiter = nullptr;  // null: the send is complete
};

}  // namespace aiacc
