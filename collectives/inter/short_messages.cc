#include "collectives/inter/short_messages.h"

#include <bit>

#include "collectives/inter/binomial_broadcast.h"
#include "collectives/inter/dissemination_barrier.h"
#include "collectives/inter/gather.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/recursive_doubling_allreduce.h"
#include "collectives/inter/ring_allgather.h"
#include "collectives/inter/ring_reduce_scatter.h"

namespace aiacc::inter {
namespace {

int doublings(int ranks) noexcept { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

Tag tag_in(Algorithm algorithm, int step) noexcept { return tag_of(algorithm, static_cast<std::uint64_t>(step)); }

}  // namespace

const AlgorithmInfo* short_algorithm(Collective kind, int ranks) noexcept {
  switch (kind) {
    case Collective::kBarrier: return &kDisseminationBarrierInfo;
    case Collective::kAllreduce:
      return std::has_single_bit(static_cast<unsigned>(ranks)) ? &kRecursiveDoublingAllreduceInfo : nullptr;
    case Collective::kBroadcast: return &kBinomialBroadcastInfo;
    case Collective::kAllgather: return &kRingAllgatherInfo;
    case Collective::kReduceScatter: return &kRingReduceScatterInfo;
    case Collective::kGather: return &kLinearGatherInfo;
    case Collective::kScatter: return &kLinearScatterInfo;
    default: return nullptr;
  }
}

int ShortMessages::rounds() const noexcept {
  switch (call_.kind) {
    case Collective::kAllgather:
    case Collective::kReduceScatter: return ranks_ - 1;
    case Collective::kGather:
    case Collective::kScatter: return is_root() ? ranks_ - 1 : 1;
    default: return doublings(ranks_);
  }
}

std::size_t ShortMessages::scratch_bytes() const noexcept {
  if (!sums()) return 0;
  const bool keeps_one = call_.kind == Collective::kReduceScatter && ranks_ > 2;
  return keeps_one ? 2 * call_.bytes() : call_.bytes();
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
    case Collective::kBroadcast: return broadcast_round(number);
    case Collective::kAllgather:
    case Collective::kReduceScatter: return ring_round(number);
    default: return rooted_round(number);
  }
}

// The longest way first. Positions count from the root; a rank gets its message over the distance that is the lowest bit of its
// position, and sends over all shorter ones.
ShortMessages::Round ShortMessages::broadcast_round(int number) const noexcept {
  const int distance = 1 << (rounds() - 1 - number);
  const int position = (rank_ - call_.root + ranks_) % ranks_;
  Round its;
  its.tag = tag_in(Algorithm::kBinomialBroadcast, 0);
  if (position % (2 * distance) == distance) {
    its.from = neighbour(-distance);
    its.arrived = recv_;
  } else if (position % (2 * distance) == 0 && position + distance < ranks_) {
    its.to = neighbour(distance);
    its.sent = recv_;
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
  if (call_.kind == Collective::kReduceScatter) {
    const int its = (rank_ - number - 2 + 2 * ranks_) % ranks_;
    return {last ? recv_ : came, {came, block(send_, its)}, last};
  }
  const bool mine_first = (rank_ & (1 << number)) == 0;
  return {recv_, {mine_first ? recv_ : came, mine_first ? came : recv_}, last};
}

}  // namespace aiacc::inter
