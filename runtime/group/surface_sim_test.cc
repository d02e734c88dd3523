// Every collective in virtual time: on one host, between hosts, and over hosts in any placement, against the same cases as the
// matrix through the C ABI.
#include <numeric>

#include "tests/sim_job.h"
#include "tests/surface_cases.h"

namespace aiacc::sim {
namespace {

using surface::Case;
using surface::Kind;
using surface::Part;

// What the ABI makes of a case.
struct Made {
  Call call;
  std::vector<Extent> blocks, recv_blocks;
};

std::vector<Extent> extents(const surface::Blocks& blocks) {
  std::vector<Extent> made;
  for (std::size_t i = 0; i < blocks.counts.size(); ++i) made.push_back({blocks.displacements[i], blocks.counts[i]});
  return made;
}

std::size_t total(const surface::Blocks& blocks) {
  return std::accumulate(blocks.counts.begin(), blocks.counts.end(), std::size_t{0});
}

void make(Made& made, const Case& test, const Part& part) {
  Call& call = made.call;
  call.reduction.type = test.type;
  call.reduction.op = test.op;
  call.count = test.count;
  call.root = test.root;
  const auto uneven = [&](std::size_t count) {
    call.uneven = true;
    call.count = count;
  };
  made.blocks = extents(part.out.counts.empty() ? part.in : part.out);
  switch (test.kind) {
    case Kind::kAllreduce: call.kind = Collective::kAllreduce; break;
    case Kind::kReduce: call.kind = Collective::kReduce; break;
    case Kind::kBroadcast: call.kind = Collective::kBroadcast; break;
    case Kind::kAllgatherv: uneven(total(part.in)); [[fallthrough]];
    case Kind::kAllgather: call.kind = Collective::kAllgather; break;
    case Kind::kReduceScatterv: uneven(total(part.out)); [[fallthrough]];
    case Kind::kReduceScatter: call.kind = Collective::kReduceScatter; break;
    case Kind::kAlltoallv:
      uneven(total(part.out));
      made.recv_blocks = extents(part.in);
      [[fallthrough]];
    case Kind::kAlltoall: call.kind = Collective::kAlltoall; break;
    case Kind::kGatherv: uneven(part.own_count); [[fallthrough]];
    case Kind::kGather: call.kind = Collective::kGather; break;
    case Kind::kScatterv: uneven(part.own_count); [[fallthrough]];
    case Kind::kScatter: call.kind = Collective::kScatter; break;
  }
  call.blocks = made.blocks;
  call.recv_blocks = made.recv_blocks;
}

// A rank's buffers; in place, both are parts of one.
struct Memory {
  Memory(const Case& test, const Part& part, int rank) {
    const bool one = surface::in_one_buffer(test, rank);
    const bool send_is_longer = part.send.size() > part.expected.size();
    first.assign(std::max(part.send.size(), part.expected.size()), surface::kUntouched);
    second.assign(part.expected.size(), surface::kUntouched);
    send = {first.data(), part.send.size()};
    recv = {second.data(), part.expected.size()};
    if (one) {
      recv.data = first.data() + (send_is_longer ? part.place : 0);
      send.data = first.data() + (send_is_longer ? 0 : part.place);
    }
    if (test.kind == Kind::kBroadcast) send = recv = {first.data(), first.size()};
    if (!part.send.empty()) std::memcpy(send.data, part.send.data(), part.send.size());
  }
  surface::Bytes first, second;
  Buffer send, recv;
};

void run(SimJob& job, const Case& test) {
  const std::vector<Part> parts = surface::parts_of(test, job.size());
  std::deque<Memory> memories;
  for (int rank = 0; rank < job.size(); ++rank) {
    const Part& part = parts[static_cast<std::size_t>(rank)];
    Made made;
    make(made, test, part);
    Memory& memory = memories.emplace_back(test, part, rank);
    job[rank].start(made.call, memory.send, memory.recv);
  }
  job.finish();
  for (int rank = 0; rank < job.size(); ++rank) {
    const Part& part = parts[static_cast<std::size_t>(rank)];
    const Memory& memory = memories[static_cast<std::size_t>(rank)];
    const GroupOperation& operation = *job[rank].operations.back();
    ASSERT_EQ(error_of(operation).message(), "") << test.describe() << ": rank " << rank;
    if (!part.receives || part.expected.empty()) continue;
    ASSERT_EQ(std::memcmp(memory.recv.data, part.expected.data(), part.expected.size()), 0)
        << test.describe() << ": rank " << rank;
  }
  for (int rank = 0; rank < job.size(); ++rank) {
    job[rank].operations.clear();
    job[rank].ended = 0;
  }
}

class SurfaceSim : public ::testing::TestWithParam<std::vector<std::uint32_t>> {};

TEST_P(SurfaceSim, EveryRankFindsWhatItShould) {
  SimJob job(GetParam());
  unsigned turn = static_cast<unsigned>(job.size());
  for (int kind = 0; kind < surface::kKinds; ++kind) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{40}, std::size_t{9} << 10, std::size_t{150} << 10}) {
      for (const bool in_place : {false, true}) {
        ++turn;
        Case test;
        test.kind = static_cast<Kind>(kind);
        test.type = static_cast<DType>(turn * 5 % kDTypes);
        test.op = static_cast<ReduceOp>(turn * 3 % kReduceOps);
        if (!supports(test.op, test.type)) test.op = ReduceOp::kSum;
        test.count = bytes == 0 ? 0 : bytes / size_of(test.type) | 1;
        test.root = static_cast<int>(turn % static_cast<unsigned>(job.size()));
        test.in_place = in_place;
        run(job, test);
        if (HasFatalFailure()) return;
      }
    }
  }
}

using Hosts = std::vector<std::uint32_t>;
INSTANTIATE_TEST_SUITE_P(Placements, SurfaceSim,
                         ::testing::Values(Hosts{0}, Hosts{0, 0, 0}, Hosts{0, 1}, Hosts{0, 1, 2, 3, 4}, Hosts{0, 0, 1},
                                           Hosts{0, 0, 1, 1}, Hosts{0, 1, 0, 1}, Hosts{1, 0, 2, 0, 1, 1, 2}));

}  // namespace
}  // namespace aiacc::sim
