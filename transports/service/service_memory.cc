#include "transports/service/service_memory.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/data/scratch_pool.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#endif

namespace aiacc {
namespace {

constexpr std::size_t kFirst = scratch_class(ServiceMemory::kSmallest);
constexpr std::size_t kClasses = scratch_class(ServiceMemory::kLargest) - kFirst + 1;

constexpr std::size_t bytes_of(std::size_t size_class) noexcept { return scratch_class_bytes(kFirst + size_class); }

}  // namespace

class ServiceMemory::Kept {
 public:
  Kept() = default;
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() { keep(false); }

  std::byte* take(std::size_t size_class) noexcept {  // null: none is kept
    const std::lock_guard lock(mutex_);
    Stack& stack = stacks_[size_class];
    if (stack.blocks.empty()) return nullptr;
    std::byte* const block = stack.blocks.back();
    stack.blocks.pop_back();
    stack.unused = std::min(stack.unused, stack.blocks.size());
    bytes_ -= bytes_of(size_class);
    ASAN_UNPOISON_MEMORY_REGION(block, bytes_of(size_class));
    return block;
  }

  void give_back(std::byte* block, std::size_t size_class) noexcept {
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = bytes_of(size_class);
    for (Stack& stack : stacks_) {
      if (bytes_ + bytes <= kKeptBytes) break;
      free_unused_locked(stack);
    }
    if (!keeps_ || bytes_ + bytes > kKeptBytes) return ::operator delete(block);
    try {
      stacks_[size_class].blocks.push_back(block);
    } catch (const std::bad_alloc&) {
      return ::operator delete(block);
    }
    bytes_ += bytes;
    ASAN_POISON_MEMORY_REGION(block, bytes);
  }

  void trim() noexcept {
    const std::lock_guard lock(mutex_);
    for (Stack& stack : stacks_) {
      free_unused_locked(stack);
      stack.unused = stack.blocks.size();
    }
  }

  void keep(bool keeps) noexcept {
    const std::lock_guard lock(mutex_);
    keeps_ = keeps;
    if (keeps) return;
    for (Stack& stack : stacks_) {
      stack.unused = stack.blocks.size();
      free_unused_locked(stack);
    }
  }

  std::size_t bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Stack {
    std::vector<std::byte*> blocks;  // the last one given back is taken first
    std::size_t unused = 0;          // of the first ones: since the last trim
  };

  void free_unused_locked(Stack& stack) noexcept {
    const std::size_t bytes = bytes_of(static_cast<std::size_t>(&stack - stacks_.data()));
    const auto end = stack.blocks.begin() + static_cast<std::ptrdiff_t>(stack.unused);
    for (auto block = stack.blocks.begin(); block != end; ++block) {
      ASAN_UNPOISON_MEMORY_REGION(*block, bytes);
      ::operator delete(*block);
    }
    bytes_ -= bytes * stack.unused;
    stack.blocks.erase(stack.blocks.begin(), end);
    stack.unused = 0;
  }

  mutable std::mutex mutex_;
  std::array<Stack, kClasses> stacks_;
  std::size_t bytes_ = 0;
  bool keeps_ = false;
};

ServiceMemory::ServiceMemory() : kept_(std::make_shared<Kept>()) {}
ServiceMemory::~ServiceMemory() { keep(false); }

ServiceMemory::Block ServiceMemory::take(std::size_t bytes) {
  if (bytes < kSmallest || bytes > kLargest) return from_malloc(bytes);
  const std::size_t size_class = scratch_class(bytes) - kFirst;
  std::byte* const kept = kept_->take(size_class);
  return Block(kept != nullptr ? kept : static_cast<std::byte*>(::operator new(bytes_of(size_class))),
               GiveBack(kept_, size_class));
}

ServiceMemory::Block ServiceMemory::from_malloc(std::size_t bytes) {
  return Block(bytes > 0 ? static_cast<std::byte*>(::operator new(bytes)) : nullptr);
}

void ServiceMemory::GiveBack::operator()(std::byte* block) const noexcept {
  if (to_ != nullptr) return to_->give_back(block, class_);
  if (owner_ == nullptr) ::operator delete(block);
}

void ServiceMemory::trim() noexcept { kept_->trim(); }
void ServiceMemory::keep(bool keeps) noexcept { kept_->keep(keeps); }
std::size_t ServiceMemory::kept_bytes() const noexcept { return kept_->bytes(); }

}  // namespace aiacc
