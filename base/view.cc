#include "base/view.h"

#include <algorithm>
#include <map>

#include "base/hash.h"

namespace aiacc {

View::View(std::uint64_t job, std::uint64_t parent, std::uint64_t key, std::uint32_t epoch, std::vector<Member> members)
    : job_(job), epoch_(epoch), members_(std::move(members)) {
  Hash64 hash;
  hash.add(job).add(parent).add(key).add(epoch);
  std::map<std::uint32_t, std::vector<int>> hosts;
  for (int rank = 0; rank < size(); ++rank) {
    const Member& member = this->member(rank);
    hash.add(member.id).add(member.incarnation).add(member.host);
    hosts[member.host].push_back(rank);
  }
  id_ = hash.value();
  host_of_.resize(members_.size());
  local_rank_of_.resize(members_.size());
  by_host_.reserve(members_.size());
  for (const auto& [number, ranks] : hosts) {
    const int host = static_cast<int>(begins_.size());
    const int here = static_cast<int>(ranks.size());
    begins_.push_back(static_cast<int>(by_host_.size()));
    for (int local_rank = 0; local_rank < here; ++local_rank) {
      const int rank = ranks[static_cast<std::size_t>(local_rank)];
      by_host_.push_back(rank);
      host_of_[static_cast<std::size_t>(rank)] = host;
      local_rank_of_[static_cast<std::size_t>(rank)] = local_rank;
    }
    fewest_ = host == 0 ? here : std::min(fewest_, here);
    most_ = std::max(most_, here);
  }
}

int View::rank_of(const Member& member) const noexcept {
  const auto found = std::find(members_.begin(), members_.end(), member);
  return found == members_.end() ? -1 : static_cast<int>(found - members_.begin());
}

std::span<const int> View::ranks_on_host_of(int rank) const noexcept { return ranks_on_host(host_of(rank)); }

std::span<const int> View::ranks_on_host(int host) const noexcept {
  const auto at = static_cast<std::size_t>(host);
  const auto begin = static_cast<std::size_t>(begins_[at]);
  const auto end = at + 1 < begins_.size() ? static_cast<std::size_t>(begins_[at + 1]) : by_host_.size();
  return std::span(by_host_).subspan(begin, end - begin);
}

}  // namespace aiacc
