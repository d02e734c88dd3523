#include "transports/host/segment_domain.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "transports/host/memory_room.h"

namespace aiacc {
namespace {

// The directory entry at which the search for a key begins. Keys are hashes, so most searches end there.
std::uint32_t usual_entry(std::uint64_t key) noexcept { return static_cast<std::uint32_t>(key % ControlArea::kKeys); }

}  // namespace

SegmentDomain::SegmentDomain(std::shared_ptr<SegmentMapping> mapping, int rank)
    : mapping_(std::move(mapping)),
      rank_(rank),
      memory_(mapping_->slice_bytes(), rank),
      dead_(static_cast<std::size_t>(mapping_->ranks())),
      aborts_seen_of_(static_cast<std::size_t>(mapping_->ranks())) {
  AIACC_INVARIANT(rank >= 0 && rank < mapping_->ranks(), "a rank of the host");
  ControlArea& control = mapping_->control(rank_);
  populate(reinterpret_cast<std::byte*>(control.line), sizeof(ControlLine) * kFirstFreeLine);
  word(rank_, kCountsLine, kMapping).store(mapping_->id(), std::memory_order_release);
}

// --- memory ----------------------------------------------------------------------------------------------------------

HostRange SegmentDomain::allocate(std::uint64_t bytes) {
  require_memory(bytes, "this allocation needs", read_host_file);
  std::optional<HostRange> range;
  SliceAllocator::Pages pages;
  {
    const std::lock_guard lock(memory_mutex_);
    range = memory_.take(bytes);
    if (!range) {
      throw Error(
          Code::kOutOfMemory,
          fmt::format("{} do not fit into what is left of this rank's {} of shared address space ({} are used)",
                      bytes_text(bytes), bytes_text(mapping_->slice_bytes()), bytes_text(memory_.used_bytes())));
    }
    pages = SliceAllocator::pages_of(range->offset, std::max<std::uint64_t>(bytes, 1));
  }
  try {
    populate(mapping_->slice(rank_) + pages.offset, pages.bytes);
  } catch (...) {
    free(*range);
    throw;
  }
  return *range;
}

void SegmentDomain::free(HostRange range) noexcept {
  const std::lock_guard lock(memory_mutex_);
  const std::optional<SliceAllocator::Taken> taken = memory_.give_back(range.offset);
  if (!taken) return;
  std::byte* begin = mapping_->slice(rank_) + taken->pages.offset;
  if (taken->retired) {
    // The pages are a private copy (quiesce()), and a frozen peer may still write to the shared pages below: this range is
    // never used again. If the system refuses one more mapping, the copy stays.
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    [[maybe_unused]] const void* emptied = mmap(begin, taken->pages.bytes, PROT_NONE, kFlags, -1, 0);
    return;
  }
  madvise(begin, taken->pages.bytes, MADV_REMOVE);
}

void SegmentDomain::throw_outside(int owner, std::uint64_t offset, std::uint64_t bytes) const {
  throw Error(Code::kProtocol,
              fmt::format("the shared memory of rank {} of this host's {} names {} bytes at {}, and its slice has {}: "
                          "something has overwritten the host's segment",
                          owner, size(), bytes, offset, mapping_->slice_bytes()));
}

std::optional<std::uint64_t> SegmentDomain::offset_of(const void* data, std::size_t bytes) const noexcept {
  const auto* begin = static_cast<const std::byte*>(data);
  const std::byte* slice = mapping_->slice(rank_);
  if (begin < slice || begin >= slice + mapping_->slice_bytes()) return std::nullopt;
  const auto offset = static_cast<std::uint64_t>(begin - slice);
  const std::lock_guard lock(memory_mutex_);
  if (!memory_.covers(offset, bytes)) return std::nullopt;
  return offset;
}

// --- control lines ---------------------------------------------------------------------------------------------------

// The search continues after the last claim, so that released lines are not reused soon: a slow peer may still read them. But it
// begins again after a fifth of them, while there is room in it, so that a rank that makes and frees groups all the time does not touch all their pages.
std::uint32_t SegmentDomain::find_free_lines(std::uint32_t count) {
  for (const std::uint32_t from : {next_line_, static_cast<std::uint32_t>(kFirstFreeLine)}) {
    std::uint32_t first = from;
    for (const Claim& claim : claims_) {
      if (claim.first + claim.count <= first) continue;
      if (claim.first >= first + count) break;
      first = claim.first + claim.count;
    }
    if (first + count > ControlArea::kLines) continue;
    constexpr std::uint32_t kUsual = ControlArea::kLines / 5;
    const bool comes_through = first < kUsual && first + count >= kUsual;
    next_line_ = comes_through ? static_cast<std::uint32_t>(kFirstFreeLine) : first + count;
    return first;
  }
  throw Error(Code::kOutOfMemory,
              fmt::format("this rank has {} control lines and {} more do not fit: too many groups at "
                          "once on this host",
                          ControlArea::kLines, count));
}

std::uint32_t SegmentDomain::claim_lines(std::uint64_t key, std::uint32_t count) {
  AIACC_INVARIANT(key != 0 && key != DirectoryEntry::kTombstone, "these mark an entry that is free");
  ControlArea& control = mapping_->control(rank_);
  for (const Claim& claim : claims_) AIACC_INVARIANT(claim.key != key, "lines are claimed once for a key");
  std::uint32_t entry = usual_entry(key);
  std::uint32_t looks = 0;
  const auto is_free = [&control](std::uint32_t at) {
    const std::uint64_t there = control.directory[at].key.load(std::memory_order_relaxed);
    return there == 0 || there == DirectoryEntry::kTombstone;
  };
  for (; looks < ControlArea::kKeys && !is_free(entry); ++looks) entry = (entry + 1) % ControlArea::kKeys;
  if (looks == ControlArea::kKeys) {
    throw Error(Code::kOutOfMemory, fmt::format("this rank takes part in {} groups already, the most that a host's "
                                                "segment has room for",
                                                ControlArea::kKeys));
  }
  const std::uint32_t first = find_free_lines(count);
  populate(reinterpret_cast<std::byte*>(&control.line[first]), count * sizeof(ControlLine));
  for (std::uint32_t i = first; i < first + count; ++i) {
    for (std::atomic<std::uint64_t>& word : control.line[i].word) word.store(0, std::memory_order_relaxed);
  }
  const auto place = std::upper_bound(claims_.begin(), claims_.end(), first,
                                      [](std::uint32_t line, const Claim& claim) { return line < claim.first; });
  claims_.insert(place, Claim{key, first, count, entry});
  control.directory[entry].place.store(first, std::memory_order_release);
  control.directory[entry].key.store(key, std::memory_order_release);
  publish(kCountsLine, kClaims, own_line(kCountsLine).word[kClaims].load(std::memory_order_relaxed) + 1);
  return first;
}

void SegmentDomain::release_lines(std::uint64_t key) noexcept {
  if (leaving(rank_)) return;
  const auto claim = std::find_if(claims_.begin(), claims_.end(), [key](const Claim& c) { return c.key == key; });
  if (claim == claims_.end()) return;
  mapping_->control(rank_).directory[claim->entry].key.store(DirectoryEntry::kTombstone, std::memory_order_release);
  claims_.erase(claim);
  publish(kCountsLine, kClaims, own_line(kCountsLine).word[kClaims].load(std::memory_order_relaxed) + 1);
}

std::optional<std::uint32_t> SegmentDomain::find_lines(int owner, std::uint64_t key,
                                                       std::uint32_t count) const noexcept {
  const ControlArea& control = mapping_->control(owner);
  for (std::uint32_t looks = 0; looks < ControlArea::kKeys; ++looks) {
    const DirectoryEntry& entry = control.directory[(usual_entry(key) + looks) % ControlArea::kKeys];
    const std::uint64_t there = entry.key.load(std::memory_order_acquire);
    if (there == 0) break;
    if (there != key) continue;
    const std::uint64_t place = entry.place.load(std::memory_order_acquire);
    if (entry.key.load(std::memory_order_acquire) != key) continue;
    if (place < kFirstFreeLine || place >= ControlArea::kLines || count > ControlArea::kLines - place)
      break;  // out of range: the entry is invalid
    return static_cast<std::uint32_t>(place);
  }
  return std::nullopt;
}

}  // namespace aiacc
