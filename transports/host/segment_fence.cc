// The store fence of SegmentDomain (design decision 6): after quiesce() no peer changes the range, whatever state it is in.
//
// A storer writes the operation into kStoring and then loads `store_aborts`; whoever aborts writes its abort ring, adds to
// `store_aborts` and then loads every kStoring. All seq_cst (Dekker): either the storer sees the abort before its first
// store, or the one who aborts sees the storer and waits. A storer looks again once a chunk.
//
// A frozen storer cannot clear its mark. After a second the owner replaces the pages by a private copy. The storer's own
// mapping still refers to the shared pages, so stores after it thaws change nothing that is read. Ranks of the same process
// share a mapping and cannot be fenced in this way; quiesce() waits for them, because one thread is never frozen alone.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "transports/host/segment_domain.h"

namespace aiacc {
namespace {

constexpr Duration kQuiesceLimit = std::chrono::seconds(1);

Error aborted_error() {
  return Error(Code::kAborted, "another rank of this host gave up the operation whose results this rank was storing");
}

}  // namespace

void SegmentDomain::begin_stores(std::uint64_t operation) {
  AIACC_INVARIANT(operation != 0, "0 marks a rank that does not store");
  std::atomic<std::uint64_t>& storing = word(rank_, kCountsLine, kStoring);
  AIACC_INVARIANT(storing.load(std::memory_order_relaxed) == 0, "one store window at a time: close it before an await");
  storing.store(operation, std::memory_order_seq_cst);
  try {
    throw_if_aborted();
  } catch (...) {
    end_stores();
    throw;
  }
}

void SegmentDomain::check_stores() { throw_if_aborted(); }

void SegmentDomain::end_stores() noexcept {
  std::atomic<std::uint64_t>& storing = word(rank_, kCountsLine, kStoring);
  if (storing.load(std::memory_order_relaxed) == 0) return;
  storing.store(0, std::memory_order_release);
  const std::uint64_t closed = word(rank_, kCountsLine, kWindowsClosed).load(std::memory_order_relaxed);
  publish(kCountsLine, kWindowsClosed, closed + 1);
}

void SegmentDomain::throw_if_aborted() {
  if (mapping_->header().store_aborts.load(std::memory_order_seq_cst) != aborts_seen_) collect_aborts();
  const std::uint64_t operation = word(rank_, kCountsLine, kStoring).load(std::memory_order_relaxed);
  if (!aborted_.empty() && aborted_.contains(operation)) throw aborted_error();
}

// Each rank's ring keeps its last kAbortRing aborts. If some were overwritten before this rank read them, one of them may have
// been that of its own operation, which therefore ends.
void SegmentDomain::collect_aborts() {
  aborts_seen_ = mapping_->header().store_aborts.load(std::memory_order_seq_cst);
  bool missed = false;
  for (int rank = 0; rank < size(); ++rank) {
    std::uint64_t& seen = aborts_seen_of_[static_cast<std::size_t>(rank)];
    const std::uint64_t made = word(rank, kCountsLine, kAborts).load(std::memory_order_acquire);
    for (std::uint64_t i = made - std::min(made - seen, kAbortRing); i < made; ++i) {
      const auto at = static_cast<std::uint32_t>(i % kAbortRing);
      aborted_.insert(word(rank, kAbortLine + at / 16, at % 16).load(std::memory_order_acquire));
    }
    const std::uint64_t made_meanwhile = word(rank, kCountsLine, kAborts).load(std::memory_order_acquire);
    missed |= made_meanwhile - seen > kAbortRing;
    seen = made;
  }
  if (missed) throw aborted_error();
}

void SegmentDomain::abort_stores(std::uint64_t operation) noexcept {
  std::atomic<std::uint64_t>& aborts = word(rank_, kCountsLine, kAborts);
  const std::uint64_t made = aborts.load(std::memory_order_relaxed);
  const auto at = static_cast<std::uint32_t>(made % kAbortRing);
  word(rank_, kAbortLine + at / 16, at % 16).store(operation, std::memory_order_release);
  aborts.store(made + 1, std::memory_order_release);
  mapping_->header().store_aborts.fetch_add(1, std::memory_order_seq_cst);
}

void SegmentDomain::mark_dead(int rank) noexcept {
  dead_[static_cast<std::size_t>(rank)] = 1;
  mapping_->header().sleepers[static_cast<std::size_t>(rank) / 64].fetch_and(~(std::uint64_t{1} << (rank % 64)),
                                                                             std::memory_order_relaxed);
  quiescing_.for_each([rank](Quiescing& quiescing) {
    quiescing.stop->request(std::make_exception_ptr(Error(Code::kPeerFailed, "a rank died: look again", rank)));
  });
}

Task<void> SegmentDomain::quiesce(std::uint64_t operation, HostRange range) {
  const Instant give_up = after(loop().now(), kQuiesceLimit);
  bool frozen = false;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    const bool thread = word(rank, kCountsLine, kMapping).load(std::memory_order_relaxed) == mapping_->id();
    for (;;) {
      // The number of closed windows is read before the mark: if the mark is set afterwards, that window is still open and its
      // close will raise the number.
      const std::uint64_t closed = word(rank, kCountsLine, kWindowsClosed).load(std::memory_order_seq_cst);
      if (dead_[static_cast<std::size_t>(rank)] != 0) break;
      if (word(rank, kCountsLine, kStoring).load(std::memory_order_seq_cst) != operation) break;
      Stop stop;
      Deadline deadline(loop(), thread ? kNever : give_up, stop, "a peer is stopped in the middle of its stores");
      Quiescing quiescing;
      quiescing.stop = &stop;
      quiescing_.push_back(quiescing);
      const FlagRef flag{rank, kCountsLine, kWindowsClosed};
      bool timed_out = false;
      try {
        co_await at_least(flag, closed + 1, stop);
      } catch (const Error& error) {
        timed_out = error.code() == Code::kTimeout;
      }
      if (!timed_out) continue;
      frozen = true;
      break;
    }
  }
  if (frozen) replace_pages(range);
}

void SegmentDomain::replace_pages(HostRange range) {
  if (range.bytes == 0) return;
  const SliceAllocator::Pages pages = SliceAllocator::pages_of(range.offset, range.bytes);
  Mapping copy = Mapping::make(pages.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (!copy) throw system_error("cannot save a buffer from a rank that is stopped while it stores", errno);
  std::byte* place = mapping_->slice(rank_) + pages.offset;
  std::memcpy(copy.data(), place, pages.bytes);
  {
    const std::lock_guard lock(memory_mutex_);
    memory_.retire(range.offset, range.bytes);
  }
  if (mremap(copy.data(), pages.bytes, pages.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED) {
    throw system_error("cannot save a buffer from a rank that is stopped while it stores", errno);
  }
  copy.release();  // the pages now belong to the buffer
}

}  // namespace aiacc
