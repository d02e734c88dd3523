// The nearest known name to one that is not known, for error sentences.
#pragma once

#include <span>
#include <string_view>

namespace aiacc {

// The candidate that a writer of `word` most likely meant: one that begins with `word` (or the other way round, from three
// letters on, dashes aside), else the one at the least edit distance (insert, delete, replace, swap of neighbours). Of equals the first.
// "" only if there are no candidates.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace aiacc
