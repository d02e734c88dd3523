#include "collectives/host/small.h"

#include <array>
#include <cstring>

#include "base/cpu_relax.h"

namespace aiacc::host {
namespace {

// More would make the reads of all lines by all members longer than a meeting through member 0 (collectives/host/meet.cc).
constexpr int kMostMembers = 16;

bool served(const HostTeam& team, const Call& call) noexcept {
  if (call.bytes() > HostTeam::kInlineBytes || team.size() > kMostMembers) return false;
  if (!team.is_whole_group() || team.failed() || team.has_begun()) return false;
  return call.kind == Collective::kAllreduce || call.kind == Collective::kReduce ||
         call.kind == Collective::kBroadcast || call.kind == Collective::kBarrier;
}

bool all_arrive(const HostTeam& team, std::uint64_t number) noexcept {
  int looks = 0;
  for (int member = 0; member < team.size(); ++member) {
    while (!team.has_arrived(member, number)) {
      if (++looks > team.spins()) return false;
      cpu_relax();
    }
  }
  return team.agree(number);
}

void reduce_all(const HostTeam& team, const Call& call, std::uint64_t number, std::byte* result) noexcept {
  alignas(64) std::array<std::array<std::byte, HostTeam::kInlineBytes>, kMostMembers> copies;
  std::array<const std::byte*, kMostMembers> operands;
  const auto members = static_cast<std::size_t>(team.size());
  for (std::size_t member = 0; member < members; ++member) {
    team.read_payload(static_cast<int>(member), number, {copies[member].data(), call.bytes()});
    operands[member] = copies[member].data();
  }
  team.cpu().reduce_now({&result, 1}, {operands.data(), members}, call.count, call.reduction, team.size());
}

}  // namespace

Small try_small(HostTeam& team, const Call& call, const std::byte* send, std::byte* recv) noexcept {
  if (!team.turns().free() || !served(team, call)) return Small::kNotServed;
  const bool is_root = team.rank_of(team.me()) == call.root;
  const bool contributes = call.kind != Collective::kBroadcast || is_root;
  HostTeam::Arrival arrival;
  arrival.fingerprint = call.fingerprint();
  if (contributes) arrival.payload = {send, call.bytes()};
  const std::uint64_t number = team.arrive(call, arrival);
  if (!all_arrive(team, number)) {
    team.set_begun(number);
    return Small::kBegun;
  }
  if (call.count == 0) return Small::kDone;
  if (call.kind == Collective::kAllreduce || (call.kind == Collective::kReduce && is_root)) {
    reduce_all(team, call, number, recv);
  } else if (call.kind == Collective::kBroadcast && !is_root) {
    team.read_payload(team.member_of(call.root), number, {recv, call.bytes()});
  }
  return Small::kDone;
}

}  // namespace aiacc::host
