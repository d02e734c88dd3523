#include "base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace aiacc {

namespace {

// Optimal string alignment: Damerau's distance without edits inside a swapped pair.
std::size_t distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> cost((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return cost[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return cost.back();
}

constexpr std::size_t kShortestPrefix = 3;

std::string without_dashes(std::string_view name) {
  std::string text(name);
  std::erase(text, '-');
  return text;
}

bool one_begins_the_other(std::string_view a, std::string_view b) {
  return std::min(a.size(), b.size()) >= kShortestPrefix && (a.starts_with(b) || b.starts_with(a));
}

bool is_near(std::size_t edits, std::size_t length) {
  return edits < length && edits <= std::max<std::size_t>(length / 3, 1);
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string plain = without_dashes(word);
  std::string_view best;
  std::size_t least = static_cast<std::size_t>(-1);
  for (const std::string_view candidate : candidates) {
    const std::size_t edits = distance(word, candidate);
    // A name with one wrong letter is nearer than any prefix.
    const bool beginning = one_begins_the_other(plain, without_dashes(candidate));
    const std::size_t score = beginning ? std::min<std::size_t>(edits, 2) : edits;
    if (score < least && (beginning || is_near(edits, std::max(word.size(), candidate.size())))) {
      least = score;
      best = candidate;
    }
  }
  return best;
}

std::string if_near(std::string_view word, std::span<const std::string_view> candidates, std::string_view before,
                    std::string_view after) {
  const std::string_view found = nearest(word, candidates);
  return found.empty() ? "" : std::string(before).append(found).append(after);
}

}  // namespace aiacc
