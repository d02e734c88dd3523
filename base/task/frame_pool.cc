#include "base/task/frame_pool.h"

#include <new>

namespace aiacc {
namespace {

thread_local FramePool* current_pool = nullptr;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFramesPooled = false;
#else
constexpr bool kFramesPooled = true;
#endif

}  // namespace

FramePool::Use::Use(FramePool& pool) noexcept : outer_(current_pool) { current_pool = &pool; }
FramePool::Use::~Use() { current_pool = outer_; }

FramePool::~FramePool() {
  for (Free* list : free_) {
    while (list != nullptr) {
      Free* next = list->next;
      ::operator delete(static_cast<void*>(list));
      list = next;
    }
  }
}

void* FramePool::allocate(std::size_t bytes) {
  const std::size_t total = bytes + sizeof(Header);
  const std::size_t size_class = (total - 1) / kGranuleBytes;
  FramePool* pool = kFramesPooled && size_class < kClasses ? current_pool : nullptr;
  void* block;
  if (pool != nullptr && pool->free_[size_class] != nullptr) {
    Free* head = pool->free_[size_class];
    pool->free_[size_class] = head->next;
    block = head;
  } else {
    block = ::operator new(pool != nullptr ? (size_class + 1) * kGranuleBytes : total);
  }
  auto* header = new (block) Header{pool, size_class};
  return header + 1;
}

void FramePool::release(void* frame) noexcept {
  Header* header = static_cast<Header*>(frame) - 1;
  FramePool* pool = header->pool;
  if (pool == nullptr) {
    ::operator delete(static_cast<void*>(header));
    return;
  }
  const std::size_t size_class = header->size_class;
  pool->free_[size_class] = new (static_cast<void*>(header)) Free{pool->free_[size_class]};
}

}  // namespace aiacc
