// EndedHandles: handles of requests whose calls ended well while they were submitted. There is nothing to be kept of such a call but
// its number in its group: a word, in place of an object in a table (HandleTable).
//
// Words are in blocks, of which a thread has one for itself: it names calls there in turn and leaves out words that are in use. A handle
// is kind (8 bits), turn (36) and place (20); its word has the lower 20 bits of the turn and the call's number, 0: none. Turns are counted
// for all blocks, so a handle that was taken stays unknown for some 2^28 calls.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <new>

#include "runtime/handles.h"

namespace aiacc {

class EndedHandles {
  using Word = std::atomic<std::uint64_t>;

 public:
  // What a thread has.
  class Block {
   public:
    constexpr Block() = default;
    bool owned() const noexcept { return words_ != nullptr; }

   private:
    friend class EndedHandles;
    Word* words_ = nullptr;
    std::uint32_t number_ = 0;
    std::uint32_t next_ = kWords;
    std::uint32_t in_use_ = 0;  // words that were in use in this turn
    std::uint64_t turn_ = 0;
  };

  EndedHandles() = default;
  ~EndedHandles() {
    for (auto& block : blocks_) delete[] block.load(std::memory_order_relaxed);
  }
  EndedHandles(const EndedHandles&) = delete;
  EndedHandles& operator=(const EndedHandles&) = delete;

  // Whether the thread, whose block this is, can name a call now, as nearly always.
  static bool prepared(const Block& mine) noexcept {
    return mine.next_ < kWords && mine.words_[mine.next_].load(std::memory_order_relaxed) == 0;
  }
  // Sees to that. False: too many requests are not freed.
  bool prepare(Block& mine) noexcept {
    for (; mine.next_ < kWords; ++mine.next_, ++mine.in_use_) {
      if (mine.words_[mine.next_].load(std::memory_order_relaxed) == 0) return true;
    }
    return begin_turn(mine);
  }
  // After prepared() or prepare(): `sequence` is the call's number, at least 1.
  std::uint64_t name(Block& mine, std::uint64_t sequence) noexcept {
    const std::uint64_t number = mine.turn_ << kPlaceBits | (mine.number_ * kWords + mine.next_);
    mine.words_[mine.next_++].store(turn_of(number) << kSequenceBits | (sequence & kSequences),
                                    std::memory_order_release);
    return std::uint64_t{static_cast<std::uint8_t>(HandleKind::kEndedRequest)} << 56 | (number & kNumbers);
  }
  // The thread ends.
  void give_back(Block& mine) noexcept {
    if (mine.words_ != nullptr) owned_[mine.number_].store(false, std::memory_order_release);
    mine = Block();
  }

  // The number of the call; 0 if there is no such handle, or no more.
  std::uint64_t find(std::uint64_t handle) noexcept {
    Word* const its = word_of(handle);
    return its == nullptr ? 0 : said(its->load(std::memory_order_acquire), handle) & kSequences;
  }
  // True for exactly one of several callers: the handle is unknown then.
  bool take(std::uint64_t handle) noexcept {
    Word* const its = word_of(handle);
    if (its == nullptr) return false;
    std::uint64_t word = said(its->load(std::memory_order_acquire), handle);
    return word != 0 && its->compare_exchange_strong(word, 0, std::memory_order_acq_rel);
  }

  // In a forked child: every handle becomes unknown.
  void forget_all() noexcept {
    for (auto& block : blocks_) {
      Word* const words = block.load(std::memory_order_relaxed);
      for (std::uint32_t i = 0; words != nullptr && i < kWords; ++i) words[i].store(0, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr int kPlaceBits = 20;
  static constexpr std::uint32_t kWords = 256;  // of a block
  static constexpr std::uint32_t kBlocks = (1u << kPlaceBits) / kWords;
  static constexpr std::uint32_t kMostInUse = kWords / 4;  // a block that had more is left
  static constexpr int kSequenceBits = 44;                 // of a group's messages: more than are sent in a month
  static constexpr std::uint64_t kSequences = (std::uint64_t{1} << kSequenceBits) - 1;
  static constexpr std::uint64_t kNumbers = (std::uint64_t{1} << 56) - 1;

  static std::uint64_t turn_of(std::uint64_t handle) noexcept {
    return (handle & kNumbers) >> kPlaceBits & ((std::uint64_t{1} << (64 - kSequenceBits)) - 1);
  }
  // The word, if it is this handle's.
  static std::uint64_t said(std::uint64_t word, std::uint64_t handle) noexcept {
    return word >> kSequenceBits == turn_of(handle) ? word : 0;
  }
  Word* word_of(std::uint64_t handle) noexcept {
    if (!is_kind(handle, HandleKind::kEndedRequest)) return nullptr;
    const std::uint64_t place = handle & ((std::uint64_t{1} << kPlaceBits) - 1);
    Word* const block = blocks_[place / kWords].load(std::memory_order_acquire);
    return block == nullptr ? nullptr : block + place % kWords;
  }
  // The next one in the same block or, if that was too full, in another. It looks at a few of these.
  bool begin_turn(Block& mine) noexcept {
    constexpr int kMostBlocks = 64;
    for (int tries = 0; tries < kMostBlocks; ++tries) {
      if ((mine.words_ == nullptr || mine.in_use_ > kMostInUse) && !take_block(mine)) return false;
      mine.turn_ = turns_.fetch_add(1, std::memory_order_relaxed);
      for (mine.next_ = mine.in_use_ = 0; mine.next_ < kWords; ++mine.next_, ++mine.in_use_) {
        if (mine.words_[mine.next_].load(std::memory_order_relaxed) == 0) return true;
      }
    }
    return false;
  }
  bool take_block(Block& mine) noexcept {
    give_back(mine);
    for (std::uint32_t tries = 0; tries < kBlocks; ++tries) {
      const std::uint32_t number = looked_at_.fetch_add(1, std::memory_order_relaxed) % kBlocks;
      // Acquires what another thread stored there.
      if (owned_[number].exchange(true, std::memory_order_acquire)) continue;
      Word* words = blocks_[number].load(std::memory_order_relaxed);
      if (words == nullptr) words = new (std::nothrow) Word[kWords]();
      if (words == nullptr) {
        owned_[number].store(false, std::memory_order_release);
        return false;
      }
      blocks_[number].store(words, std::memory_order_release);
      mine.words_ = words;
      mine.number_ = number;
      return true;
    }
    return false;
  }

  std::atomic<std::uint64_t> turns_{1};
  std::atomic<std::uint32_t> looked_at_{0};
  std::array<std::atomic<bool>, kBlocks> owned_{};
  std::array<std::atomic<Word*>, kBlocks> blocks_{};
};

}  // namespace aiacc
