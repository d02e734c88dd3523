// ShmLocalTeam: the LocalTeam of ranks that share memory. Its phases are the algorithms of collectives/intra, and each of
// its LocalPhases has control lines and staging memory of its own.
#pragma once

#include <deque>
#include <vector>

#include "collectives/hier/local_team.h"
#include "collectives/intra/intra_team.h"

namespace aiacc::hier {

class ShmLocalTeam final : public LocalTeam {
 public:
  // Operations of a group that overlap on a host. A gradient engine keeps two to eight in flight; while one is between
  // hosts for 50 µs, the phases of three more on the host take about as long. Each may need 1.7 MiB of staging and pack
  // memory of each member, which is allocated by the first operation that uses it.
  static constexpr std::size_t kOverlapping = 4;

  // `team` names the group and this rank's loop and compute; `domain_ranks` as in IntraTeam.
  ShmLocalTeam(HostDomain& domain, const Team& team, const std::vector<int>& domain_ranks);

  // As IntraTeam's.
  Task<void> open(Stop& stop);
  void set_closed() noexcept;

  LocalPhases& phases_of(std::uint64_t sequence) noexcept override { return phases_[sequence % phases_.size()]; }

 private:
  class Phases final : public LocalPhases {
   public:
    Phases(HostDomain& domain, const Team& team, const std::vector<int>& domain_ranks, std::uint32_t index);
    Task<void> reduce_scatter(Operation& phase, std::span<const intra::Extents> owners, Buffer into) override;
    Task<void> exchange(Operation& phase) override;
    Task<void> all_gather(Operation& phase, std::span<const intra::Extents> owners) override;
    Buffer pack_memory(std::size_t bytes) override { return intra_.pack_memory(bytes); }
    IntraTeam& intra() noexcept { return intra_; }

   private:
    Operation here(const Operation& phase) noexcept;

    IntraTeam intra_;
    Team team_;
  };

  std::deque<Phases> phases_;
};

}  // namespace aiacc::hier
