// StreamRange: how many TCP connections two processes may have for their messages.
#pragma once

#include <string>
#include <string_view>

namespace aiacc::io {

struct StreamRange {
  static constexpr int kMost = 64;

  constexpr StreamRange(int number = 1) noexcept : least(number), most(number) {}  // NOLINT: a number is a range
  constexpr StreamRange(int its_least, int its_most) noexcept : least(its_least), most(its_most) {}
  // "4", "2-8", or "auto", which is 1-64. Throws kInvalidArgument with a sentence that begins with `name`.
  static StreamRange parse(std::string_view name, std::string_view text);

  bool operator==(const StreamRange&) const = default;

  int least;
  int most;
};

}  // namespace aiacc::io
