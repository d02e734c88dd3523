#include "transports/sim/sim_cluster.h"

#include <fmt/format.h>

#include <algorithm>

namespace aiacc::sim {
namespace {

std::vector<std::uint32_t> consecutive_hosts(int ranks, int per_host) {
  std::vector<std::uint32_t> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(static_cast<std::uint32_t>(rank / per_host));
  return hosts;
}

ViewPtr make_view(const std::vector<std::uint32_t>& hosts) {
  std::vector<Member> members;
  members.reserve(hosts.size());
  for (const std::uint32_t host : hosts) members.push_back(Member{static_cast<std::uint32_t>(members.size()), 0, host});
  return std::make_shared<const View>(1, 0, 0, 0, std::move(members));
}

}  // namespace

SimRank::SimRank(SimCluster& cluster, int rank)
    : rank_(rank),
      loop_(cluster.world(), fmt::format("host {}", cluster.view()->member(rank).host)),
      port_(cluster.fabric().open(rank, loop_)),
      messenger_(loop_, *port_, cluster.view(), rank) {
  const auto host = static_cast<std::size_t>(cluster.view()->host_of(rank));
  if (host >= cluster.memories_.size() || cluster.memories_[host] == nullptr) return;
  domain_ = cluster.memories_[host]->attach(cluster.view()->local_rank_of(rank), loop_);
}

SimRank::~SimRank() {
  if (ended()) return;
  stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the simulation is over")));
  loop_.bury();
}

void SimRank::start(Task<void> program) {
  AIACC_INVARIANT(ended(), "a rank runs one program at a time");
  ended_ = false;
  error_ = nullptr;
  root_.emplace(loop_, std::move(program), static_cast<Root::Owner&>(*this));
  root_->start();
}

void SimRank::root_ended(Root&, std::exception_ptr error) noexcept {
  ended_ = true;
  ended_at_ = loop_.now();
  error_ = std::move(error);
}

SimCluster::SimCluster(std::uint64_t seed, int ranks, FabricModel model, int per_host)
    : world_(seed), view_(make_view(consecutive_hosts(ranks, per_host))), fabric_(world_, view_, model) {
  ranks_.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) ranks_.push_back(std::make_unique<SimRank>(*this, rank));
}

SimCluster::SimCluster(std::uint64_t seed, const std::vector<std::uint32_t>& hosts, FabricModel model)
    : world_(seed), view_(make_view(hosts)), fabric_(world_, view_, model) {
  for (int host = 0; host < view_->hosts(); ++host) {
    const int ranks = static_cast<int>(view_->ranks_on_host(host).size());
    memories_.push_back(ranks == 1 ? nullptr : std::make_unique<SimHostMemory>(world_, ranks));
  }
  for (int rank = 0; rank < size(); ++rank) ranks_.push_back(std::make_unique<SimRank>(*this, rank));
}

bool SimCluster::run() {
  const auto all_ended = [this] {
    return std::all_of(ranks_.begin(), ranks_.end(), [this](const std::unique_ptr<SimRank>& each) {
      return each->ended() || world_.dead(each->loop().node());
    });
  };
  // Checking every rank after every event would cost more than the events themselves.
  while (!all_ended()) {
    for (int i = 0; i < 1000; ++i) {
      if (!world_.step()) return all_ended();
    }
  }
  return true;
}

}  // namespace aiacc::sim
