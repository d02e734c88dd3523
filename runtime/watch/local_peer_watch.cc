#include "runtime/watch/local_peer_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace aiacc {

void LocalPeerWatch::watch(io::Processes& processes, const wire::Roster& roster,
                           const std::vector<std::int32_t>& firsts, int rank) {
  for (std::size_t other = 0; other < firsts.size(); ++other) {
    if (static_cast<int>(other) == rank || firsts[other] != firsts[static_cast<std::size_t>(rank)]) continue;
    std::unique_ptr<io::ProcessEnd> end = processes.watch(roster.ranks[other].process);
    if (end == nullptr) continue;
    One& one = watched_.emplace_back(static_cast<int>(other), roster.ranks[other].host_name, std::move(end));
    one.root.emplace(loop_, one.end->wait(stop_), static_cast<Root::Owner&>(*this));
  }
  for (One& one : watched_) one.root->start();
}

bool LocalPeerWatch::sees(int rank) const noexcept {
  return std::any_of(watched_.begin(), watched_.end(), [rank](const One& one) { return one.rank == rank; });
}

void LocalPeerWatch::root_ended(Root& root, std::exception_ptr error) noexcept {
  if (error) return;
  const auto ended =
      std::find_if(watched_.begin(), watched_.end(), [&](const One& one) { return &*one.root == &root; });
  owner_.local_peer_ended(ended->rank, fmt::format("rank {} on host {} ended without leaving the job: {} is gone",
                                                   ended->rank, ended->host_name, ended->end->describe()));
}

}  // namespace aiacc
