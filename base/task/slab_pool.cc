#include "base/task/slab_pool.h"

#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

#include "base/error.h"

namespace aiacc {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSlabsPooled = false;
#else
constexpr bool kSlabsPooled = true;
#endif

constexpr std::size_t kAlignment = 64;

}  // namespace

constinit thread_local SlabPool::Gathering* SlabPool::Gathering::present_ = nullptr;

SlabPool::SlabPool(std::size_t bytes, Takers takers) noexcept
    : bytes_((bytes + kAlignment - 1) / kAlignment * kAlignment), takers_(takers) {
  AIACC_INVARIANT(bytes <= kSlabBytes / 4, "objects of a slab are small");
}

SlabPool::~SlabPool() {
  for (void* slab : slabs_) ::operator delete(slab, std::align_val_t(kSlabBytes));
}

void* SlabPool::take() {
  if constexpr (!kSlabsPooled) return ::operator new(bytes_);
  if (takers_ == Takers::kOneAtATime) return take_one();
  const std::lock_guard lock(taking_);
  return take_one();
}

void* SlabPool::take_one() {
  if (free_ == nullptr || ++takes_ % kTakesPerLook == 0) take_back();
  if (free_ != nullptr) {
    Free* const taken = free_;
    free_ = taken->next;
    return taken;
  }
  if (end_ - fresh_ < static_cast<std::ptrdiff_t>(bytes_)) add_slab();
  void* const taken = fresh_;
  fresh_ += bytes_;
  return taken;
}

void SlabPool::take_back() noexcept {
  if (given_back_.load(std::memory_order_relaxed) != nullptr) {
    if (free_ != nullptr) free_->before = std::exchange(before_, free_);
    // Acquires what the former owners did with their objects.
    free_ = given_back_.exchange(nullptr, std::memory_order_acquire);
  } else if (free_ == nullptr && before_ != nullptr) {
    free_ = before_;
    before_ = free_->before;
  }
}

void SlabPool::add_slab() {
  slabs_.reserve(slabs_.size() + 1);
  void* const slab = ::operator new(kSlabBytes, std::align_val_t(kSlabBytes));
  slabs_.push_back(slab);
  new (slab) Slab{this};
  fresh_ = static_cast<std::byte*>(slab) + kAlignment;
  end_ = static_cast<std::byte*>(slab) + kSlabBytes;
}

void SlabPool::give_back(void* item) noexcept {
  if constexpr (!kSlabsPooled) return ::operator delete(item);
  auto* const slab = reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(item) & ~(kSlabBytes - 1));
  SlabPool& pool = *slab->pool;
  if (Gathering* const gathering = Gathering::present_; gathering != nullptr) return gathering->add(pool, item);
  Free* const free = new (item) Free{nullptr};
  pool.give_back(free, free);
}

void SlabPool::give_back(Free* first, Free* last) noexcept {
  last->next = given_back_.load(std::memory_order_relaxed);
  while (!given_back_.compare_exchange_weak(last->next, first, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void SlabPool::Gathering::add(SlabPool& pool, void* item) noexcept {
  if (pool_ != &pool) {
    give_back();
    pool_ = &pool;
  }
  first_ = new (item) Free{first_};
  if (last_ == nullptr) last_ = first_;
}

void SlabPool::Gathering::give_back() noexcept {
  if (first_ != nullptr) pool_->give_back(first_, last_);
  first_ = last_ = nullptr;
}

}  // namespace aiacc
