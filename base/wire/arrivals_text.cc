#include "base/wire/arrivals_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace aiacc::wire {
namespace {

constexpr std::size_t kMostNamed = 16;  // places in one list

// Ranks, ascending, that are at one place.
struct AtPlace {
  std::string_view where;
  std::vector<std::size_t> ranks;
};

// "0-2, 5"
std::string ranges(const std::vector<std::size_t>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[first]);
    if (last > first) text += fmt::format("-{}", ranks[last]);
    first = last + 1;
  }
  return text;
}

// Of the ranks in that state; empty if there is none.
std::string list(std::span<const RankArrival> ranks, RankArrival::State state) {
  std::vector<AtPlace> places;  // in the order of their first ranks
  std::size_t unnamed = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].state != state) continue;
    const auto known = std::find_if(places.begin(), places.end(),
                                    [&](const AtPlace& place) { return place.where == ranks[rank].where; });
    if (known != places.end()) {
      known->ranks.push_back(rank);
    } else if (places.size() < kMostNamed) {
      places.push_back({ranks[rank].where, {rank}});
    } else {
      ++unnamed;
    }
  }
  std::string text;
  for (const AtPlace& place : places) {
    text += fmt::format("{}rank{} {}{}{}", text.empty() ? "" : ", ", place.ranks.size() == 1 ? "" : "s",
                        ranges(place.ranks), place.where.empty() ? "" : " ", place.where);
  }
  return unnamed == 0 ? text : fmt::format("{} and {} more", text, unnamed);
}

}  // namespace

std::string arrivals_text(std::span<const RankArrival> ranks, std::string_view did) {
  using State = RankArrival::State;
  const auto came = static_cast<std::size_t>(
      std::count_if(ranks.begin(), ranks.end(), [](const RankArrival& rank) { return rank.state == State::kHere; }));
  const std::string here = list(ranks, State::kHere);
  const std::string left = list(ranks, State::kLeft);
  const std::string away = list(ranks, State::kAway);
  std::string text = fmt::format("{} of {} ranks {}: {}", came, ranks.size(), did, here.empty() ? "none" : here);
  if (!left.empty()) text += fmt::format("; {} came and left", left);
  if (!away.empty()) text += fmt::format("; {} did not", away);
  return text;
}

std::string version_mismatch_text(std::string_view first_uses, std::string_view version, std::string_view other,
                                  std::string_view other_version) {
  return fmt::format("{} aiacc {} and {} aiacc {}: all ranks of a job need the same version", first_uses, version,
                     other, other_version);
}

}  // namespace aiacc::wire
