#include "base/io/stream_range.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"

namespace aiacc::io {
namespace {

int count_of(std::string_view word) noexcept {
  int value = 0;
  const char* const end = word.data() + word.size();
  const auto [stopped, error] = std::from_chars(word.data(), end, value);
  return error == std::errc() && stopped == end && value <= StreamRange::kMost ? value : 0;
}

}  // namespace

StreamRange StreamRange::parse(std::string_view name, std::string_view text) {
  if (text == "auto") return {1, kMost};
  const std::size_t dash = text.find('-');
  const int least = count_of(text.substr(0, dash));
  const int most = dash == std::string_view::npos ? least : count_of(text.substr(dash + 1));
  if (least < 1 || most < least) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: '{}' is no number of connections; it takes 1 to {}, a range as in 2-8, or auto", name,
                            text, kMost));
  }
  return {least, most};
}

}  // namespace aiacc::io
