// Registrations: the user memory that is registered with a context, searchable by address. An operation looks up its
// buffers once, so that a port can use the keys that it has created for the whole range.
//
// Any thread. While nothing is registered a look-up is one relaxed load; otherwise it is a binary search.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/data/buffer.h"

namespace aiacc {

class Registrations {
 public:
  void add(std::uint64_t handle, const void* memory, std::size_t bytes) {
    const auto first = reinterpret_cast<std::uintptr_t>(memory);
    const std::lock_guard lock(mutex_);
    all_.insert_or_assign(handle, Range{first, first + bytes, handle});
    settle();
  }
  void remove(std::uint64_t handle) noexcept {
    const std::lock_guard lock(mutex_);
    if (all_.erase(handle) > 0) settle();
  }

  // Sets buffer.registration to the handle of a range that contains the whole buffer; if there is none, the buffer is
  // unchanged.
  void mark(Buffer& buffer) const noexcept {
    if (count_.load(std::memory_order_relaxed) == 0) return;
    if (buffer.bytes > 0 && buffer.registration == 0) buffer.registration = find(buffer);
  }

 private:
  struct Range {
    std::uintptr_t first;
    std::uintptr_t end;
    std::uint64_t handle;
  };

  std::uint64_t find(const Buffer& buffer) const noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(buffer.data);
    const std::lock_guard lock(mutex_);
    const auto next = std::upper_bound(outermost_.begin(), outermost_.end(), first,
                                       [](std::uintptr_t at, const Range& range) { return at < range.first; });
    if (next == outermost_.begin()) return 0;
    const Range& range = *(next - 1);
    return range.end - first >= buffer.bytes && range.end > first ? range.handle : 0;
  }

  // Ranges may overlap. Only ranges that no other one contains are searched. Sorted by beginning, their ends ascend
  // too, so the last range that begins before an address reaches furthest; if it does not contain a buffer, none does.
  void settle() {
    outermost_.clear();
    outermost_.reserve(all_.size());
    for (const auto& [handle, range] : all_) outermost_.push_back(range);
    std::sort(outermost_.begin(), outermost_.end(), [](const Range& one, const Range& other) {
      return one.first != other.first ? one.first < other.first : one.end > other.end;
    });
    std::uintptr_t reached = 0;
    std::erase_if(outermost_, [&reached](const Range& range) {
      if (range.end <= reached) return true;
      reached = range.end;
      return false;
    });
    count_.store(outermost_.size(), std::memory_order_relaxed);
  }

  std::atomic<std::size_t> count_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::uint64_t, Range> all_;
  std::vector<Range> outermost_;  // by address
};

}  // namespace aiacc
