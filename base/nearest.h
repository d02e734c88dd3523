// The known name that is nearest to an unknown one, for error messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace aiacc {

// The candidate that a user who typed `word` most likely meant: one that begins with `word`, or is the beginning of
// `word` (of three letters or more; dashes do not count), else the one with the least edit distance (insert, delete,
// replace, swap of adjacent letters). The first of equals. "" if none is near: one edit for each three letters of the longer
// of the two is, or one edit in a shorter word.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

// "BEFORE CANDIDATE AFTER" without the blanks; "" if none is near.
std::string if_near(std::string_view word, std::span<const std::string_view> candidates, std::string_view before,
                    std::string_view after = "");

}  // namespace aiacc
