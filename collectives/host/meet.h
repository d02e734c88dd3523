// Steps that all algorithms on a host begin and end with.
#pragma once

#include <algorithm>

#include "collectives/host/host_team.h"

namespace aiacc::host {

// What most algorithms need of an operation.
struct HostCall {
  Operation& op;
  HostTeam& team;
  HostDomain& domain;
  std::uint64_t number;  // of its arrival

  HostCall(Operation& operation, std::uint64_t arrival) noexcept
      : op(operation), team(*operation.team.host), domain(team.domain()), number(arrival) {}
  int me() const noexcept { return team.me(); }
  int size() const noexcept { return team.size(); }
  std::byte* view(int member, std::uint64_t offset) const noexcept {
    return domain.view(team.domain_rank(member), offset);
  }
};

// Publishes the arrival of `op`, with the places of its buffers, and returns when all have arrived and agree.
Task<std::uint64_t> meet(Operation& op);
// Returns when all have arrived at `number`; throws kMismatch if they do not agree.
Task<void> await_arrivals(Operation& op, std::uint64_t number);
// Returns when every other member's counter is at least `value`.
Task<void> await_all(Operation& op, HostTeam::Word word, std::uint64_t value);
// Publishes that I am done and returns when all are: nobody reads my buffers or stores into them any more.
Task<void> part(Operation& op, std::uint64_t number);

// Lets other work of the loop run.
class Yield final : public Leaf {
 public:
  using Leaf::Leaf;

 private:
  void begin() noexcept override { complete(); }
  void cancel() noexcept override {}
};

// Element ranges. Slices begin on cache lines, so that no two members store into one.
struct Slices {
  std::size_t count;  // elements in all
  std::size_t slice;  // elements a member, but for the last ones
  Slices(std::size_t elements, std::size_t element_bytes, int members) noexcept;
  std::size_t begin(int member) const noexcept { return std::min(count, slice * static_cast<std::size_t>(member)); }
  std::size_t length(int member) const noexcept { return begin(member + 1) - begin(member); }
};

}  // namespace aiacc::host
