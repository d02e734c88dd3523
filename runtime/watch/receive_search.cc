#include "runtime/watch/receive_search.h"

#include <fmt/format.h>

#include <algorithm>

namespace aiacc {

ReceiveSearch::ReceiveSearch(int me, int size, Receiving mine) : size_(size) {
  members_[me].asked = true;
  answered(me, mine);
}

void ReceiveSearch::named_by(const Receiving& said) {
  if (said.from != Receiving::kAnyRank) {
    members_.try_emplace(said.from);
    return;
  }
  for (int rank = 0; rank < size_; ++rank) members_.try_emplace(rank);
}

std::vector<int> ReceiveSearch::to_ask() {
  std::vector<int> ranks;
  if (open_) return ranks;
  for (auto& [rank, member] : members_) {
    if (!member.asked) ranks.push_back(rank);
    member.asked = true;
  }
  return ranks;
}

void ReceiveSearch::answered(int rank, const Receiving& said) {
  const auto found = members_.find(rank);
  if (found == members_.end() || !found->second.asked || found->second.answered) return;
  const bool known = said.from == Receiving::kAnyRank || (said.from >= 0 && said.from < size_);
  if (!known) {
    open_ = true;
    return;
  }
  found->second.answered = true;
  found->second.call = said.call;
  named_by(said);
}

bool ReceiveSearch::is_closed() const noexcept {
  return !open_ &&
         std::all_of(members_.begin(), members_.end(), [](const auto& entry) { return entry.second.answered; });
}

std::string ReceiveSearch::sentence() const {
  constexpr std::size_t kNamed = 8;
  std::string text = "nobody sends";
  std::size_t named = 0;
  for (const auto& [rank, member] : members_) {
    if (named == kNamed) break;
    text += fmt::format("{} rank {} called {}", named++ == 0 ? ":" : ";", rank, member.call);
  }
  if (members_.size() > kNamed) text += fmt::format("; and {} more", members_.size() - kNamed);
  return text;
}

std::vector<int> ReceiveSearch::ranks() const {
  std::vector<int> ranks;
  for (const auto& [rank, member] : members_) ranks.push_back(rank);
  return ranks;
}

}  // namespace aiacc
