#include "collectives/inter/short_messages.h"

#include <bit>

#include "collectives/inter/alltoall.h"
#include "collectives/inter/binomial_broadcast.h"
#include "collectives/inter/binomial_reduce.h"
#include "collectives/inter/dissemination_barrier.h"
#include "collectives/inter/gather.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/recursive_doubling_allgather.h"
#include "collectives/inter/recursive_doubling_allreduce.h"
#include "collectives/inter/recursive_halving_reduce_scatter.h"
#include "collectives/inter/ring_allgather.h"
#include "collectives/inter/ring_reduce_scatter.h"

namespace aiacc::inter {
namespace {

int doublings(int ranks) noexcept { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

Tag tag_in(Algorithm algorithm, int step) noexcept { return tag_of(algorithm, static_cast<std::uint64_t>(step)); }

}  // namespace

const AlgorithmInfo* short_algorithm(const Call& call, int ranks) noexcept {
  const bool doubles = recursive_doubling_applies(ranks, call.bytes());
  switch (call.kind) {
    case Collective::kBarrier: return &kDisseminationBarrierInfo;
    case Collective::kAllreduce:
      return std::has_single_bit(static_cast<unsigned>(ranks)) ? &kRecursiveDoublingAllreduceInfo : nullptr;
    case Collective::kReduce: return &kBinomialReduceInfo;
    case Collective::kBroadcast: return &kBinomialBroadcastInfo;
    case Collective::kAllgather: return doubles ? &kRecursiveDoublingAllgatherInfo : &kRingAllgatherInfo;
    case Collective::kReduceScatter: return doubles ? &kRecursiveHalvingReduceScatterInfo : &kRingReduceScatterInfo;
    case Collective::kGather: return &kLinearGatherInfo;
    case Collective::kScatter: return &kLinearScatterInfo;
    case Collective::kAlltoall: return ranks == 2 ? &kPairwiseAlltoallInfo : nullptr;
    default: return nullptr;
  }
}

bool ShortMessages::doubles(const Call& call, int ranks) noexcept {
  const bool in_blocks = call.kind == Collective::kAllgather || call.kind == Collective::kReduceScatter;
  return in_blocks && recursive_doubling_applies(ranks, call.bytes());
}

int ShortMessages::rounds() const noexcept {
  switch (call_.kind) {
    case Collective::kAllgather:
    case Collective::kReduceScatter: return doubles_ ? doublings(ranks_) : ranks_ - 1;
    case Collective::kGather:
    case Collective::kScatter: return is_root() ? ranks_ - 1 : 1;
    default: return doublings(ranks_);
  }
}

std::size_t ShortMessages::scratch_bytes() const noexcept {
  switch (call_.kind) {
    case Collective::kAllreduce: return call_.bytes();
    case Collective::kReduceScatter:
      if (doubles_) return static_cast<std::size_t>(ranks_) * call_.bytes();
      return ranks_ > 2 ? 2 * call_.bytes() : call_.bytes();
    case Collective::kReduce: return is_leaf() ? 0 : is_root() ? call_.bytes() : 2 * call_.bytes();
    default: return 0;
  }
}

Buffer ShortMessages::arriving(int round) const noexcept {
  const bool second = call_.kind == Collective::kReduceScatter && round % 2 == 1;
  return {scratch_ + (second ? call_.bytes() : 0), call_.bytes()};
}

ShortMessages::Copy ShortMessages::first() const noexcept {
  const bool gives = call_.kind == Collective::kAllreduce || (call_.kind == Collective::kBroadcast && is_root());
  if (!gives || send_.bytes == 0 || send_.data == recv_.data) return {};
  return {recv_, send_};
}

ShortMessages::Copy ShortMessages::own() const noexcept {
  Copy its;
  if (call_.kind == Collective::kAllgather || (call_.kind == Collective::kGather && is_root()))
    its = {block(recv_, rank_), send_};
  if (call_.kind == Collective::kScatter && is_root()) its = {recv_, block(send_, rank_)};
  if (call_.kind == Collective::kAlltoall) its = {block(recv_, rank_), block(send_, rank_)};
  return its.to.data == its.from.data ? Copy{} : its;
}

ShortMessages::Round ShortMessages::round(int number) const noexcept {
  switch (call_.kind) {
    case Collective::kBarrier: {
      const int distance = 1 << number;
      const Tag tag = tag_in(Algorithm::kBarrier, number);
      return {tag, neighbour(distance), {}, neighbour(-distance), {}};
    }
    case Collective::kAllreduce: {
      const int peer = rank_ ^ (1 << number);
      return {tag_in(Algorithm::kRecursiveDoubling, number + 1), peer, recv_, peer, arriving(number)};
    }
    case Collective::kReduce:
    case Collective::kBroadcast: return tree_round(number);
    case Collective::kAllgather:
    case Collective::kReduceScatter: return doubles_ ? doubling_round(number) : ring_round(number);
    case Collective::kAlltoall: {
      const int peer = neighbour(1);
      return {tag_in(Algorithm::kAlltoall, 0), peer, block(send_, peer), peer, block(recv_, peer)};
    }
    default: return rooted_round(number);
  }
}

// The distance from a rank to its parent is the lowest bit of its position, and those to its children are all shorter ones. A broadcast
// begins with the longest distance, a reduce with the shortest.
ShortMessages::Round ShortMessages::tree_round(int number) const noexcept {
  const bool reduces = call_.kind == Collective::kReduce;
  const int distance = 1 << (reduces ? number : rounds() - 1 - number);
  const bool child = position() % (2 * distance) == distance;
  const bool parent = position() % (2 * distance) == 0 && position() + distance < ranks_;
  Round its;
  its.tag = tag_in(reduces ? Algorithm::kBinomialReduce : Algorithm::kBinomialBroadcast, 0);
  if (!child && !parent) return its;
  const int peer = neighbour(child ? -distance : distance);
  if (child == reduces) {
    its.to = peer;
    its.sent = !reduces ? recv_ : is_leaf() ? send_ : partial();
  } else {
    its.from = peer;
    its.arrived = reduces ? arriving(number) : recv_;
  }
  return its;
}

ShortMessages::Round ShortMessages::ring_round(int number) const noexcept {
  const int right = neighbour(1), left = neighbour(-1);
  if (call_.kind == Collective::kReduceScatter) {
    const Buffer sum = number == 0 ? block(send_, left) : arriving(number - 1);
    return {tag_in(Algorithm::kRingReduceScatter, number), right, sum, left, arriving(number)};
  }
  const Buffer sent = number == 0 ? send_ : block(recv_, neighbour(-number));
  return {tag_in(Algorithm::kRingAllgather, number), right, sent, left, block(recv_, neighbour(-number - 1))};
}

int ShortMessages::distance(int number) const noexcept {
  return call_.kind == Collective::kAllgather ? 1 << number : ranks_ >> (number + 1);
}

// Half of the scratch memory is for what arrives, and half for sums: of the half of all blocks that has this rank's.
Buffer ShortMessages::summed(int first, int count) const noexcept {
  const int half = ranks_ / 2;
  const std::size_t bytes = static_cast<std::size_t>(half) * call_.bytes();
  return blocks({scratch_ + bytes, bytes}, first - (rank_ & -half), count);
}

ShortMessages::Round ShortMessages::doubling_round(int number) const noexcept {
  const int apart = distance(number), peer = rank_ ^ apart, mine = rank_ & -apart;
  if (call_.kind == Collective::kAllgather) {
    const Buffer sent = number == 0 ? send_ : blocks(recv_, mine, apart);
    return {tag_in(Algorithm::kDoublingAllgather, number), peer, sent, peer, blocks(recv_, mine ^ apart, apart)};
  }
  const Buffer arrived{scratch_, static_cast<std::size_t>(apart) * call_.bytes()};
  return {tag_in(Algorithm::kHalvingReduceScatter, number), peer, halved(number, mine ^ apart, apart), peer, arrived};
}

ShortMessages::Round ShortMessages::rooted_round(int number) const noexcept {
  const bool gathers = call_.kind == Collective::kGather;
  Round its;
  its.tag = tag_in(gathers ? Algorithm::kGather : Algorithm::kScatter, 0);
  const int peer = is_root() ? neighbour(number + 1) : call_.root;
  if (gathers == is_root()) {
    its.from = peer;
    its.arrived = is_root() ? block(recv_, peer) : recv_;
  } else {
    its.to = peer;
    its.sent = is_root() ? block(send_, peer) : send_;
  }
  return its;
}

ShortMessages::Sum ShortMessages::sum(int number) const noexcept {
  const Buffer came = arriving(number);
  const bool last = number == rounds() - 1;
  if (call_.kind == Collective::kReduce) {
    if (tree_round(number).from == kNobody) return {};
    return {partial(), {number == 0 ? send_ : partial(), came}, last};
  }
  if (doubles_ && call_.kind == Collective::kReduceScatter) {
    const int apart = distance(number), mine = rank_ & -apart;
    const Buffer result = last ? recv_ : summed(mine, apart);
    return {result, {halved(number, mine, apart), doubling_round(number).arrived}, last};
  }
  if (call_.kind == Collective::kReduceScatter) {
    const int its = (rank_ - number - 2 + 2 * ranks_) % ranks_;
    return {last ? recv_ : came, {came, block(send_, its)}, last};
  }
  if (call_.kind != Collective::kAllreduce) return {};
  const bool mine_first = (rank_ & (1 << number)) == 0;
  return {recv_, {mine_first ? recv_ : came, mine_first ? came : recv_}, last};
}

}  // namespace aiacc::inter
