// ServiceMemory: the memory of one rank's service messages, kept for the next ones. The C library gives blocks of some hundred KiB back
// to the kernel when they are freed, and each message of a long value would fault its pages in again: 128 faults for 512 KiB.
//
// Sizes from kSmallest to kLargest are kept, in classes that are rounded up to one of four in each power of two (scratch_class), at most
// kKeptBytes in all. Smaller blocks stay with malloc, which keeps them itself, and longer ones too, of which services have none with
// their usual credit. What nobody has needed from one trim() to the next is given back to the system, so after a burst memory is kept
// for one or two periods of trim() and no longer. A cache that is full gives such blocks back in favour of others.
//
// Blocks are taken and given back by any thread, and may be given back after this object was destroyed: then they are freed. Content is
// whatever was there. The address sanitizer knows that kept blocks are nobody's.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace aiacc {

class ServiceMemory {
  class Kept;

 public:
  static constexpr std::size_t kSmallest = 32 << 10;
  static constexpr std::size_t kLargest = 4 << 20;
  static constexpr std::size_t kKeptBytes = 32 << 20;

  // What a block goes to when nobody needs it: to be kept, to malloc, or to its owner, which is let go with the Block itself.
  class GiveBack {
   public:
    GiveBack() = default;
    void operator()(std::byte* block) const noexcept;

   private:
    friend class ServiceMemory;
    explicit GiveBack(std::shared_ptr<const void> owner) noexcept : owner_(std::move(owner)) {}
    GiveBack(std::shared_ptr<Kept> to, std::size_t size_class) noexcept
        : to_(to.get()), class_(size_class), owner_(std::move(to)) {}
    Kept* to_ = nullptr;
    std::size_t class_ = 0;
    std::shared_ptr<const void> owner_;  // null: the block is malloc's
  };
  using Block = std::unique_ptr<std::byte[], GiveBack>;

  ServiceMemory();
  ~ServiceMemory();
  ServiceMemory(const ServiceMemory&) = delete;
  ServiceMemory& operator=(const ServiceMemory&) = delete;

  // At least `bytes` bytes, not initialized; null for none. Throws std::bad_alloc.
  Block take(std::size_t bytes);
  static Block from_malloc(std::size_t bytes);
  // Memory that `owner` owns, and lets go when nobody has it.
  static Block shared(std::byte* memory, std::shared_ptr<const void> owner) noexcept {
    return Block(memory, GiveBack(std::move(owner)));
  }

  void trim() noexcept;
  // While nothing is kept, which is how it begins, what is given back is freed.
  void keep(bool keeps) noexcept;
  std::size_t kept_bytes() const noexcept;

 private:
  std::shared_ptr<Kept> kept_;
};

}  // namespace aiacc
