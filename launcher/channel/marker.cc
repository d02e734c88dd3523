#include "launcher/channel/marker.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "base/error.h"

namespace aiacc::launcher {

std::string make_marker(io::Entropy& entropy) {
  std::array<std::uint64_t, 2> random{};
  entropy.fill(std::as_writable_bytes(std::span(random)));
  return fmt::format("{:016x}{:016x}", random[0], random[1]);
}

std::string answer_to(std::string_view marker) { return "aiacc-agent:" + std::string(marker.rbegin(), marker.rend()); }

std::optional<std::string_view> MarkerScan::add(std::string_view bytes) {
  const std::size_t from = seen_.size() < answer_.size() ? 0 : seen_.size() - answer_.size() + 1;
  seen_ += bytes;
  found_ = seen_.find(answer_, from);
  if (found_ != std::string::npos) return std::string_view(seen_).substr(found_ + answer_.size());
  if (seen_.size() > kBannerLimit) {
    throw Error(Code::kProtocol, fmt::format("it printed more than {} KiB and no agent answered", kBannerLimit / 1024));
  }
  return std::nullopt;
}

}  // namespace aiacc::launcher
