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
  hosts_ = static_cast<int>(hosts.size());
  host_begin_.resize(members_.size());
  host_end_.resize(members_.size());
  by_host_.reserve(members_.size());
  for (const auto& [host, ranks] : hosts) {
    const int begin = static_cast<int>(by_host_.size());
    by_host_.insert(by_host_.end(), ranks.begin(), ranks.end());
    for (int rank : ranks) {
      host_begin_[static_cast<std::size_t>(rank)] = begin;
      host_end_[static_cast<std::size_t>(rank)] = static_cast<int>(by_host_.size());
    }
  }
}

int View::rank_of(const Member& member) const noexcept {
  const auto found = std::find(members_.begin(), members_.end(), member);
  return found == members_.end() ? -1 : static_cast<int>(found - members_.begin());
}

std::span<const int> View::ranks_on_host_of(int rank) const noexcept {
  const auto begin = static_cast<std::size_t>(host_begin_[static_cast<std::size_t>(rank)]);
  const auto end = static_cast<std::size_t>(host_end_[static_cast<std::size_t>(rank)]);
  return std::span(by_host_).subspan(begin, end - begin);
}

}  // namespace aiacc
