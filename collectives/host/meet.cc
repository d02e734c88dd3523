#include "collectives/host/meet.h"

namespace aiacc::host {
namespace {

// Up to here every member looks at every other's arrival; above, member 0 does and releases all: 2n lines are read instead
// of n². Measured with bench/host only up to 4 ranks on 2 cores; the quadratic cost alone (n² lines at 50 ns) says 16.
constexpr int kFlatMembers = 16;

}  // namespace

Task<std::uint64_t> meet(Operation& op) {
  HostTeam& team = *op.team.host;
  HostDomain& domain = team.domain();
  HostTeam::Arrival arrival;
  arrival.fingerprint = op.whole().fingerprint();
  if (op.send.bytes > 0) arrival.send = domain.offset_of(op.send.data, op.send.bytes);
  if (op.recv.bytes > 0) arrival.recv = domain.offset_of(op.recv.data, op.recv.bytes);
  if (!arrival.send) arrival.private_send = op.send.data;
  if (!arrival.recv) arrival.private_recv = op.recv.data;
  const std::uint64_t number = team.arrive(op.whole(), arrival);
  co_await await_arrivals(op, number);
  co_return number;
}

Task<void> await_arrivals(Operation& op, std::uint64_t number) {
  HostTeam& team = *op.team.host;
  HostDomain& domain = team.domain();
  if (team.size() <= kFlatMembers || team.me() == 0) {
    for (int step = 1; step < team.size(); ++step) {
      const FlagRef flag = team.arrival_flag((team.me() + step) % team.size(), number);
      co_await domain.at_least(flag, number, op.stop);
    }
    if (team.size() > kFlatMembers) team.publish(HostTeam::kReleased, number);
  } else {
    const FlagRef flag = team.progress_flag(0, HostTeam::kReleased);
    co_await domain.at_least(flag, number, op.stop);
  }
  team.require_agreement(number);
}

Task<void> await_all(Operation& op, HostTeam::Word word, std::uint64_t value) {
  HostTeam& team = *op.team.host;
  for (int step = 1; step < team.size(); ++step) {
    const FlagRef flag = team.progress_flag((team.me() + step) % team.size(), word);
    co_await team.domain().at_least(flag, value, op.stop);
  }
}

Task<void> part(Operation& op, std::uint64_t number) {
  op.team.host->publish(HostTeam::kDone, number);
  co_await await_all(op, HostTeam::kDone, number);
}

Slices::Slices(std::size_t elements, std::size_t element_bytes, int members) noexcept : count(elements), slice(0) {
  constexpr std::size_t kLine = 64;
  const auto n = static_cast<std::size_t>(members);
  const std::size_t grain = std::max<std::size_t>(1, kLine / element_bytes);
  slice = ((elements + n - 1) / n + grain - 1) / grain * grain;
}

}  // namespace aiacc::host
