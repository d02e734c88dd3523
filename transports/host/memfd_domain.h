// MemfdDomain: the HostDomain of real processes and of threads as ranks, on the segment of their host.
//
// Waiting. A writer publishes, then reads the host's bitmap of sleepers, and rings each rank that sleeps on that line.
// A rank that is about to block records which lines it waits for, sets its bit among the sleepers, and then checks its
// flags once more (Dekker: publish() stores the flag and loads `sleepers`; about_to_block() stores `sleepers` and loads
// the flag, so at least one side sees the other). The fence that this needs between store and load on both sides is the
// sleeper's alone (base/asymmetric_fence.h): a publisher would wait in it for the cache line that its readers hold, longer than
// for all else in a small call. Where a rank's system has no such fence, all publishers of the host fence. Whoever rings takes the
// bit away first, so that a rank which takes some time to wake up is rung once and not by each store until then: it looks at all its
// flags when it is awake, and sets its bit again before it blocks again. A rank that dies in between is reported to all, which
// wakes them too.
#pragma once

#include <memory>
#include <vector>

#include "base/io/real_loop.h"
#include "transports/host/doorbell.h"
#include "transports/host/segment_domain.h"

namespace aiacc {

class MemfdDomain final : public SegmentDomain, private io::Poller, private io::BlockGuard {
 public:
  // For a process: maps the segment. The descriptor may be closed afterwards.
  static std::unique_ptr<MemfdDomain> attach(int descriptor, std::uint64_t nonce, int rank, int size,
                                             io::RealLoop& loop);
  // Threads as ranks share one mapping.
  MemfdDomain(std::shared_ptr<SegmentMapping> mapping, int rank, io::RealLoop& loop);
  ~MemfdDomain() override;

  Loop& loop() noexcept override { return loop_; }
  bool ranks_run_meanwhile() const noexcept override { return true; }
  bool can_read(int owner) noexcept override;
  void read_private(int owner, const std::byte* from, std::span<std::byte> into) override;
  void publish(std::uint32_t line, std::uint32_t word, std::uint64_t value) noexcept override;
  // As on a system without a fence for all processes: for tests.
  void refuse_fence() noexcept;
  // How often this rank has rung others, ever: for tests.
  std::uint64_t rings() const noexcept { return rings_; }

 protected:
  bool look(FlagAwait& wait) override;
  void begin_wait(FlagAwait& wait) noexcept override;
  void cancel_wait(FlagAwait& wait) noexcept override;

 private:
  bool look_at_flags() noexcept override;
  bool about_to_block() noexcept override;
  void woke() noexcept override;

  bool reached(const FlagAwait& wait) const noexcept;
  bool complete_reached(IntrusiveList<FlagAwait>& waits) noexcept;
  void ring_sleepers(std::uint64_t lines) noexcept;
  bool fence_before_block() noexcept;

  // With the probe behind it, which shows that it was the owner, not a process with the same id in another pid namespace, or after its end.
  // Sets errno if it returns false.
  bool read_process(int owner, const std::byte* from, std::span<std::byte> into) const noexcept;

  enum class Access : std::uint8_t { kUnknown, kNone, kThroughKernel };
  io::RealLoop& loop_;
  std::uint64_t probe_ = 0;  // peers read it to find out whether they can read this process
  std::vector<Access> access_;
  Doorbell bell_;
  const int spins_;  // checks of a flag before its wait is handed to the loop

  IntrusiveList<FlagAwait> waits_;
  IntrusiveList<FlagAwait> urgent_waits_;
  std::uint64_t news_seen_ = 0;
  std::uint64_t rings_ = 0;
  bool asleep_ = false;
  bool fences_for_all_ = false;
};

}  // namespace aiacc
