// collectives/hier: collectives of groups over several hosts, composed of phases on a host (collectives/intra) and
// phases between hosts (collectives/inter). Not here: the algorithms of the phases.
//
// HierCall: the common base of these collectives: where the members are, and the two kinds of phases. Phases on a host
// run over one of the LocalTeam's LocalPhases, whose turn the call holds from its first phase to its last; in phases
// between hosts a subset of the ranks runs an algorithm over messages.
//
// The members of a host split the payload: on each host the member with local rank s reduces, exchanges and distributes
// shard s. The number of shards is the number of members on the host with the fewest, or one.
#pragma once

#include <span>
#include <vector>

#include "collectives/hier/local_team.h"
#include "collectives/intra/extents.h"
#include "collectives/operation.h"
#include "transports/exchange.h"

namespace aiacc::hier {

class HierCall {
 public:
  // `local` is null if this rank is alone on its host.
  HierCall(Operation& operation, Exchange& exchange, LocalPhases* local) noexcept
      : op(operation),
        view(*operation.team.view),
        host(view.host_of(operation.team.rank)),
        local_rank(view.local_rank_of(operation.team.rank)),
        exchange_(exchange),
        local_(local),
        first_step_(operation.part == nullptr ? 0 : operation.part->first_step) {}
  // For a collective that is part of `whole`.
  HierCall(Operation& operation, const HierCall& whole) noexcept : HierCall(operation, whole.exchange_, whole.local_) {}

  // Number of the group's members on host `of`, and on this one.
  int members_of(int of) const noexcept { return static_cast<int>(view.ranks_on_host(of).size()); }
  int here() const noexcept { return members_of(host); }
  bool alone() const noexcept { return here() == 1; }
  bool is_leader() const noexcept { return local_rank == 0; }
  int leader() const noexcept { return view.ranks_on_host(host).front(); }
  // The root if it is on that host, otherwise the host's first rank.
  int representative(int of, int root) const noexcept {
    return view.host_of(root) == of ? root : view.ranks_on_host(of).front();
  }
  // The position of the first rank of host `of` in the order host by host.
  std::size_t first_of(int of) const noexcept;
  bool host_by_host() const noexcept;  // whether the group's ranks are numbered in that order

  // The reduction of a phase on the host: without the final step, which belongs to the phase between hosts.
  Reduction reduction_on_host() const noexcept;
  // of the host's results; the complete reduction if this rank is alone on its host
  Reduction reduction_between() const noexcept;
  // 16-bit floats leave a host as partial sums in fp32, so that they are rounded once. A rank that is alone on its host
  // widens its input, because the other hosts' messages are in fp32.
  bool has_partials() const noexcept { return op.call.reduction.narrows() && !op.call.reduction.rounds_phases; }
  std::size_t partial_bytes() const noexcept { return reduction_on_host().result_bytes(); }  // of an element

  Exchange& exchange() const noexcept { return exchange_; }

  // Memory for packed tensors with which the phases on this host work best; without bytes if there is none.
  Buffer pack_memory(std::size_t bytes) const { return alone() ? Buffer{} : local_->pack_memory(bytes); }

  // --- phases on this host; if this rank is alone on it, partial sums are its widened input and nothing else happens ----
  Task<void> on_host(Call call, Buffer send, Buffer recv, Stop& stop);
  Task<void> reduce_on_host(Buffer send, std::span<const intra::Extents> owners, Buffer into, Stop& stop);
  Task<void> spread_on_host(std::span<const intra::Extents> owners, Buffer recv, Stop& stop);

  // --- phases between hosts ---------------------------------------------------------------------------------------------
  // Among the ranks of all hosts that have this rank's local rank.
  Task<void> between_same_local_ranks(Call call, Buffer send, Buffer recv, std::span<const Extent> blocks,
                                      std::uint64_t first_step, Stop& stop);
  // Among all ranks, without the blocks between ranks of one host. A rank that is alone on its host includes its own
  // block.
  Task<void> between_all(Call call, Buffer send, Buffer recv, Stop& stop);
  // Among the representatives of all hosts, which the root of `call` says; this rank must be one.
  Task<void> between_representatives(Call call, Buffer send, Buffer recv, std::span<const Extent> blocks,
                                     std::uint64_t first_step, Stop& stop);

  Operation& op;
  const View& view;
  const int host;
  const int local_rank;

 private:
  Task<void> widen(const Reduction& reduction, Buffer send, const intra::Extents& extents, Buffer into, Stop& stop);
  Task<void> between(Call call, std::vector<int> members, Buffer send, Buffer recv, std::span<const Extent> blocks,
                     std::uint64_t first_step, Stop& stop);

  Exchange& exchange_;
  LocalPhases* local_;
  std::uint64_t first_step_;
};

}  // namespace aiacc::hier
