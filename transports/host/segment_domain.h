// SegmentDomain: the common part of every HostDomain over a host's segment, independent of how it waits: memory,
// control lines, and the fence (segment_fence.cc). MemfdDomain waits as processes do, the simulator's SimDomain in
// virtual time.
//
// A domain belongs to its loop's thread, except allocate(), free() and offset_of(), which any thread may call.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "transports/host/segment.h"
#include "transports/host/slice_allocator.h"

namespace aiacc {

class SegmentDomain : public HostDomain {
 public:
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return mapping_->ranks(); }

  using HostDomain::view;
  std::byte* view(int owner, std::uint64_t offset, std::uint64_t bytes) override {
    const std::uint64_t slice = mapping_->slice_bytes();
    if (offset > slice || bytes > slice - offset) [[unlikely]]
      throw_outside(owner, offset, bytes);
    return mapping_->slice(owner) + offset;
  }
  std::span<const std::byte> slice(int owner) const noexcept override {
    return {mapping_->slice(owner), mapping_->slice_bytes()};
  }
  HostRange allocate(std::uint64_t bytes) override;
  void free(HostRange range) noexcept override;
  std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const noexcept override;

  std::uint32_t claim_lines(std::uint64_t key, std::uint32_t count) override;
  void release_lines(std::uint64_t key) noexcept override;
  std::optional<std::uint32_t> find_lines(int owner, std::uint64_t key, std::uint32_t count) const noexcept override;
  const ControlLine& line(int owner, std::uint32_t line) const noexcept override {
    return mapping_->control(owner).line[line];
  }
  ControlLine& own_line(std::uint32_t line) noexcept override { return mapping_->control(rank_).line[line]; }

  // segment_fence.cc
  void begin_stores(std::uint64_t operation) override;
  void check_stores() override;
  void end_stores() noexcept override;
  void abort_stores(std::uint64_t operation) noexcept override;
  Task<void> quiesce(std::uint64_t operation, HostRange range) override;
  void mark_dead(int rank) noexcept override;

  // The release store pairs with the acquire load: a rank that learns of a process's end sees what that process stored before.
  void say_leaving() noexcept override { word(rank_, kCountsLine, kLeaving).store(1, std::memory_order_release); }
  bool leaving(int rank) const noexcept override {
    return line(rank, kCountsLine).word[kLeaving].load(std::memory_order_acquire) != 0;
  }

 protected:
  SegmentDomain(std::shared_ptr<SegmentMapping> mapping, int rank);

  // Each rank's own lines, before those that groups claim.
  enum OwnLine : std::uint32_t {
    kCountsLine = 0,  // HostDomain::claims() is its word 0
    kSleepLine = 1,
    kAbortLine = 2,  // and the fifteen after it
    kFirstFreeLine = 18,
  };
  enum CountsWord : std::uint32_t {
    kClaims = 0,
    kWindowsClosed = 1,  // store windows that were closed
    kStoring = 2,        // the operation whose stores are under way, 0 if none
    kAborts = 3,         // abort_stores() calls of this rank; the last kAbortRing of them stand from kAbortLine on
    kMapping = 4,        // SegmentMapping::id()
    kProcess = 5,        // for peers that read this rank's memory: its process id,
    kProbe = 6,          // the address of a probe value in it,
    kProbeValue = 7,     // and the value itself
    kLeaving = 8,        // 1: this rank leaves in order
  };
  enum SleepWord : std::uint32_t { kInterest = 0, kBellName = 1 };
  static constexpr std::uint64_t kAbortRing = 256;

  std::atomic<std::uint64_t>& word(int owner, std::uint32_t line, std::uint32_t word) noexcept {
    return mapping_->control(owner).line[line].word[word];
  }

  std::shared_ptr<SegmentMapping> mapping_;
  const int rank_;

 private:
  struct Claim {
    std::uint64_t key;
    std::uint32_t first;
    std::uint32_t count;
    std::uint32_t entry;
  };
  // Wakes quiesce() when a rank dies.
  struct Quiescing : ListNode<Quiescing> {
    Stop* stop = nullptr;
  };

  [[noreturn]] void throw_outside(int owner, std::uint64_t offset, std::uint64_t bytes) const;
  std::uint32_t find_free_lines(std::uint32_t count);
  void collect_aborts();
  void throw_if_aborted();
  void replace_pages(HostRange range);

  mutable std::mutex memory_mutex_;  // guards memory_
  SliceAllocator memory_;

  std::vector<Claim> claims_;  // by first line
  std::uint32_t next_line_ = kFirstFreeLine;

  std::vector<char> dead_;
  IntrusiveList<Quiescing> quiescing_;
  std::uint64_t aborts_seen_ = 0;              // SegmentHeader::store_aborts
  std::vector<std::uint64_t> aborts_seen_of_;  // of each rank
  std::unordered_set<std::uint64_t> aborted_;  // operations
};

}  // namespace aiacc
