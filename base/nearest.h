// The known name that is nearest to an unknown one, for error messages.
#pragma once

#include <span>
#include <string_view>

namespace aiacc {

// The candidate that a user who typed `word` most likely meant: one that begins with `word`, or is the beginning of
// `word` (of three letters or more; dashes do not count), else the one with the least edit distance (insert, delete,
// replace, swap of adjacent letters). The first of equals; "" only if there are no candidates.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace aiacc
