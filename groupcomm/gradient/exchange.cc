#include "groupcomm/gradient/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/wire/codec.h"

namespace aiacc::gradient {
namespace {

constexpr std::size_t kMostTensorsNamed = 8;
constexpr std::size_t kMostRanksNamed = 16;

std::string ranks_text(const std::vector<std::size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t at = 0; at < std::min(ranks.size(), kMostRanksNamed); ++at)
    text += fmt::format("{}{}", at == 0 ? "" : ", ", ranks[at]);
  if (ranks.size() > kMostRanksNamed) text += fmt::format(" and {} more", ranks.size() - kMostRanksNamed);
  return text;
}

}  // namespace

std::vector<std::byte> encode_payload(const ExchangePayload& payload) {
  const wire::Bytes bytes = wire::encode(payload);
  return {bytes.begin(), bytes.end()};
}

ExchangePayload decode_payload(std::span<const std::byte> bytes) {
  return wire::decode<ExchangePayload>(bytes, "an exchange of the gradient negotiation");
}

std::string stall_report(std::span<const ExchangePayload> of_ranks) {
  std::map<std::string_view, std::vector<bool>> submitted;
  std::uint64_t waited_us = 0;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    waited_us = std::max(waited_us, of_ranks[rank].waited_us);
    for (const std::string& name : of_ranks[rank].submitted) {
      std::vector<bool>& ranks = submitted.try_emplace(name, of_ranks.size()).first->second;
      ranks[rank] = true;
    }
  }
  std::string text;
  std::size_t tensors = 0;
  for (const auto& [name, ranks] : submitted) {
    std::vector<std::size_t> have, lack;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if (!of_ranks[rank].joined) (ranks[rank] ? have : lack).push_back(rank);
    if (lack.empty()) continue;
    if (++tensors > kMostTensorsNamed) continue;
    text += fmt::format("{}gradient '{}' is submitted by {} and not by {}", text.empty() ? "" : "; ", name,
                        ranks_text(have), ranks_text(lack));
  }
  if (tensors == 0) return {};
  if (tensors > kMostTensorsNamed) text += fmt::format("; and {} gradients more", tensors - kMostTensorsNamed);
  return fmt::format("after a wait of {:.1f} s {}; every rank must submit the same gradients, or join",
                     static_cast<double>(waited_us) / 1e6, text);
}

}  // namespace aiacc::gradient
