// The program that bench/host measures below the C ABI: forked processes on IntraTeam and its algorithms, for tuning
// them.
//   bench_host_core RANKS shared|private|bare [LARGEST_BYTES]
// `bare` is the lower bound: the fused loop and two barriers over shared pages, without the library's protocol.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "base/cpu_relax.h"
#include "base/data/cpu_compute.h"
#include "base/io/real_loop.h"
#include "base/task/frame_pool.h"
#include "bench/host/measure.h"
#include "collectives/intra/intra_team.h"
#include "collectives/intra/select.h"
#include "collectives/intra/small.h"
#include "transports/host/memfd_domain.h"

namespace {

using namespace aiacc;
constexpr std::uint64_t kNonce = 1;

struct Rank {
  FramePool frames;
  FramePool::Use use{frames};
  io::RealLoop loop;
  CpuCompute compute;
  std::unique_ptr<MemfdDomain> domain;
  IntraTeam host;
  Team team;
  Stop stop;

  Rank(int descriptor, const ViewPtr& view, int rank, int size)
      : domain(MemfdDomain::attach(descriptor, kNonce, rank, size, loop)),
        host(*domain, view, rank, all(size)),
        team{view, rank, loop, compute, &host, nullptr} {
    loop.run(host.open(stop));
  }
  static std::vector<int> all(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  void run(const Call& call, Buffer send, Buffer recv) {
    if (intra::try_small(host, call, send.data, recv.data, intra::SmallWait::kYieldsToo) == intra::Small::kDone) return;
    Operation op{team, call, 0, stop, send, recv};
    loop.run(intra::run(op));
  }
};

Call call_of(Collective kind, std::size_t count, DType type, ReduceOp op) {
  Call call;
  call.kind = kind;
  call.count = count;
  call.reduction.type = type;
  call.reduction.op = op;
  return call;
}

// Flags in the first words of a shared page; data at fixed offsets of each slice.
struct Bare {
  Rank& rank;
  std::uint64_t number = 0;
  std::uint32_t line = 0;

  explicit Bare(Rank& r) : rank(r), line(r.domain->claim_lines(77, 1)) {}
  void meet() {
    ++number;
    rank.domain->own_line(line).word[0].store(number, std::memory_order_release);
    for (int other = 0; other < rank.domain->size(); ++other) {
      while (rank.domain->line(other, line).word[0].load(std::memory_order_acquire) < number) cpu_relax();
    }
  }
  void allreduce(std::uint64_t offset, std::size_t count) {
    meet();
    const auto n = static_cast<std::size_t>(rank.domain->size());
    const std::size_t slice = (count + n - 1) / n;
    const std::size_t begin = std::min(count, slice * static_cast<std::size_t>(rank.domain->rank()));
    const std::size_t length = std::min(slice, count - begin);
    std::byte* places[64];
    for (int other = 0; other < rank.domain->size(); ++other) {
      places[other] = rank.domain->view(other, offset + static_cast<std::uint64_t>(other) * 256, count * 4) + begin * 4;
    }
    rank.compute.reduce_now({places, n}, {places, n}, length, {}, static_cast<int>(n));
    meet();
  }
};

void run_rank(int descriptor, const ViewPtr& view, int number, int size, const std::string& memory,
              std::size_t largest) {
  Rank rank(descriptor, view, number, size);
  Bare bare(rank);
  bench::Subject subject;
  subject.rank = number;
  subject.size = size;
  std::uint64_t offset = 0;
  subject.allocate = [&](std::size_t count) {
    if (memory == "private") return static_cast<float*>(std::aligned_alloc(4096, count * 4));
    offset = rank.domain->allocate(count * 4).offset - static_cast<std::uint64_t>(number) * 256;
    const std::uint64_t mine = offset + static_cast<std::uint64_t>(number) * 256;
    return reinterpret_cast<float*>(rank.domain->view(number, mine, count * 4));
  };
  subject.call = [&](float* data, float*, std::size_t count) {
    if (memory == "bare") return bare.allreduce(offset, count);
    const Buffer buffer{reinterpret_cast<std::byte*>(data), count * 4};
    rank.run(call_of(Collective::kAllreduce, count, DType::kFloat32, ReduceOp::kSum), buffer, buffer);
  };
  subject.barrier = [&] { rank.run(call_of(Collective::kBarrier, 0, DType::kInt8, ReduceOp::kSum), {}, {}); };
  subject.slowest = [&](double mine) {
    double all = 0;
    rank.run(call_of(Collective::kAllreduce, 1, DType::kFloat64, ReduceOp::kMax),
             {reinterpret_cast<std::byte*>(&mine), 8}, {reinterpret_cast<std::byte*>(&all), 8});
    return all;
  };
  bench::run(subject, memory.c_str(), largest);
  rank.loop.run(rank.host.close(rank.stop));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: bench_host_core RANKS shared|private|bare [LARGEST_BYTES]\n"), 2;
  const int size = std::atoi(argv[1]);
  const std::size_t largest = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : std::size_t{64} << 20;
  const HostSegment segment = HostSegment::create(size, 0, kNonce);
  std::vector<Member> members;
  for (int rank = 0; rank < size; ++rank) members.push_back({static_cast<std::uint32_t>(rank), 0, 0});
  const auto view = std::make_shared<const View>(1, 0, 0, 0, members);
  for (int rank = 0; rank < size; ++rank) {
    if (fork() != 0) continue;
    run_rank(segment.descriptor(), view, rank, size, argv[2], largest);
    return 0;
  }
  int worst = 0;
  for (int status = 0; wait(&status) > 0;) worst = std::max(worst, status);
  return worst == 0 ? 0 : 1;
}
