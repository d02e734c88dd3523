// Handles: 64-bit {kind, generation, index} names for objects that live in a table of the process. A stale, foreign or
// invalid handle is detected and never dereferenced.
//
// A lookup takes no lock: the slot's state is one word of its generation, whether lookups find it, and the number of its users
// (pins), and a lookup adds a user if the word has the handle's generation. Removal clears the mark by which lookups find the slot.
// The last one to release the slot, remover or user, disposes of the object, and only then is the slot reused, with the next
// generation. So a pinned object cannot be destroyed under its user, and a thread that calls with a handle that another thread is
// destroying gets the object or an error.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/cpu_relax.h"
#include "base/error.h"
#include "base/spin_lock.h"

namespace aiacc {

enum class HandleKind : std::uint8_t {
  kContext = 0xC1,
  kGroup = 0xC2,
  kRequest = 0xC3,
  kMesh = 0xC4,
  kRegistration = 0xC5,
  kGradient = 0xC6,
  kSyncbn = 0xC7,
  kKv = 0xC8,
  kEndedRequest = 0xC9  // runtime/ended_handles.h
};

// Layout: kind in the top 8 bits, then 32 bits of generation, then 24 bits of index.
constexpr std::uint64_t make_handle(HandleKind kind, std::uint32_t generation, std::uint32_t index) noexcept {
  return std::uint64_t{static_cast<std::uint8_t>(kind)} << 56 | std::uint64_t{generation} << 24 | index;
}
constexpr std::uint32_t index_of(std::uint64_t handle) noexcept { return handle & 0xFFFFFF; }
constexpr bool is_kind(std::uint64_t handle, HandleKind kind) noexcept {
  return handle >> 56 == static_cast<std::uint8_t>(kind);
}

// The table owns the objects, from insert() until they are disposed of. Holder is std::unique_ptr<T>, or std::optional<T> for
// objects within their slots.
template <class T, class Holder = std::unique_ptr<T>>
class HandleTable {
  struct Slot;

 public:
  explicit HandleTable(HandleKind kind) : kind_(kind) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;
  ~HandleTable() {
    for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
  }

  // Slots of which the objects are gone; they are given back together.
  class Freed {
   public:
    explicit Freed(HandleTable& table) noexcept : table_(table) {}
    ~Freed() {
      if (last_ != nullptr) table_.give_back(first_, *last_);
    }
    Freed(const Freed&) = delete;
    Freed& operator=(const Freed&) = delete;

   private:
    friend class HandleTable;
    void add(Slot& slot) noexcept {  // its object is gone
      (last_ == nullptr ? first_ : last_->next_free) = slot.index;
      last_ = &slot;
    }
    HandleTable& table_;
    std::uint32_t first_ = 0;
    Slot* last_ = nullptr;
  };

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
    T* operator->() const noexcept { return &*slot_->object; }
    T& operator*() const noexcept { return *slot_->object; }
    // Takes the object out of the table: no later lookup finds it. True for exactly one of several callers.
    bool remove() noexcept { return slot_ != nullptr && table_->remove(*slot_); }
    // The same as the pin's end. If that disposes of the object, its slot goes to `freed`.
    bool remove(Freed& freed) noexcept {
      return remove(freed, [](T&) {});
    }
    // The same, and `last_look` gets the object before that.
    template <class LastLook>
    bool remove(Freed& freed, LastLook&& last_look) noexcept {
      if (!remove()) return false;
      Slot& slot = *std::exchange(slot_, nullptr);
      if (!table_->release(slot)) return true;
      last_look(*slot.object);
      dispose(slot);
      freed.add(slot);
      return true;
    }

   private:
    friend class HandleTable;
    Pin(HandleTable& table, Slot& slot) noexcept : table_(&table), slot_(&slot) {}
    HandleTable* table_ = nullptr;
    Slot* slot_ = nullptr;
  };

  // Free slots that one thread has taken and not used yet.
  class Stock {
   public:
    constexpr Stock() = default;
    bool empty() const noexcept { return count_ == 0; }

   private:
    friend class HandleTable;
    std::size_t count_ = 0;
    std::array<Slot*, 16> slots_{};
  };
  // Fills one that is empty. Throws as a Place does.
  void fill(Stock& stock) {
    std::lock_guard lock(lock_);
    do {
      stock.slots_[stock.count_] = free_ == 0 ? &grow() : &pop_free();
    } while (++stock.count_ < stock.slots_.size() && (free_ != 0 || may_grow()));
  }
  // What is left of it can be used by others.
  void give_back(Stock& stock) noexcept {
    while (!stock.empty()) {
      Slot& slot = *stock.slots_[--stock.count_];
      give_back(slot.index, slot);
    }
  }

  // A slot that nobody finds yet. If it is not named, it is given back with its object. Throws kOutOfMemory when a million
  // handles are in use.
  class Place {
   public:
    explicit Place(HandleTable& table) : table_(table), slot_(&table.take_free()) {}
    // From a stock that is not empty.
    Place(HandleTable& table, Stock& stock) noexcept : table_(table), slot_(stock.slots_[--stock.count_]) {}
    ~Place() {
      if (slot_ == nullptr) return;
      slot_->object.reset();
      table_.give_back(slot_->index, *slot_);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    Holder& object() noexcept { return slot_->object; }
    std::uint64_t handle() const noexcept {
      const auto last = static_cast<std::uint32_t>(slot_->state.load(std::memory_order_relaxed) >> 32);
      return make_handle(table_.kind_, last + 1, slot_->index);
    }
    // From now on lookups find it.
    std::uint64_t name() noexcept {
      const std::uint64_t named = handle();
      std::exchange(slot_, nullptr)->state.store(named_state(named), std::memory_order_release);
      return named;
    }
    // The same; is_quiet() tells it from others.
    std::uint64_t name_quiet() noexcept {
      const std::uint64_t named = handle();
      std::exchange(slot_, nullptr)->state.store(named_state(named) | kQuiet, std::memory_order_release);
      return named;
    }
    Pin name_and_pin() noexcept {
      Slot& slot = *slot_;
      const std::uint64_t named = handle();
      std::exchange(slot_, nullptr)->state.store(named_state(named) + 1, std::memory_order_release);
      return Pin(table_, slot);
    }

   private:
    HandleTable& table_;
    Slot* slot_;
  };

  // Throws as a Place does.
  std::uint64_t insert(Holder object) {
    Place place(*this);
    place.object() = std::move(object);
    return place.name();
  }
  // The object gets the handle kFixed, which is no {kind, generation, index} and has a slot of its own: the default
  // context and its world. False if that handle is in use; the object then stays the caller's.
  static constexpr std::uint64_t kFixed = 1;
  bool insert_fixed(Holder& object) {
    std::lock_guard lock(lock_);
    if (count_ == 0) put_free(grow());
    Slot& slot = *at(kFixed);
    if (slot.state.load(std::memory_order_acquire) != 0) return false;
    slot.object = std::move(object);
    slot.state.store(named_state(kFixed), std::memory_order_release);
    return true;
  }

  // The object of `handle`, or an empty pin.
  Pin find(std::uint64_t handle) noexcept {
    Slot* const slot = slot_of(handle);
    if (slot == nullptr) return {};
    const std::uint64_t named = named_state(handle);
    std::uint64_t state = slot->state.load(std::memory_order_relaxed);
    do {  // NOLINT(bugprone-infinite-loop): the exchange changes the state
      while ((state & kLocked) != 0) state = await_unlocked(*slot);
      if ((state & ~(kUsers | kQuiet)) != named) [[unlikely]]
        return {};
      // Acquires the object.
    } while (
        !slot->state.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed));
    return Pin(*this, *slot);
  }

  // Whether a lookup would find it now, and its place was named by name_quiet().
  bool is_quiet(std::uint64_t handle) noexcept {
    const Slot* const slot = slot_of(handle);
    return slot != nullptr &&
           (slot->state.load(std::memory_order_relaxed) & ~(kUsers | kLocked)) == (named_state(handle) | kQuiet);
  }
  // Looks at an object that nobody uses, and takes it out of the table if `over` says so, which is then told to `last_look` before it
  // is disposed of: one atomic operation in place of a find() and a removal. kBusy: there is none, or a user.
  enum class Took : std::uint8_t { kTaken, kNotOver, kBusy };
  template <class Over, class LastLook>
  Took take_if(std::uint64_t handle, Freed& freed, Over&& over, LastLook&& last_look) noexcept {
    Slot* const slot = slot_of(handle);
    if (slot == nullptr) return Took::kBusy;
    std::uint64_t state = slot->state.load(std::memory_order_relaxed);
    if ((state & ~kQuiet) != named_state(handle)) return Took::kBusy;
    // Acquires the object. Nobody else changes the state while it is locked.
    if (!slot->state.compare_exchange_strong(state, state | kLocked, std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
      return Took::kBusy;
    }
    if (!over(std::as_const(*slot->object))) {
      slot->state.store(state, std::memory_order_release);
      return Took::kNotOver;
    }
    last_look(*slot->object);
    dispose(*slot);
    freed.add(*slot);
    return Took::kTaken;
  }

  // In a forked child: every handle becomes unknown. The objects belong to threads that do not exist here; they are
  // neither used nor freed. Takes no lock: another thread may have held it at the fork.
  void forget_all() noexcept {
    for (auto& chunk : chunks_) chunk.store(nullptr, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kChunkSlots = 1024;
  static constexpr std::uint32_t kChunks = (1u << 20) / kChunkSlots;
  static constexpr std::uint32_t kReserved = 2;  // slots 0 (no handle has it) and kFixed
  // A slot's state: its generation in the upper half, and below it:
  static constexpr std::uint64_t kNamed = std::uint64_t{1} << 31;    // lookups find it
  static constexpr std::uint64_t kRemoved = std::uint64_t{1} << 30;  // its last user disposes of the object
  static constexpr std::uint64_t kQuiet = std::uint64_t{1} << 29;    // is_quiet()
  static constexpr std::uint64_t kLocked = std::uint64_t{1} << 28;   // a thread looks at it that nobody uses (take_if)
  static constexpr std::uint64_t kUsers = kLocked - 1;

  struct alignas(64) Slot {
    std::atomic<std::uint64_t> state{0};
    std::uint32_t index = 0;
    std::uint32_t next_free = 0;  // 0: none
    Holder object;
  };

  static constexpr std::uint64_t named_state(std::uint64_t handle) noexcept {
    return (handle >> 24 & 0xFFFFFFFF) << 32 | kNamed;
  }
  Slot* at(std::uint32_t index) noexcept {
    Slot* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk + index % kChunkSlots;
  }

  // Null: no handle of this table is like it.
  Slot* slot_of(std::uint64_t handle) noexcept {
    const std::uint32_t index = index_of(handle);
    if (index < kReserved ? handle != kFixed : !is_kind(handle, kind_)) return nullptr;
    return index < kChunks * kChunkSlots ? at(index) : nullptr;
  }

  bool may_grow() const noexcept { return count_ < kChunks * kChunkSlots; }
  Slot& grow() {
    const std::uint32_t index = std::max(count_, kReserved);
    if (!may_grow()) {
      throw Error(Code::kOutOfMemory, "1,048,574 handles are in use: complete requests with aiacc_wait or aiacc_test");
    }
    auto& chunk = chunks_[index / kChunkSlots];
    if (chunk.load(std::memory_order_relaxed) == nullptr) chunk.store(new Slot[kChunkSlots], std::memory_order_release);
    count_ = index + 1;
    Slot& slot = *at(index);
    slot.index = index;
    return slot;
  }
  void put_free(Slot& slot) noexcept { slot.next_free = std::exchange(free_, slot.index); }
  Slot& take_free() {
    std::lock_guard lock(lock_);
    return free_ == 0 ? grow() : pop_free();
  }
  Slot& pop_free() noexcept {
    Slot& slot = *at(free_);
    free_ = slot.next_free;
    return slot;
  }
  void give_back(std::uint32_t first, Slot& last) noexcept {
    std::lock_guard lock(lock_);
    last.next_free = std::exchange(free_, first);
  }

  bool remove(Slot& slot) noexcept {
    std::uint64_t state = slot.state.load(std::memory_order_relaxed);
    do {
      if ((state & kNamed) == 0) return false;
    } while (!slot.state.compare_exchange_weak(state, state ^ (kNamed | kRemoved), std::memory_order_acq_rel,
                                               std::memory_order_relaxed));
    return true;
  }
  // True: the caller was the last user of a removed slot, and disposes of it.
  bool release(Slot& slot) noexcept {
    // A slot that was removed gets no new users, so its only one needs no atomic operation.
    const std::uint64_t seen = slot.state.load(std::memory_order_acquire);
    if ((seen & (kRemoved | kUsers)) != (kRemoved | 1)) {
      const std::uint64_t before = slot.state.fetch_sub(1, std::memory_order_acq_rel);
      if ((before & (kRemoved | kUsers)) != (kRemoved | 1)) [[likely]]
        return false;
    }
    return true;
  }
  static void dispose(Slot& slot) noexcept {
    slot.object.reset();
    slot.state.store(slot.state.load(std::memory_order_relaxed) >> 32 << 32, std::memory_order_release);
  }
  void unpin(Slot& slot) noexcept {
    if (!release(slot)) [[likely]]
      return;
    dispose(slot);
    if (slot.index >= kReserved) give_back(slot.index, slot);
  }
  static std::uint64_t await_unlocked(Slot& slot) noexcept {
    std::uint64_t state;
    for (int looks = 1; ((state = slot.state.load(std::memory_order_relaxed)) & kLocked) != 0; ++looks) {
      looks % 100 == 0 ? yield_core() : cpu_relax();
    }
    return state;
  }

  HandleKind kind_;
  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  SpinLock lock_;            // guards what follows, and slots that nobody can find
  std::uint32_t count_ = 0;  // slots that exist
  std::uint32_t free_ = 0;   // the first free one
};

}  // namespace aiacc
