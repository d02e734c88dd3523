// For tests: threads as ranks on one host, each with a loop, a domain and a team, that run the same body concurrently.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "base/data/cpu_compute.h"
#include "base/io/real_loop.h"
#include "base/sim/threaded_compute.h"
#include "collectives/intra/intra_team.h"
#include "transports/host/memfd_domain.h"

namespace aiacc::intra {

// One rank; it exists while its thread runs.
struct Rank {
  io::RealLoop loop;
  CpuCompute cpu;
  std::optional<sim::ThreadedCompute> thread;  // in place of it
  MemfdDomain domain;
  IntraTeam host;
  Team team;
  std::uint64_t sequence = 0;

  Rank(std::shared_ptr<SegmentMapping> mapping, ViewPtr view, int rank, bool threaded)
      : thread(make_thread(loop, threaded)),
        domain(std::move(mapping), rank, loop),
        host(domain, view, rank, every_rank(view->size())),
        team{view, rank, loop, threaded ? static_cast<Compute&>(*thread) : cpu, &host, nullptr} {}

  static std::vector<int> every_rank(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  static std::optional<sim::ThreadedCompute> make_thread(Loop& loop, bool threaded) {
    if (!threaded) return std::nullopt;
    return std::optional<sim::ThreadedCompute>(std::in_place, loop);
  }
  int rank() const { return team.rank; }
  int size() const { return team.size(); }
};

inline ViewPtr world_view(int ranks) {
  std::vector<Member> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back({static_cast<std::uint32_t>(rank), 0, 0});
  return std::make_shared<View>(1, 0, 0, 0, std::move(members));
}

// `threaded`: the ranks use ThreadedCompute, whose work finishes later.
inline void run_ranks(int ranks, const std::function<void(Rank&)>& body, bool threaded = false) {
  constexpr std::uint64_t kNonce = 7;
  const HostSegment segment = HostSegment::create(ranks, std::uint64_t{64} << 20, kNonce);
  const auto mapping = SegmentMapping::map(segment.descriptor(), kNonce, ranks);
  const ViewPtr view = world_view(ranks);
  std::barrier all_open(ranks);
  std::vector<std::thread> threads;
  for (int number = 0; number < ranks; ++number) {
    threads.emplace_back([&body, &all_open, mapping, view, number, threaded] {
      Rank rank(mapping, view, number, threaded);
      Stop stop;
      Deadline deadline(rank.loop, after(rank.loop.now(), std::chrono::minutes(5)), stop, "a rank does not come");
      rank.loop.run(rank.host.open(stop));
      all_open.arrive_and_wait();
      body(rank);
      if (!::testing::Test::HasFailure()) rank.loop.run(rank.host.close(stop));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace aiacc::intra
