// The random marker behind which an agent begins to speak. A login may print what it likes before (banners, module systems,
// a shell's greeting); aiaccrun reads over it up to the answer to the marker that it sent. The answer is not the marker
// itself, so that whatever merely echoes its input is no agent.
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

// Looks for the answer in what comes piece by piece.
class MarkerScan {
 public:
  explicit MarkerScan(std::string answer) : answer_(std::move(answer)) {}

  // What follows the answer, once it has come. Throws kProtocol when more than kBannerLimit bytes came without it.
  std::optional<std::string_view> add(std::string_view bytes);
  // What came before it, so far.
  std::string_view banner() const noexcept { return std::string_view(seen_).substr(0, found_); }

 private:
  std::string answer_;
  std::string seen_;
  std::size_t found_ = std::string::npos;
};

}  // namespace aiacc::launcher
