#include "collectives/intra/one_shot.h"

#include <algorithm>
#include <array>
#include <vector>

namespace aiacc::intra {
namespace {

// Where to read each member's contribution, of at most `bytes` bytes, once all have arrived.
class Contributions {
 public:
  Contributions(IntraTeam& team, std::uint64_t number, std::size_t bytes)
      : team_(team), number_(number), bytes_(bytes) {}
  Buffer of(int member) {
    if (bytes_ > IntraTeam::kInlineBytes) return {team_.eager(member, number_), bytes_};
    return {const_cast<std::byte*>(team_.payload_of(member, number_)), bytes_};  // which nobody writes to
  }

 private:
  IntraTeam& team_;
  std::uint64_t number_;
  std::size_t bytes_;
};

Task<std::uint64_t> contribute(Operation& op, std::size_t bytes) {
  IntraTeam& team = *op.team.host;
  const bool gives = contributes(op.call, op.team.rank == op.call.root);
  IntraTeam::Arrival arrival;
  std::array<std::byte, IntraTeam::kInlineBytes> copy;  // a copy of device memory
  arrival.fingerprint = op.whole().fingerprint();
  co_await team.await_room(op.stop);
  if (bytes > IntraTeam::kInlineBytes) {
    team.need_staging();
    const Buffer place{team.eager(team.me(), team.next_number()), op.send.bytes};
    if (gives) co_await op.team.compute.copy(place, op.send, op.stop);
  } else if (gives && op.send.on_host()) {
    arrival.payload = {op.send.data, op.send.bytes};
  } else if (gives && op.send.bytes > 0) {
    const Buffer line{copy.data(), op.send.bytes};
    co_await op.team.compute.copy(line, op.send, op.stop);
    arrival.payload = {line.data, line.bytes};
  }
  co_return team.arrive(op.whole(), arrival);
}

// Reduces these elements of every contribution into `result`.
Task<void> reduce_all(Operation& op, Contributions& from, Buffer result, Extent elements) {
  const std::size_t element = op.call.element_bytes();
  std::vector<Buffer> operands;
  for (int member = 0; member < op.team.host->size(); ++member)
    operands.push_back(from.of(member).slice(elements.begin * element, elements.count * element));
  co_await op.team.compute.reduce({&result, 1}, operands, elements.count, op.call.reduction,
                                  {.ranks = op.team.host->size()}, op.stop);
}

}  // namespace

bool contributes(const Call& call, bool is_root) noexcept {
  return is_root || (call.kind != Collective::kBroadcast && call.kind != Collective::kScatter);
}

std::size_t one_shot_bytes(const Call& call, int members) noexcept {
  const bool all_read_all = call.kind == Collective::kAllreduce || members > IntraTeam::kMostPolling;
  const std::size_t most = call.reduction.user != nullptr ? IntraTeam::kEagerPlaceBytes : IntraTeam::kEagerBytes;
  if (!all_read_all || members <= 4) return most;
  const std::size_t bytes = 4 * most / static_cast<std::size_t>(members);
  return std::max(bytes, IntraTeam::kInlineBytes);
}

std::size_t contribution_bytes(const Call& call, int members) noexcept {
  const std::size_t of_all = call.uneven ? call.bytes() : call.bytes() * static_cast<std::size_t>(members);
  switch (call.kind) {
    case Collective::kBarrier: return 0;
    case Collective::kReduceScatter: return of_all;
    case Collective::kAllgather: {
      std::size_t longest = call.uneven ? 0 : call.count;
      for (const Extent& block : call.blocks) longest = std::max(longest, block.count);
      return longest * call.element_bytes();
    }
    case Collective::kAlltoall:
    case Collective::kScatter: return call.uneven ? kNotOneShot : of_all;
    case Collective::kGather: return call.uneven ? kNotOneShot : call.bytes();
    default: return call.bytes();
  }
}

Task<void> one_shot(Operation& op, std::optional<std::uint64_t> begun) {
  IntraTeam& team = *op.team.host;
  const std::size_t bytes = contribution_bytes(op.call, team.size());
  std::uint64_t number = 0;
  if (begun) {
    number = *begun;
  } else {
    number = co_await contribute(op, bytes);
  }
  const bool is_root = op.team.rank == op.call.root;
  const bool staged = bytes > IntraTeam::kInlineBytes;
  const Awaited awaited = awaited_in(team, op.call, is_root, staged);
  if (awaited == Awaited::kAll) {
    co_await await_arrivals(op, number);
  } else if (awaited == Awaited::kRoot) {
    const int root = team.member_of(op.call.root);
    co_await team.domain().at_least(team.arrival_flag(root, number), number, op.stop);
    team.require_agreement(number, root);
  } else {
    team.require_agreed_so_far();
  }
  if (bytes == 0) co_return;
  if (staged && awaited == Awaited::kAll) team.map_staging();
  Contributions from(team, number, bytes);
  const std::size_t element = op.call.element_bytes();
  const auto block_of = [element](const Buffer& buffer, Extent block) {
    return buffer.slice(block.begin * element, block.count * element);
  };
  const Extent mine = op.call.block(team.me());
  switch (op.call.kind) {
    case Collective::kReduce:
      if (!is_root) break;
      [[fallthrough]];
    case Collective::kAllreduce: co_await reduce_all(op, from, op.recv, {0, op.call.count}); break;
    case Collective::kReduceScatter:
      if (mine.count > 0) co_await reduce_all(op, from, op.recv, mine);
      break;
    case Collective::kBroadcast:
      if (!is_root) co_await op.team.compute.copy(op.recv, from.of(team.member_of(op.call.root)), op.stop);
      break;
    case Collective::kScatter: {
      const Buffer all = from.of(team.member_of(op.call.root));
      co_await op.team.compute.copy(op.recv, block_of(all, mine), op.stop);
      break;
    }
    case Collective::kGather:
      if (!is_root) break;
      [[fallthrough]];
    case Collective::kAllgather:
      for (int member = 0; member < team.size(); ++member) {
        const Buffer to = block_of(op.recv, op.call.block(member));
        co_await op.team.compute.copy(to, from.of(member).slice(0, to.bytes), op.stop);
      }
      break;
    case Collective::kAlltoall:
      for (int member = 0; member < team.size(); ++member) {
        const Buffer to = block_of(op.recv, op.call.block(member));
        co_await op.team.compute.copy(to, block_of(from.of(member), mine), op.stop);
      }
      break;
    default: break;
  }
}

}  // namespace aiacc::intra
