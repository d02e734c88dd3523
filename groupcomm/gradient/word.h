// Word: what one rank contributes to a round of the negotiation, and what all ranks have after it.
//
// A round merges the words of all ranks by operations that are commutative, associative and idempotent, so a word may be
// merged more than once and in any order: dissemination works for any number of ranks. Three kinds of fields:
//
//   AND  one bit for each tensor (ready on this rank), and the flags of Word::All: true when they hold on every rank;
//   OR   the flags of Word::Any: true when they hold on some rank;
//   MAX  the numbers of Word::Field; a minimum is the MAX of a complement (kMinimumOf below).
//
// All words of a round have the same number of tensors, because indices are agreed before they are used (tensor_table.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace aiacc::gradient {

class Word {
 public:
  // AND flags.
  enum All : std::uint32_t {
    kAllFlushed = 1U << 0,  // this rank has flushed the step that is being agreed
    kAllJoined = 1U << 1,   // this rank is out of data and has nothing outstanding
    kAllAtEnd = 1U << 2,    // this rank has submitted nothing since its last flush
  };
  // OR flags.
  enum Any : std::uint32_t {
    kNewNames = 1U << 0,  // this rank has tensors without an agreed index: an exchange follows the round
    kStalled = 1U << 1,   // this rank waits too long: an exchange of who lacks what follows the round
    kBreak = 1U << 2,     // this rank runs the recorded schedule and stops it, or is asked to
    kDeparted = 1U << 3,  // with kBreak: this rank departs from the schedule (re-arming is put off)
    kUrged = 1U << 4,     // the caller waits for one tensor while others of the step are still to come
    kWaiting = 1U << 5,   // the caller flushed or waits, and something of it is not launched
    kSettling = 1U << 6,  // the round says who contributed zeros to the launches of a cut
    kJoining = 1U << 7,   // this rank is out of data
  };
  // MAX numbers. 0 is "none".
  enum Field : std::uint8_t {
    kLaunched,       // launches of the recorded schedule in this epoch
    kLaunchedLeast,  // its complement: all ranks have launched at least minimum_of(value)
    kLog,            // 32-bit hash of all that was launched and agreed so far ...
    kLogComplement,  // ... and its complement: ranks agree if the two maxima are complements of each other
    kJoinedLast,     // (number of the round, rank + 1) at which this rank first said kJoining
    kAwaited,        // rank + 1 of a rank that has not flushed
    kNonFinite,      // (rank + 1, tensor + 1): a gradient of this rank is not finite
    kLeaving,        // rank + 1: this rank leaves, and negotiates no more
    kPending,        // tensors that this rank has submitted and that are not launched
    kCommitted,      // launches that this rank has begun, or may begin before the round's result (waiting_launches.h)
    kFields,
  };

  // The neutral element of merge: all bits, no flags, no numbers. Keeps its storage.
  void reset_to_neutral(std::size_t tensors);
  // A contribution without any ready tensor.
  void reset_to_empty(std::size_t tensors);

  std::size_t tensors() const noexcept { return tensors_; }
  bool ready(std::size_t tensor) const noexcept { return (bits_[tensor / 64] >> (tensor % 64) & 1) != 0; }
  void set_ready(std::size_t tensor) noexcept { bits_[tensor / 64] |= std::uint64_t{1} << (tensor % 64); }
  void clear_ready(std::size_t tensor) noexcept { bits_[tensor / 64] &= ~(std::uint64_t{1} << (tensor % 64)); }
  void set_all_ready() noexcept;
  // 64 tensors each; bits past the last tensor are 0.
  std::span<const std::uint64_t> bits() const noexcept { return bits_; }

  bool all(All flag) const noexcept { return (all_ & flag) != 0; }
  void set_all(All flag) noexcept { all_ |= flag; }
  bool any(Any flag) const noexcept { return (any_ & flag) != 0; }
  void set_any(Any flag) noexcept { any_ |= flag; }

  std::uint64_t number(Field field) const noexcept { return numbers_[field]; }
  void set_number(Field field, std::uint64_t value) noexcept { numbers_[field] = value; }
  // For numbers below 2^48: a MAX of complements is the complement of the minimum.
  static constexpr std::uint64_t complement(std::uint64_t value) noexcept { return (std::uint64_t{1} << 48) - value; }
  static constexpr std::uint64_t minimum_of(std::uint64_t merged) noexcept { return complement(merged); }
  // Two numbers, the first decides: rank and tensor, round and rank.
  static constexpr std::uint64_t pair(std::uint64_t first, std::uint32_t second) noexcept {
    return first << 32 | second;
  }

  // Throws kProtocol if `other` is of another number of tensors.
  void merge(const Word& other);

  // Little-endian, numbers as LEB128: all, any, a bit mask of the numbers that are not 0 and these numbers, the number of
  // tensors, and one bit for each tensor in whole bytes. 161 tensors take about 40 bytes.
  std::size_t most_encoded() const noexcept;  // bytes that encode() may need
  std::size_t encode(std::span<std::byte> out) const;
  // Takes bytes that are not trusted: kProtocol with a sentence if they are not one whole word. Keeps its storage.
  void decode(std::span<const std::byte> bytes);

  bool operator==(const Word&) const = default;

 private:
  void resize(std::size_t tensors, std::uint64_t fill);

  std::size_t tensors_ = 0;
  std::uint32_t all_ = 0;
  std::uint32_t any_ = 0;
  std::array<std::uint64_t, kFields> numbers_{};
  std::vector<std::uint64_t> bits_;
};

}  // namespace aiacc::gradient
