// Free lists for coroutine frames, one pool per lane. A lane is driven by one thread at a time, so nothing here is
// atomic. A frame is returned to the pool that it came from; a frame allocated while no pool is installed comes from
// malloc. Under the address sanitizer every frame comes from malloc, so that a use after free is detected.
#pragma once

#include <array>
#include <cstddef>

namespace aiacc {

class FramePool {
 public:
  FramePool() = default;
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;
  ~FramePool();

  // Frames made by this thread come from `pool` while the guard lives. Guards nest.
  class Use {
   public:
    explicit Use(FramePool& pool) noexcept;
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    FramePool* outer_;
  };

  static void* allocate(std::size_t bytes);
  static void release(void* frame) noexcept;

 private:
  static constexpr std::size_t kGranuleBytes = 128;
  static constexpr std::size_t kClasses = 32;  // frames up to 4 KiB; larger ones are rare and come from malloc

  struct Header {  // precedes each frame; keeps its 16-byte alignment
    FramePool* pool;
    std::size_t size_class;
  };
  struct Free {
    Free* next;
  };
  std::array<Free*, kClasses> free_{};
};

}  // namespace aiacc
