#include "collectives/intra/arrive.h"

namespace aiacc::intra {

Task<std::uint64_t> arrive(Operation& op) {
  IntraTeam& team = *op.team.host;
  HostDomain& domain = team.domain();
  IntraTeam::Arrival arrival;
  arrival.fingerprint = op.whole().fingerprint();
  if (op.send.bytes > 0 && op.send.on_host()) arrival.send = domain.offset_of(op.send.data, op.send.bytes);
  if (op.recv.bytes > 0 && op.recv.on_host()) arrival.recv = domain.offset_of(op.recv.data, op.recv.bytes);
  co_await team.await_room(op.stop);
  const std::uint64_t number = team.arrive(op.whole(), arrival);
  co_await await_arrivals(op, number);
  co_return number;
}

// Up to kMostPolling members every member polls the arrival of every other one. Above, only member 0 does and then releases all, so
// 2n lines are read instead of n².
Task<void> await_arrivals(Operation& op, std::uint64_t number) {
  IntraTeam& team = *op.team.host;
  HostDomain& domain = team.domain();
  if (team.size() <= IntraTeam::kMostPolling || team.me() == 0) {
    for (int step = 1; step < team.size(); ++step) {
      const FlagRef flag = team.arrival_flag((team.me() + step) % team.size(), number);
      co_await domain.at_least(flag, number, op.stop);
    }
    if (team.size() > IntraTeam::kMostPolling) team.publish(IntraTeam::kReleased, number);
  } else {
    const FlagRef flag = team.progress_flag(0, IntraTeam::kReleased);
    co_await domain.at_least(flag, number, op.stop);
  }
  team.require_agreement(number);
}

Task<void> await_all(Operation& op, IntraTeam::Word word, std::uint64_t value) {
  IntraTeam& team = *op.team.host;
  for (int step = 1; step < team.size(); ++step) {
    const FlagRef flag = team.progress_flag((team.me() + step) % team.size(), word);
    co_await team.domain().at_least(flag, value, op.stop);
  }
}

Task<void> part(Operation& op, std::uint64_t number) {
  op.team.host->publish(IntraTeam::kDone, number);
  co_await await_all(op, IntraTeam::kDone, number);
}

Slices::Slices(std::size_t elements, std::size_t element_bytes, int members) noexcept : count(elements), slice(0) {
  constexpr std::size_t kLine = 64;
  const auto n = static_cast<std::size_t>(members);
  const std::size_t grain = std::max<std::size_t>(1, kLine / element_bytes);
  slice = ((elements + n - 1) / n + grain - 1) / grain * grain;
}

}  // namespace aiacc::intra
