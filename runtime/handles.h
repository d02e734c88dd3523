// Handles: 64-bit {kind, generation, index} names for objects that live in a table of the process. A stale, foreign or
// invalid handle is detected and never dereferenced.
//
// A lookup takes no lock: it increments the slot's user count (a pin), then checks that the slot still has this handle.
// Removal clears the handle in the slot first; the last one to release the slot, remover or user, disposes of the
// object, and only then is the slot reused, with the next generation. So a pinned object cannot be destroyed under its
// user, and a thread that calls with a handle that another thread is destroying gets the object or an error.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"

namespace aiacc {

enum class HandleKind : std::uint8_t {
  kContext = 0xC1,
  kGroup = 0xC2,
  kRequest = 0xC3,
  kMesh = 0xC4,
  kRegistration = 0xC5,
  kGradient = 0xC6,
  kSyncbn = 0xC7
};

// Layout: kind in the top 8 bits, then 32 bits of generation, then 24 bits of index.
constexpr std::uint64_t make_handle(HandleKind kind, std::uint32_t generation, std::uint32_t index) noexcept {
  return std::uint64_t{static_cast<std::uint8_t>(kind)} << 56 | std::uint64_t{generation} << 24 | index;
}
constexpr std::uint32_t index_of(std::uint64_t handle) noexcept { return handle & 0xFFFFFF; }
constexpr bool is_kind(std::uint64_t handle, HandleKind kind) noexcept {
  return handle >> 56 == static_cast<std::uint8_t>(kind);
}

// T is held by unique_ptr; the table owns it from insert() until it is disposed of.
template <class T>
class HandleTable {
  struct Slot;

 public:
  explicit HandleTable(HandleKind kind) : kind_(kind) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;
  ~HandleTable() {
    for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
  }

  // A reference to an object, which is not disposed of while the pin lives.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept : table_(other.table_), slot_(std::exchange(other.slot_, nullptr)) {}
    Pin& operator=(Pin&&) = delete;
    ~Pin() {
      if (slot_ != nullptr) table_->unpin(*slot_);
    }
    explicit operator bool() const noexcept { return slot_ != nullptr; }
    T* operator->() const noexcept { return slot_->object.get(); }
    T& operator*() const noexcept { return *slot_->object; }
    // Takes the object out of the table: no later lookup finds it. True for exactly one of several callers.
    bool remove() noexcept { return slot_ != nullptr && table_->remove(*slot_); }

   private:
    friend class HandleTable;
    Pin(HandleTable& table, Slot& slot) noexcept : table_(&table), slot_(&slot) {}
    HandleTable* table_ = nullptr;
    Slot* slot_ = nullptr;
  };

  // Throws kOutOfMemory when a million handles are in use.
  std::uint64_t insert(std::unique_ptr<T> object) {
    std::lock_guard lock(mutex_);
    const std::uint32_t index = take_free();
    Slot& slot = *at(index);
    slot.object = std::move(object);
    ++slot.generation;
    const std::uint64_t handle = make_handle(kind_, slot.generation, index);
    slot.name = handle;
    slot.handle.store(handle, std::memory_order_seq_cst);  // pairs with find(): the object is there
    return handle;
  }
  // The object gets the handle kFixed, which is no {kind, generation, index} and has a slot of its own: the default
  // context and its world. False if that handle is in use; the object then stays the caller's.
  static constexpr std::uint64_t kFixed = 1;
  bool insert_fixed(std::unique_ptr<T>& object) {
    std::lock_guard lock(mutex_);
    if (count_ == 0) free_.push_back(grow());
    Slot& slot = *at(kFixed);
    if (slot.object != nullptr) return false;
    slot.object = std::move(object);
    slot.name = kFixed;
    slot.handle.store(kFixed, std::memory_order_seq_cst);
    return true;
  }

  // The object of `handle`, or an empty pin.
  Pin find(std::uint64_t handle) noexcept {
    if (index_of(handle) >= kChunks * kChunkSlots) return {};
    Slot* slot = at(index_of(handle));
    if (slot == nullptr || handle == 0) return {};
    // Dekker with remove(): that clears the handle and then reads the users; this adds a user and then reads the
    // handle.
    slot->users.fetch_add(1, std::memory_order_seq_cst);
    if (slot->handle.load(std::memory_order_seq_cst) != handle) [[unlikely]] {
      unpin(*slot);
      return {};
    }
    return Pin(*this, *slot);
  }

  // In a forked child: every handle becomes unknown. The objects belong to threads that do not exist here; they are
  // neither used nor freed. Takes no lock: another thread may have held it at the fork.
  void forget_all() noexcept {
    for (auto& chunk : chunks_) chunk.store(nullptr, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kChunkSlots = 1024;
  static constexpr std::uint32_t kChunks = (1u << 20) / kChunkSlots;
  static constexpr std::uint32_t kReserved = 2;        // slots 0 (no handle has it) and kFixed
  static constexpr std::uint32_t kRemoved = 1u << 31;  // in users: whoever counts down to this alone disposes

  struct alignas(64) Slot {
    std::atomic<std::uint64_t> handle{0};  // 0: nobody finds it
    std::atomic<std::uint32_t> users{0};
    std::uint32_t generation = 0;
    std::uint64_t name = 0;
    std::unique_ptr<T> object;
  };

  Slot* at(std::uint32_t index) noexcept {
    Slot* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk + index % kChunkSlots;
  }
  std::uint32_t grow() {
    const std::uint32_t index = std::max(count_, kReserved);
    if (index >= kChunks * kChunkSlots) {
      throw Error(Code::kOutOfMemory, "1,048,574 handles are in use: complete requests with aiacc_wait or aiacc_test");
    }
    auto& chunk = chunks_[index / kChunkSlots];
    if (chunk.load(std::memory_order_relaxed) == nullptr) chunk.store(new Slot[kChunkSlots], std::memory_order_release);
    count_ = index + 1;
    return index;
  }
  std::uint32_t take_free() {
    if (free_.empty()) free_.push_back(grow());
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  bool remove(Slot& slot) noexcept {
    if (slot.handle.exchange(0, std::memory_order_seq_cst) == 0) return false;
    slot.users.fetch_or(kRemoved, std::memory_order_seq_cst);  // this thread is a user itself, so users stays positive
    return true;
  }
  void unpin(Slot& slot) noexcept {
    const std::uint32_t before = slot.users.fetch_sub(1, std::memory_order_seq_cst);
    if (before != (kRemoved | 1)) [[likely]]
      return;
    dispose(slot);
  }
  void dispose(Slot& slot) noexcept {
    // A lookup with a stale handle may count itself in and out meanwhile and come here too: one of them clears the mark.
    std::uint32_t mark = kRemoved;
    if (!slot.users.compare_exchange_strong(mark, kRemoved | kDisposing, std::memory_order_seq_cst)) return;
    std::unique_ptr<T> object = std::move(slot.object);
    {
      std::lock_guard lock(mutex_);
      slot.users.fetch_and(~(kRemoved | kDisposing), std::memory_order_seq_cst);
      if (slot.name != kFixed) free_.push_back(index_of(slot.name));
    }
  }
  static constexpr std::uint32_t kDisposing = 1u << 30;

  HandleKind kind_;
  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex mutex_;         // guards what follows, and slots that nobody can find
  std::uint32_t count_ = 0;  // slots that exist
  std::vector<std::uint32_t> free_;
};

}  // namespace aiacc
