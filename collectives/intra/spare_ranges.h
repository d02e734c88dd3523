// SpareRanges: memory of messages that have been received, kept for later ones, because an allocation populates pages: 0.1 to 5 µs per
// KiB, the more where a hypervisor takes back what is free.
//
// Sizes are rounded up by a quarter at most, so that messages of similar lengths share them. What is released last is kept, in place
// of what was released first: else sizes that are not used any more would leave no room for those that are.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <map>
#include <new>
#include <optional>

#include "transports/host/host_domain.h"

namespace aiacc {

class SpareRanges {
 public:
  explicit SpareRanges(std::uint64_t most_bytes) noexcept : most_bytes_(most_bytes) {}

  // What to allocate for so many bytes.
  std::uint64_t size_for(std::uint64_t bytes) const noexcept {
    const std::uint64_t step = std::max(std::bit_floor(bytes) / 4, kPage);
    const std::uint64_t rounded = (std::max<std::uint64_t>(bytes, 1) + step - 1) / step * step;
    return rounded <= most_bytes_ ? rounded : bytes;  // a longer one is not kept
  }
  // One of that size, or at most twice as long. The one that was released last is in the caches.
  std::optional<HostRange> take(std::uint64_t size) noexcept {
    auto found = by_size_.upper_bound(size);
    if (found != by_size_.begin() && std::prev(found)->first == size) --found;
    if (found == by_size_.end() || found->first > 2 * size) return std::nullopt;
    const HostRange range = found->second.range;
    by_age_.erase(found->second.age);
    by_size_.erase(found);
    bytes_ -= range.bytes;
    return range;
  }
  // Calls `free` with each range that is not kept: the oldest, or this one.
  template <class Free>
  void keep(HostRange range, Free&& free) noexcept {
    if (range.bytes > most_bytes_) return free(range);
    while (bytes_ + range.bytes > most_bytes_) drop_oldest(free);
    try {
      const auto age = by_age_.emplace_hint(by_age_.end(), ++released_, by_size_.end());
      try {
        age->second = by_size_.emplace(range.bytes, Spare{range, age});
      } catch (const std::bad_alloc&) {
        by_age_.erase(age);
        throw;
      }
      bytes_ += range.bytes;
    } catch (const std::bad_alloc&) {
      free(range);
    }
  }
  template <class Free>
  void drop_all(Free&& free) noexcept {
    while (!by_age_.empty()) drop_oldest(free);
  }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::uint64_t kPage = 4096;
  struct Spare;
  using BySize = std::multimap<std::uint64_t, Spare>;
  using ByAge = std::map<std::uint64_t, BySize::iterator>;
  struct Spare {
    HostRange range;
    ByAge::iterator age;
  };

  template <class Free>
  void drop_oldest(Free&& free) noexcept {
    const auto oldest = by_age_.begin();
    const HostRange range = oldest->second->second.range;
    by_size_.erase(oldest->second);
    by_age_.erase(oldest);
    bytes_ -= range.bytes;
    free(range);
  }

  std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t released_ = 0;
  BySize by_size_;
  ByAge by_age_;
};

}  // namespace aiacc
