#include "transports/host/slice_allocator.h"

#include "transports/host/segment.h"

namespace aiacc {
namespace {
constexpr std::uint64_t kPage = SegmentMapping::kPage;
// Four cache lines between neighbours, so that a reduction's stores for one rank are never within a vector block of the
// loads from the next; sixteen colours, then they repeat.
constexpr std::uint64_t kColourBytes = 256;
constexpr int kColours = 16;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }
}  // namespace

SliceAllocator::SliceAllocator(std::uint64_t slice_bytes, int rank) noexcept
    : colour_(static_cast<std::uint64_t>(rank % kColours) * kColourBytes) {
  free_.emplace(0, slice_bytes);
}

std::optional<HostRange> SliceAllocator::take(std::uint64_t bytes) {
  if (bytes > std::uint64_t{1} << 48) return std::nullopt;
  const std::uint64_t length = round_up(std::max<std::uint64_t>(bytes, 1) + colour_, kPage);
  const std::uint64_t alignment = length >= SegmentMapping::kHugePage ? SegmentMapping::kHugePage : kPage;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const std::uint64_t begin = it->first;
    const std::uint64_t end = begin + it->second;
    const std::uint64_t at = round_up(begin, alignment);
    if (at + length > end) continue;
    free_.erase(it);
    if (at > begin) free_.emplace(begin, at - begin);
    if (at + length < end) free_.emplace(at + length, end - at - length);
    allocations_.emplace(at + colour_, Allocation{bytes, {at, length}, false});
    used_bytes_ += length;
    return HostRange{at + colour_, bytes};
  }
  return std::nullopt;
}

std::optional<SliceAllocator::Taken> SliceAllocator::give_back(std::uint64_t offset) {
  const auto it = allocations_.find(offset);
  if (it == allocations_.end()) return std::nullopt;
  const Taken taken{it->second.pages, it->second.retired};
  allocations_.erase(it);
  used_bytes_ -= taken.pages.bytes;
  if (!taken.retired) add_free(taken.pages);
  return taken;
}

void SliceAllocator::add_free(Pages pages) {
  auto next = free_.lower_bound(pages.offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == pages.offset) {
      pages = {before->first, before->second + pages.bytes};
      free_.erase(before);
    }
  }
  if (next != free_.end() && pages.offset + pages.bytes == next->first) {
    pages.bytes += next->second;
    free_.erase(next);
  }
  free_.emplace(pages.offset, pages.bytes);
}

bool SliceAllocator::covers(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  auto it = allocations_.upper_bound(offset);
  if (it == allocations_.begin()) return false;
  --it;
  const Allocation& allocation = it->second;
  const std::uint64_t inside = offset - it->first;
  return !allocation.retired && inside <= allocation.bytes && bytes <= allocation.bytes - inside;
}

void SliceAllocator::retire(std::uint64_t offset, std::uint64_t bytes) noexcept {
  const Pages pages = pages_of(offset, bytes);
  for (auto& [begin, allocation] : allocations_) {
    const Pages& own = allocation.pages;
    if (own.offset < pages.offset + pages.bytes && pages.offset < own.offset + own.bytes) allocation.retired = true;
  }
}

SliceAllocator::Pages SliceAllocator::pages_of(std::uint64_t offset, std::uint64_t bytes) noexcept {
  const std::uint64_t begin = offset / kPage * kPage;
  return {begin, round_up(offset + bytes, kPage) - begin};
}

}  // namespace aiacc
