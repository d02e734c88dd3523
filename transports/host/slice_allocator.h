// SliceAllocator: which parts of a rank's slice are in use. Only the owner has it; peers see offsets.
//
// An allocation owns whole pages, because the fence replaces pages. It begins at an offset in its first page that
// differs by rank (its colour). With equal alignment, the loads and stores of a reduction over all ranks' buffers would
// map to the same sets of the first-level cache, and to addresses with equal low 12 bits, which a core treats as a
// dependency (4K aliasing).
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "transports/host/host_domain.h"

namespace aiacc {

class SliceAllocator {
 public:
  SliceAllocator(std::uint64_t slice_bytes, int rank) noexcept;

  struct Pages {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  // The range for the caller; nullopt if the address space of the slice is used up.
  std::optional<HostRange> take(std::uint64_t bytes);
  // Removes the allocation that begins at `offset` and returns its pages; retired: their offsets are never used again.
  struct Taken {
    Pages pages;
    bool retired = false;
  };
  std::optional<Taken> give_back(std::uint64_t offset);
  // The allocation's pages, if all of [offset, offset + bytes) lies in one that is not retired.
  bool covers(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  // Marks every allocation that shares a page with [offset, offset + bytes) as private: peers no longer see its pages.
  void retire(std::uint64_t offset, std::uint64_t bytes) noexcept;

  static Pages pages_of(std::uint64_t offset, std::uint64_t bytes) noexcept;
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }

 private:
  struct Allocation {
    std::uint64_t bytes = 0;  // what the caller asked for
    Pages pages;
    bool retired = false;
  };
  void add_free(Pages pages);

  std::uint64_t colour_;
  std::uint64_t used_bytes_ = 0;
  std::map<std::uint64_t, Allocation> allocations_;  // by the caller's offset
  std::map<std::uint64_t, std::uint64_t> free_;      // offset to bytes; neighbours are merged
};

}  // namespace aiacc
