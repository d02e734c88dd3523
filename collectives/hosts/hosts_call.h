// HostsCall: what every collective of a group over several hosts starts from: where its members are, and its two kinds of
// phases. On a host they run over the HostTeam, whose turn the call holds from its first phase to its last; between hosts
// some ranks run an algorithm over messages among themselves.
//
// Members of a host split what travels: shard s of a payload is reduced, exchanged and given out by the member of place s
// on each host. There are as many shards as the host with the fewest members has members, or one.
#pragma once

#include <span>
#include <vector>

#include "collectives/host/extents.h"
#include "collectives/operation.h"
#include "transports/exchange.h"

namespace aiacc::hosts {

class HostsCall {
 public:
  HostsCall(Operation& operation, Exchange& exchange) noexcept
      : op(operation),
        view(*operation.team.view),
        host(view.host_of(operation.team.rank)),
        place(view.place_of(operation.team.rank)),
        exchange_(exchange),
        first_step_(operation.part == nullptr ? 0 : operation.part->first_step) {}
  // A collective that is a part of this one.
  HostsCall(Operation& operation, const HostsCall& whole) noexcept : HostsCall(operation, whole.exchange_) {}

  // Members of the group on `of`, and here.
  int members_of(int of) const noexcept { return static_cast<int>(view.ranks_on_host(of).size()); }
  int here() const noexcept { return members_of(host); }
  bool alone() const noexcept { return here() == 1; }
  bool is_leader() const noexcept { return place == 0; }
  int leader() const noexcept { return view.ranks_on_host(host).front(); }
  // Of `of`'s ranks the first, but the root where it is one of them.
  int representative(int of, int root) const noexcept {
    return view.host_of(root) == of ? root : view.ranks_on_host(of).front();
  }
  // Ranks of this host in the group host by host: where they begin.
  std::size_t first_of(int of) const noexcept;
  bool host_by_host() const noexcept;  // the group's ranks are in that order

  // The reduction of a phase on the host: everything but its end, which is the network's.
  Reduction reduction_on_host() const noexcept;
  Reduction reduction_between() const noexcept;  // of what the host has reduced; the whole, if this rank is alone on it
  // 16-bit floats leave a host as partial sums in fp32, so that they are rounded once: a rank that is alone on its host
  // widens its input, as the others' messages are in fp32.
  bool has_partials() const noexcept { return op.call.reduction.narrows(); }
  std::size_t partial_bytes() const noexcept { return reduction_on_host().result_bytes(); }  // of an element

  Exchange& exchange() const noexcept { return exchange_; }

  // --- phases on this host; if this rank is alone on it, partial sums are its widened input and nothing else happens ----
  Task<void> on_host(Call call, Buffer send, Buffer recv, Stop& stop);
  Task<void> reduce_on_host(Buffer send, std::span<const host::Extents> owners, Buffer into, Stop& stop);
  Task<void> spread_on_host(std::span<const host::Extents> owners, Buffer recv, Stop& stop);

  // --- phases between hosts ---------------------------------------------------------------------------------------------
  // Among the ranks of this one's place on all hosts.
  Task<void> between_places(Call call, Buffer send, Buffer recv, std::span<const Extent> blocks,
                            std::uint64_t first_step, Stop& stop);
  // Among all ranks, but for what passes between those of a host. A rank that is alone on its host passes its own block.
  Task<void> between_all(Call call, Buffer send, Buffer recv, Stop& stop);
  // Among the representatives of all hosts, of whom this is one.
  Task<void> between_representatives(Call call, Buffer send, Buffer recv, std::uint64_t first_step, Stop& stop);

  Operation& op;
  const View& view;
  const int host;
  const int place;

 private:
  Task<void> widen(const Reduction& reduction, Buffer send, const host::Extents& extents, Buffer into);
  Task<void> between(Call call, std::vector<int> members, Buffer send, Buffer recv, std::span<const Extent> blocks,
                     std::uint64_t first_step, Stop& stop);

  Exchange& exchange_;
  std::uint64_t first_step_;
};

}  // namespace aiacc::hosts
