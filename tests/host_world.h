// For tests: threads as ranks on one host, each with a loop, a domain and a team, that run the same body side by side.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/data/cpu_compute.h"
#include "base/io/real_loop.h"
#include "collectives/host/host_team.h"
#include "transports/host/memfd_domain.h"

namespace aiacc::host {

// One rank, alive while its thread is.
struct Rank {
  io::RealLoop loop;
  CpuCompute compute;
  MemfdDomain domain;
  HostTeam host;
  Team team;
  std::uint64_t sequence = 0;

  Rank(std::shared_ptr<SegmentMapping> mapping, ViewPtr view, int rank)
      : domain(std::move(mapping), rank, loop),
        host(domain, view, rank, every_rank(view->size())),
        team{view, rank, loop, compute, &host, nullptr} {}

  static std::vector<int> every_rank(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  int rank() const { return team.rank; }
  int size() const { return team.size(); }
};

inline ViewPtr world_view(int ranks) {
  std::vector<Member> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back({static_cast<std::uint32_t>(rank), 0, 0});
  return std::make_shared<View>(1, 0, 0, 0, std::move(members));
}

inline void run_ranks(int ranks, const std::function<void(Rank&)>& body) {
  constexpr std::uint64_t kNonce = 7;
  const HostSegment segment = HostSegment::create(ranks, std::uint64_t{64} << 20, kNonce);
  const auto mapping = SegmentMapping::map(segment.descriptor(), kNonce, ranks);
  const ViewPtr view = world_view(ranks);
  std::barrier all_open(ranks);
  std::vector<std::thread> threads;
  for (int number = 0; number < ranks; ++number) {
    threads.emplace_back([&body, &all_open, mapping, view, number] {
      Rank rank(mapping, view, number);
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

}  // namespace aiacc::host
