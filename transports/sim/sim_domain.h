// SimDomain: the HostDomain of simulated ranks. Memory, lines and fence are those of real processes: each rank has its
// own mapping of a real segment, so aliasing is real. Waiting is an event in virtual time.
#pragma once

#include <memory>
#include <vector>

#include "base/sim/sim_loop.h"
#include "transports/host/segment_domain.h"

namespace aiacc::sim {

class SimDomain;

// The segment of one simulated host.
class SimHostMemory {
 public:
  // A waiter sees a published flag `visible_after` later, which models a cache line that moves between cores.
  SimHostMemory(World& world, int ranks, std::uint64_t slice_bytes = std::uint64_t{64} << 20,
                Duration visible_after = std::chrono::nanoseconds(100));

  // The domain of `rank` (its number among the host's ranks); it must be destroyed before this object.
  std::unique_ptr<SimDomain> attach(int rank, SimLoop& loop);

 private:
  friend class SimDomain;
  Duration visible_after_;
  std::uint64_t nonce_;
  HostSegment segment_;
  std::vector<SimDomain*> members_;
};

class SimDomain final : public SegmentDomain {
 public:
  SimDomain(SimHostMemory& host, std::shared_ptr<SegmentMapping> mapping, int rank, SimLoop& loop);
  ~SimDomain() override;

  Loop& loop() noexcept override { return loop_; }
  void publish(std::uint32_t line, std::uint32_t word, std::uint64_t value) noexcept override;

 protected:
  void begin_wait(FlagAwait& wait) noexcept override { waits_.push_back(wait); }
  void cancel_wait(FlagAwait& wait) noexcept override { static_cast<ListNode<FlagAwait>&>(wait).unlink(); }

 private:
  struct News final : Event {
    explicit News(SimDomain& domain) noexcept : Event(EventKind::kFlag), owner(domain) {}
    void happen() noexcept override { owner.complete_reached(); }
    SimDomain& owner;
  };
  void hear() noexcept;
  void complete_reached() noexcept;

  SimHostMemory& host_;
  SimLoop& loop_;
  IntrusiveList<FlagAwait> waits_;
  News news_{*this};
};

}  // namespace aiacc::sim
