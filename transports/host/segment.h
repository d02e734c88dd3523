// The segment of a host: one sparse memfd that all its ranks map. The process that starts the ranks creates it
// (HostSegment: the agent, or the process whose threads are ranks); each rank maps it once (SegmentMapping; threads as
// ranks share one).
//
//   page 0              SegmentHeader: the job's identity, and the few words that every rank writes
//   then for each rank  control area: directory of claimed lines, control lines
//   then for each rank  slice: address space for what the rank allocates
//
// Only pages that are used cost memory. The creator seals the size, and an unsealed segment is never mapped, so a peer
// cannot truncate pages under a reader. Ranks of a host trust each other's payload bytes, but check every offset and
// length.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/cgroups.h"
#include "base/fd.h"
#include "base/mapping.h"
#include "transports/host/host_domain.h"

namespace aiacc {

struct SegmentHeader {
  static constexpr std::uint64_t kMagic = 0x746e656d67657361;  // "asegment"
  static constexpr std::uint32_t kVersion = 5;
  static constexpr int kMaxRanks = 1024;

  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t ranks = 0;
  std::uint64_t nonce = 0;
  std::uint64_t slice_bytes = 0;

  // Bit r % 64 of word r / 64: rank r is blocked or about to block. Every publisher reads this word, so it has a line
  // of its own.
  alignas(128) std::array<std::atomic<std::uint64_t>, kMaxRanks / 64> sleepers{};
  // Counts calls of abort_stores() on this host.
  alignas(128) std::atomic<std::uint64_t> store_aborts{0};
  // Counts urgent publications (HostDomain::kUrgent) on this host.
  alignas(128) std::atomic<std::uint64_t> urgent_news{0};
  // Not 0: a rank of this host cannot fence for the others before it blocks, so each publisher has to fence.
  alignas(128) std::atomic<std::uint64_t> publishers_fence{0};
};

// Where a rank's lines for a key are. The owner writes key 0 or kTombstone, then the place, then the key with release order;
// a reader that sees the same key before and after it reads the place has a consistent pair. A search ends at an entry
// that never had a key (0), and continues past one whose key was removed.
struct DirectoryEntry {
  static constexpr std::uint64_t kTombstone = ~std::uint64_t{0};
  std::atomic<std::uint64_t> key{0};
  std::atomic<std::uint64_t> place{0};  // first line
};

// Room for about 2,000 groups of one host with 78 lines under three keys each, or 1,000 over several hosts with some 30 lines
// under six. Pages are used only as lines are claimed.
struct ControlArea {
  static constexpr std::uint32_t kLines = 163'840;
  static constexpr std::uint32_t kKeys = 8'192;

  ControlLine line[kLines];
  DirectoryEntry directory[kKeys];
};

class HostSegment {
 public:
  // Refuses, before any page is touched, when the limits on file size (ulimit -f) or memory (control groups,
  // MemAvailable) are below the minimum that `ranks` need. `nonce` is random; with it a rank checks that it mapped the
  // segment that it was told to map. slice_bytes 0: as much as the host has memory.
  static HostSegment create(int ranks, std::uint64_t slice_bytes, std::uint64_t nonce);
  static HostSegment create(int ranks, std::uint64_t slice_bytes, std::uint64_t nonce, const ReadFile& read_file);

  // The slice size that slice_bytes 0 stands for on this host.
  static std::uint64_t default_slice_bytes(int ranks, const ReadFile& read_file);

  // Memory that every rank touches at start: its control lines and the staging memory of one group
  // (collectives/intra/intra_team.h).
  static constexpr std::uint64_t kNeedPerRank = std::uint64_t{2} << 20;

  int descriptor() const noexcept { return memfd_.get(); }
  std::uint64_t nonce() const noexcept { return nonce_; }
  int ranks() const noexcept { return ranks_; }

 private:
  HostSegment(Fd memfd, int ranks, std::uint64_t nonce) : memfd_(std::move(memfd)), ranks_(ranks), nonce_(nonce) {}
  Fd memfd_;
  int ranks_;
  std::uint64_t nonce_;
};

class SegmentMapping {
 public:
  // Throws kProtocol if the descriptor is not a sealed segment of its full size with this nonce and number of ranks, and
  // kOutOfMemory if the address space (ulimit -v) is too small for it. The descriptor may be closed afterwards.
  static std::shared_ptr<SegmentMapping> map(int descriptor, std::uint64_t nonce, int ranks);
  SegmentMapping(const SegmentMapping&) = delete;
  SegmentMapping& operator=(const SegmentMapping&) = delete;

  SegmentHeader& header() noexcept { return *reinterpret_cast<SegmentHeader*>(pages_.data()); }
  ControlArea& control(int rank) noexcept {
    return *reinterpret_cast<ControlArea*>(pages_.data() + kHeaderBytes +
                                           static_cast<std::size_t>(rank) * kControlBytes);
  }
  std::byte* slice(int rank) noexcept { return slices_ + static_cast<std::size_t>(rank) * slice_bytes_; }
  std::uint64_t slice_bytes() const noexcept { return slice_bytes_; }
  int ranks() const noexcept { return ranks_; }
  // Random and not 0: distinguishes ranks that share this mapping from ranks with another one.
  std::uint64_t id() const noexcept { return id_; }

  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kHeaderBytes = kPage;
  static constexpr std::size_t kControlBytes = (sizeof(ControlArea) + kPage - 1) / kPage * kPage;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  // Where the slices begin, and the whole.
  static std::uint64_t slices_at(int ranks) noexcept;
  static std::uint64_t total_bytes(int ranks, std::uint64_t slice_bytes) noexcept;

 private:
  SegmentMapping(Mapping pages, int ranks, std::uint64_t slice_bytes);

  Mapping pages_;
  std::byte* slices_;
  std::uint64_t slice_bytes_;
  int ranks_;
  std::uint64_t id_ = 0;
};
static_assert(sizeof(SegmentHeader) <= SegmentMapping::kHeaderBytes);

// Touches all pages of [begin, begin + bytes) of a shared mapping; throws kOutOfMemory where a plain store would raise
// SIGBUS.
void populate(std::byte* begin, std::size_t bytes);

}  // namespace aiacc
