// Long payloads go in slices (slices.h): results, and in virtual time that the phases on the hosts run while other slices are
// between them.
#include "collectives/hier/hier_world_test.h"

namespace aiacc {
namespace {

using namespace hier_test;

// Elements of as many bytes as two slices.
constexpr std::size_t kTwoSlices = hier::kSliceBytes / 4 * 2;

// So slow that slices queue for it.
sim::FabricModel slow_network() {
  sim::FabricModel model;
  model.between_hosts.bytes_per_second = 100'000'000;
  return model;
}

TEST(HierSlices, ResultsOfCallsInSlices) {
  std::vector<Case> cases;
  for (const std::size_t count : {kTwoSlices, kTwoSlices + 1, 5 * kTwoSlices + 3}) {
    for (const Memory memory : {Memory::kPrivate, Memory::kShared}) {
      cases.push_back({call_of(Collective::kAllreduce, count), memory, memory == Memory::kShared});
      const int root = static_cast<int>(count % 4);
      cases.push_back({call_of(Collective::kBroadcast, count, DType::kFloat32, ReduceOp::kSum, root), memory});
      cases.push_back({call_of(Collective::kReduce, count, DType::kFloat32, ReduceOp::kSum, root), memory});
    }
  }
  run_cases({0, 0, 1, 1}, cases);
  const std::vector<Case> longest(cases.end() - 3, cases.end());
  run_cases({0, 0, 0, 1, 1}, longest, Through::kSharedMemory, 1, {}, slow_network());
  run_cases({0, 1, 0, 0, 2}, {longest[1], longest[2]});
  run_cases({0, 0, 1, 1, 2, 2, 3, 3}, {longest[0]});
}

// Hosts whose shards are their ranks' blocks, of which there are more than the memory for sums has room for, on a network so slow that
// it is full; hosts of unlike sizes, and ranks in another order.
TEST(HierSlices, ResultsOfBlocksInSlices) {
  for (const Collective kind : {Collective::kAllgather, Collective::kReduceScatter}) {
    const std::vector<Case> longer = {{call_of(kind, 2 * kTwoSlices + 5)},
                                      {call_of(kind, 2 * kTwoSlices + 5), Memory::kShared, true}};
    run_cases({0, 0, 1, 1}, longer, Through::kSharedMemory, 1, {}, slow_network());
    const std::vector<Case> cases = {{call_of(kind, kTwoSlices + 5)}};
    for (const Placement& placement : {Placement{0, 1, 0, 1}, Placement{0, 0, 0, 1, 1}, Placement{1, 0, 0}}) {
      run_cases(placement, cases);
    }
  }
}

// Blocks of unlike lengths.
struct Uneven {
  std::vector<Extent> blocks;
  std::vector<Bytes> inputs, outputs;

  Call call(Collective kind) const {
    Call call = call_of(kind, blocks.back().end());
    call.uneven = true;
    call.blocks = blocks;
    return call;
  }
};

float uneven_value(int rank, std::size_t element) {
  return static_cast<float>((7 * static_cast<std::size_t>(rank) + 3 * element) % 1'024);
}

Uneven uneven_of(Collective kind, const std::vector<std::size_t>& counts) {
  Uneven test;
  std::size_t at = 0;
  for (const std::size_t count : counts) {
    test.blocks.push_back({at, count});
    at += count;
  }
  const bool gathers = kind == Collective::kAllgather;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    std::vector<float> input;
    for (std::size_t i = 0; i < (gathers ? counts[rank] : at); ++i) {
      input.push_back(uneven_value(static_cast<int>(rank), i));
    }
    const auto bytes = std::as_bytes(std::span(input));
    test.inputs.emplace_back(bytes.begin(), bytes.end());
    test.outputs.emplace_back((gathers ? at : counts[rank]) * sizeof(float));
  }
  return test;
}

float uneven_result(const Uneven& test, Collective kind, std::size_t rank, std::size_t element) {
  if (kind == Collective::kReduceScatter) {
    float sum = 0;
    for (std::size_t other = 0; other < test.blocks.size(); ++other) {
      sum += uneven_value(static_cast<int>(other), test.blocks[rank].begin + element);
    }
    return sum;
  }
  std::size_t from = 0;
  while (element >= test.blocks[from].end()) ++from;
  return uneven_value(static_cast<int>(from), element - test.blocks[from].begin);
}

void check_uneven(Collective kind, const Placement& placement, const std::vector<std::size_t>& counts, bool in_place) {
  SCOPED_TRACE(text(placement) + ": " + call_of(kind, 0).describe() + (in_place ? ", in place" : ""));
  SimCluster cluster(1, placement);
  Uneven test = uneven_of(kind, counts);
  std::deque<Rank> ranks;
  std::vector<Buffer> results;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    Buffer send = exact::buffer_of(test.inputs[at]), recv = exact::buffer_of(test.outputs[at]);
    const std::size_t own = test.blocks[at].begin * sizeof(float);
    if (in_place && recv.bytes > send.bytes) {
      std::copy(test.inputs[at].begin(), test.inputs[at].end(),
                test.outputs[at].begin() + static_cast<std::ptrdiff_t>(own));
      send = recv.slice(own, send.bytes);
    } else if (in_place) {
      recv = send.slice(own, recv.bytes);
    }
    results.push_back(recv);
    ranks.emplace_back(cluster, rank);
    cluster.rank(rank).start(open_and_perform(&ranks.back(), test.call(kind), send, recv));
  }
  ASSERT_TRUE(cluster.run()) << cluster.world().recent();
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    ASSERT_FALSE(ranks[rank].rank.error()) << ranks[rank].rank.error()->message();
    for (std::size_t i = 0; i < results[rank].bytes / sizeof(float); ++i) {
      float got = 0;
      std::memcpy(&got, results[rank].data + i * sizeof(float), sizeof(float));
      ASSERT_EQ(got, uneven_result(test, kind, rank, i)) << "rank " << rank << ", element " << i;
    }
  }
}

// Some have nothing, and all of one host.
TEST(HierSlices, ResultsOfUnevenBlocksInSlices) {
  constexpr std::size_t kLong = 2 * kTwoSlices;
  for (const Collective kind : {Collective::kAllgather, Collective::kReduceScatter}) {
    for (const bool in_place : {false, true}) {
      check_uneven(kind, {0, 0, 1, 1}, {kLong, 0, kLong - 3, 7}, in_place);
      check_uneven(kind, {0, 0, 1, 1}, {kLong, 5, 0, 0}, in_place);
      check_uneven(kind, {0, 1, 0, 1}, {kTwoSlices, 0, kTwoSlices - 3, 1}, in_place);
      check_uneven(kind, {0, 0, 0, 1}, {kTwoSlices, 1, kTwoSlices + 1, kTwoSlices}, in_place);
    }
  }
}

// Seconds that a call with blocks of so many fp32 takes in place, between hosts that send so many bytes a second.
double took(const Placement& placement, Collective kind, std::size_t count, std::uint64_t bytes_per_second) {
  sim::FabricModel model;
  model.between_hosts.bytes_per_second = bytes_per_second;
  SimCluster cluster(1, placement, model);
  std::deque<Rank> ranks;
  std::deque<Bytes> buffers;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    const Call call = call_of(kind, count);
    const hier_test::Shape shape = shape_of(call, rank, cluster.size());
    ranks.emplace_back(cluster, rank);
    buffers.emplace_back(std::max(shape.send, shape.recv) * sizeof(float));
    const Buffer all = exact::buffer_of(buffers.back());
    const auto of = [&](std::size_t elements, std::size_t other) {
      return all.slice(elements < other ? shape.own * sizeof(float) : 0, elements * sizeof(float));
    };
    const Buffer send = of(shape.send, shape.recv), recv = of(shape.recv, shape.send);
    cluster.rank(rank).start(open_and_perform(&ranks.back(), call, send, recv));
  }
  EXPECT_TRUE(cluster.run());
  return seconds(cluster.world().now().time_since_epoch());
}

// A network as fast as what copies on the hosts: one after the other takes twice as long as side by side.
TEST(HierSlicesCost, ABroadcastIsGivenOutWhileItsRestIsUnderWay) {
  const auto broadcast = [](const Placement& placement) {
    return took(placement, Collective::kBroadcast, 4 << 20, 4'000'000'000);
  };
  const double between = broadcast({0, 1});
  const double on_a_host = broadcast({0, 0});
  EXPECT_LT(broadcast({0, 0, 1, 1}), 0.75 * (between + on_a_host)) << between << " and " << on_a_host;
}

// A root adds up what comes from other hosts, too.
TEST(HierSlicesCost, AReduceIsBetweenHostsWhileItsRestIsReducedOnThem) {
  const auto reduce = [](const Placement& placement) {
    return took(placement, Collective::kReduce, 4 << 20, 1'250'000'000);
  };
  const double between = reduce({0, 1});
  const double on_a_host = reduce({0, 0});
  EXPECT_LT(reduce({0, 0, 1, 1}), 0.75 * (between + on_a_host)) << between << " and " << on_a_host;
}

// Allgathers and reduce-scatters.
TEST(HierSlicesCost, BlocksAreExchangedOnTheHostsWhileOthersAreBetweenThem) {
  for (const Collective kind : {Collective::kAllgather, Collective::kReduceScatter}) {
    const auto seconds_of = [kind](const Placement& placement, std::size_t count) {
      return took(placement, kind, count, 1'250'000'000);
    };
    constexpr std::size_t kBlock = 2 << 20;
    const double between = seconds_of({0, 1}, kBlock);
    const double on_a_host = seconds_of({0, 0}, 2 * kBlock);
    EXPECT_LT(seconds_of({0, 0, 1, 1}, kBlock), 0.75 * (between + on_a_host)) << between << " and " << on_a_host;
  }
}

// Two hosts of four: 4 MiB are bound by 2(h − 1)/h·S of each host's four links, not of one.
TEST(HierSlicesCost, AllMembersOfAHostUseTheNetwork) {
  const auto allreduce = [](const Placement& placement) {
    return took(placement, Collective::kAllreduce, 1 << 20, 125'000'000);  // 1 Gb/s a rank
  };
  EXPECT_LT(allreduce({0, 0, 0, 0, 1, 1, 1, 1}), allreduce({0, 1}) / 2.5);
}

}  // namespace
}  // namespace aiacc
