// The random marker that precedes an agent's frames. A login may print anything before it (banners, module systems, a
// shell's greeting); aiaccrun skips everything up to the answer to the marker that it sent. The answer differs from the
// marker, so that a program that merely echoes its input is not taken for an agent.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/io/clock.h"

namespace aiacc::launcher {

inline constexpr std::size_t kBannerLimit = 64 * 1024;

std::string make_marker(io::Entropy& entropy);
std::string answer_to(std::string_view marker);

// Searches incrementally for the answer.
class MarkerScan {
 public:
  explicit MarkerScan(std::string answer) : answer_(std::move(answer)) {}

  // The bytes behind the answer, once it was found. Throws kProtocol when more than kBannerLimit bytes came without it.
  std::optional<std::string_view> add(std::string_view bytes);
  // The bytes before the answer, so far.
  std::string_view banner() const noexcept { return std::string_view(seen_).substr(0, found_); }

 private:
  std::string answer_;
  std::string seen_;
  std::size_t found_ = std::string::npos;
};

}  // namespace aiacc::launcher
