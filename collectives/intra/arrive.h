// The steps with which all algorithms on a host begin and end.
#pragma once

#include <algorithm>

#include "collectives/intra/intra_team.h"

namespace aiacc::intra {

// After this many bytes a member lets other operations of its lane run: a fifth of a millisecond.
inline constexpr std::size_t kBytesAtOnce = 1 << 20;

// The parts of an operation that most algorithms use.
struct IntraCall {
  Operation& op;
  IntraTeam& team;
  HostDomain& domain;
  std::uint64_t number;  // of the operation's arrival

  IntraCall(Operation& operation, std::uint64_t arrival) noexcept
      : op(operation), team(*operation.team.host), domain(team.domain()), number(arrival) {}
  int me() const noexcept { return team.me(); }
  int size() const noexcept { return team.size(); }
  // Throws kProtocol if the range is not within the member's slice.
  std::byte* view(int member, std::uint64_t offset, std::uint64_t bytes) const {
    return domain.view(team.domain_rank(member), offset, bytes);
  }
};

// Publishes the arrival of `op`, with the places of its buffers, and returns when all have arrived and agree.
Task<std::uint64_t> arrive(Operation& op);
// Returns when all have arrived at `number`; throws kMismatch if they do not agree.
Task<void> await_arrivals(Operation& op, std::uint64_t number);
// Returns when every other member's counter is at least `value`.
Task<void> await_all(Operation& op, IntraTeam::Word word, std::uint64_t value);
// Publishes that this member is done and returns when all are: then no member reads or writes this member's buffers any
// more.
Task<void> part(Operation& op, std::uint64_t number);

// Yields to other work of the loop.
class Yield final : public Leaf {
 public:
  using Leaf::Leaf;

 private:
  void begin() noexcept override { complete(); }
  void cancel() noexcept override {}
};

// Splits elements into one slice for each member. Slices begin on cache lines, so that no two members store into the
// same line.
struct Slices {
  std::size_t count;  // elements in all
  std::size_t slice;  // elements of each member; the last ones may have fewer
  Slices(std::size_t elements, std::size_t element_bytes, int members) noexcept;
  std::size_t begin(int member) const noexcept { return std::min(count, slice * static_cast<std::size_t>(member)); }
  std::size_t length(int member) const noexcept { return begin(member + 1) - begin(member); }
};

}  // namespace aiacc::intra
