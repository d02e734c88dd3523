#include "collectives/inter/algorithms.h"

#include <bit>

#include "base/error.h"
#include "collectives/inter/alltoall.h"
#include "collectives/inter/binomial_broadcast.h"
#include "collectives/inter/binomial_gather.h"
#include "collectives/inter/binomial_reduce.h"
#include "collectives/inter/bruck_alltoall.h"
#include "collectives/inter/chain_broadcast.h"
#include "collectives/inter/dissemination_barrier.h"
#include "collectives/inter/double_tree.h"
#include "collectives/inter/gather.h"
#include "collectives/inter/halving_doubling_allreduce.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/one_round_reduce.h"
#include "collectives/inter/ordered_reduce.h"
#include "collectives/inter/recursive_doubling_allgather.h"
#include "collectives/inter/recursive_doubling_allreduce.h"
#include "collectives/inter/recursive_halving_reduce_scatter.h"
#include "collectives/inter/ring_allgather.h"
#include "collectives/inter/ring_allreduce.h"
#include "collectives/inter/ring_reduce_scatter.h"
#include "collectives/inter/select.h"

namespace aiacc::inter {
namespace {

constexpr NamedCollective kNames[] = {
    {Collective::kAllreduce, "allreduce"}, {Collective::kReduce, "reduce"},
    {Collective::kBroadcast, "broadcast"}, {Collective::kAllgather, "allgather"},
    {Collective::kBarrier, "barrier"},     {Collective::kReduceScatter, "reduce-scatter"},
    {Collective::kAlltoall, "alltoall"},   {Collective::kGather, "gather"},
    {Collective::kScatter, "scatter"},
};

constexpr const AlgorithmInfo* kAllreduces[] = {&kRecursiveDoublingAllreduceInfo,
                                                &kHalvingDoublingAllreduceInfo,
                                                &kOneRoundAllreduceInfo,
                                                &kDoubleTreeAllreduceInfo,
                                                &kRingAllreduceInfo,
                                                &kOrderedAllreduceInfo};
constexpr const AlgorithmInfo* kReduces[] = {&kBinomialReduceInfo, &kOneRoundReduceInfo, &kDoubleTreeReduceInfo,
                                             &kOrderedReduceInfo};
constexpr const AlgorithmInfo* kBroadcasts[] = {&kBinomialBroadcastInfo, &kChainBroadcastInfo,
                                                &kDoubleTreeBroadcastInfo};
constexpr const AlgorithmInfo* kAllgathers[] = {&kRecursiveDoublingAllgatherInfo, &kRingAllgatherInfo};
constexpr const AlgorithmInfo* kReduceScatters[] = {&kRecursiveHalvingReduceScatterInfo, &kRingReduceScatterInfo,
                                                    &kOrderedReduceScatterInfo};
constexpr const AlgorithmInfo* kBarriers[] = {&kDisseminationBarrierInfo};
constexpr const AlgorithmInfo* kAlltoalls[] = {&kPairwiseAlltoallInfo, &kBruckAlltoallInfo};
constexpr const AlgorithmInfo* kGathers[] = {&kLinearGatherInfo, &kBinomialGatherInfo};
constexpr const AlgorithmInfo* kScatters[] = {&kLinearScatterInfo, &kBinomialScatterInfo};

// The double tree where it is predicted to take clearly less than `other`. Predictions and simulated times differ by up to a
// fifth, those of algorithms for 16-bit floats by more. Two ranks have only one link, which any algorithm fills.
const AlgorithmInfo& or_tree(const AlgorithmInfo& other, const AlgorithmInfo& tree, const Shape& shape) noexcept {
  constexpr NetworkModel kUsual;
  const double clearly = shape.narrows ? 0.75 : 0.9;
  if (shape.ranks <= 2 || !tree.obstacle(shape).empty()) return other;
  return kUsual.time_us(tree.cost(shape)) < clearly * kUsual.time_us(other.cost(shape)) ? tree : other;
}

const AlgorithmInfo& measured_allreduce(const Shape& shape) noexcept {
  if (shape.takes_partials) {
    return shape.ranks > 1 && shape.bytes > kRecursiveDoublingBytes ? kRingAllreduceInfo
                                                                    : kRecursiveDoublingAllreduceInfo;
  }
  if (shape.narrows && shape.ranks > kRanksInOneRound && shape.wide_bytes <= kRecursiveDoublingBytes) {
    return kRecursiveDoublingAllreduceInfo;
  }
  // Trees and rings round partial sums; except recursive doubling, they also rotate the order of ranks.
  // Recursive doubling needs fewer messages of a power of two of ranks than one round, and ShortMessages has those.
  const bool folds = !std::has_single_bit(static_cast<unsigned>(shape.ranks));
  const bool ordered = shape.ordered && (folds || shape.bytes > kRecursiveDoublingBytes);
  if ((shape.narrows || ordered) && fits_one_round(shape.ranks, shape.bytes)) return kOneRoundAllreduceInfo;
  if (shape.narrows) return kOrderedAllreduceInfo;
  if (shape.bytes <= kRecursiveDoublingBytes) return kRecursiveDoublingAllreduceInfo;
  if (shape.ordered) return kOrderedAllreduceInfo;
  const bool halves = halving_doubling_applies(shape.ranks) && shape.bytes <= kHalvingDoublingBytes;
  return halves ? kHalvingDoublingAllreduceInfo : kRingAllreduceInfo;
}

const AlgorithmInfo& reduce_without_tree(const Shape& shape) noexcept {
  if (shape.takes_partials || (!shape.narrows && !shape.ordered)) return kBinomialReduceInfo;
  if (shape.narrows && shape.ranks > kRanksInOneRound && shape.wide_bytes <= kRecursiveDoublingBytes) {
    return kBinomialReduceInfo;
  }
  return fits_one_round(shape.ranks, shape.bytes) ? kOneRoundReduceInfo : kOrderedReduceInfo;
}

const AlgorithmInfo& usual_allreduce(const Shape& shape) noexcept {
  const AlgorithmInfo& measured = measured_allreduce(shape);
  return shape.ranks <= kMeasuredRanks ? measured : or_tree(measured, kDoubleTreeAllreduceInfo, shape);
}

const AlgorithmInfo& usual_reduce(const Shape& shape) noexcept {
  return or_tree(reduce_without_tree(shape), kDoubleTreeReduceInfo, shape);
}

const AlgorithmInfo& usual_reduce_scatter(const Shape& shape) noexcept {
  if (!shape.takes_partials && (shape.narrows || shape.ordered)) return kOrderedReduceScatterInfo;
  return kRecursiveHalvingReduceScatterInfo.obstacle(shape).empty() ? kRecursiveHalvingReduceScatterInfo
                                                                    : kRingReduceScatterInfo;
}

const AlgorithmInfo& usual_broadcast(const Shape& shape) noexcept {
  constexpr std::uint32_t kOthers = 0b011;
  static_assert(std::size(kBroadcasts) == 3);
  return or_tree(*cheapest_algorithm(shape, kOthers), kDoubleTreeBroadcastInfo, shape);
}

}  // namespace

Shape shape_of(const Call& call, int ranks) noexcept {
  const Reduction& reduction = call.reduction;
  const bool reduces = call.kind == Collective::kAllreduce || call.kind == Collective::kReduce ||
                       call.kind == Collective::kReduceScatter;
  return {.kind = call.kind,
          .ranks = ranks,
          .bytes = call.bytes(),
          .wide_bytes = reduces ? call.count * size_of(reduction.accumulate_type()) : call.bytes(),
          .narrows = reduces && reduction.narrows(),
          .ordered = reduces && reduction.ordered(),
          .takes_partials = reduces && reduction.takes_partials(),
          .uneven = call.uneven,
          .preferred = call.preferred};
}

Shape shape_of(const Operation& op) noexcept {
  Shape shape = shape_of(op.call, ranks_in(op));
  // A broadcast's slices between hosts follow one another like one message (hier/broadcast.h).
  if (shape.kind == Collective::kBroadcast && op.whole().kind == Collective::kBroadcast)
    shape.bytes = shape.wide_bytes = op.whole().bytes();
  shape.preferred = op.whole().preferred;
  shape.among_some = is_among_some(op);
  // Not of this rank, which may be alone on its host, but the same for all.
  shape.skips_host = shape.among_some && shape.ranks > op.team.view->hosts();
  return shape;
}

std::span<const NamedCollective> named_collectives() noexcept { return kNames; }

std::string_view name_of(Collective kind) noexcept {
  for (const NamedCollective& each : kNames) {
    if (each.kind == kind) return each.name;
  }
  return "message";
}

std::span<const AlgorithmInfo* const> algorithms_of(Collective kind) noexcept {
  switch (kind) {
    case Collective::kAllreduce: return kAllreduces;
    case Collective::kReduce: return kReduces;
    case Collective::kBroadcast: return kBroadcasts;
    case Collective::kAllgather: return kAllgathers;
    case Collective::kReduceScatter: return kReduceScatters;
    case Collective::kBarrier: return kBarriers;
    case Collective::kAlltoall: return kAlltoalls;
    case Collective::kGather: return kGathers;
    case Collective::kScatter: return kScatters;
    default: return {};
  }
}

const AlgorithmInfo* cheapest_algorithm(const Shape& shape, std::uint32_t permitted) noexcept {
  constexpr NetworkModel kUsual;
  const AlgorithmInfo* cheapest = nullptr;
  double least = 0;
  for (const AlgorithmInfo* algorithm : algorithms_of(shape.kind)) {
    const bool may = (permitted & 1) != 0;
    permitted >>= 1;
    if (!may || !algorithm->obstacle(shape).empty()) continue;
    const double time = kUsual.time_us(algorithm->cost(shape));
    if (cheapest != nullptr && time >= least) continue;
    cheapest = algorithm;
    least = time;
  }
  return cheapest;
}

bool is_measured(const AlgorithmInfo& algorithm) noexcept {
  const bool is_tree = &algorithm == &kDoubleTreeAllreduceInfo || &algorithm == &kDoubleTreeReduceInfo;
  return is_measured(algorithm.kind) && !is_tree;
}

bool is_measured(Collective kind) noexcept {
  return kind == Collective::kAllreduce || kind == Collective::kReduce || kind == Collective::kReduceScatter ||
         kind == Collective::kAllgather;
}

const AlgorithmInfo& usual_algorithm(const Shape& shape) noexcept {
  switch (shape.kind) {
    case Collective::kAllreduce: return usual_allreduce(shape);
    case Collective::kReduce: return usual_reduce(shape);
    case Collective::kBroadcast: return usual_broadcast(shape);
    case Collective::kAllgather:
      return kRecursiveDoublingAllgatherInfo.obstacle(shape).empty() ? kRecursiveDoublingAllgatherInfo
                                                                     : kRingAllgatherInfo;
    case Collective::kReduceScatter: return usual_reduce_scatter(shape);
    default: break;
  }
  const auto all = algorithms_of(shape.kind);
  return all.size() == 1 ? *all.front() : *cheapest_algorithm(shape);
}

}  // namespace aiacc::inter
