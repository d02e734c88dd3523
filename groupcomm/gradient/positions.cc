#include "groupcomm/gradient/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/wire/codec.h"

namespace aiacc::gradient {

void Positions::add(std::string_view name, std::uint64_t position) {
  mine_.names.push_back(Hash64().add(name).value());
  mine_.positions.push_back(position);
}

std::vector<std::byte> Positions::take_with(std::span<const std::byte> payload) {
  const wire::Bytes tail = wire::encode(std::exchange(mine_, {}));
  const std::uint64_t bytes = payload.size();
  std::vector<std::byte> all(sizeof bytes + payload.size() + tail.size());
  std::memcpy(all.data(), &bytes, sizeof bytes);
  std::copy(payload.begin(), payload.end(), all.begin() + sizeof bytes);
  std::copy(tail.begin(), tail.end(), all.end() - static_cast<std::ptrdiff_t>(tail.size()));
  return all;
}

std::vector<std::span<const std::byte>> Positions::split(std::span<const std::vector<std::byte>> of_ranks) {
  std::vector<std::span<const std::byte>> payloads;
  heard_.clear();
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    std::uint64_t bytes = 0;
    const std::span<const std::byte> all = of_ranks[rank];
    if (all.size() >= sizeof bytes) std::memcpy(&bytes, all.data(), sizeof bytes);
    if (all.size() < sizeof bytes || bytes > all.size() - sizeof bytes) {
      throw Error(Code::kProtocol, fmt::format("what rank {} says of its tensors is cut off", rank),
                  static_cast<int>(rank));
    }
    payloads.push_back(all.subspan(sizeof bytes, bytes));
    heard_.push_back(wire::decode<OfRank>(all.subspan(sizeof bytes + bytes), "the places of a rank's tensors"));
  }
  return payloads;
}

void Positions::learn(const TensorTable& table) {
  struct Known {
    std::uint64_t position;
    std::size_t ranks;
  };
  std::unordered_map<std::uint64_t, Known> known;
  for (const OfRank& one : heard_) {
    for (std::size_t i = 0; i < std::min(one.names.size(), one.positions.size()); ++i) {
      Known& place = known.try_emplace(one.names[i], Known{one.positions[i], 0}).first->second;
      if (place.position == one.positions[i]) ++place.ranks;
    }
  }
  for (std::size_t index = positions_.size(); index < table.agreed_tensors(); ++index) {
    const auto place = known.find(Hash64().add(table.agreed(static_cast<std::uint32_t>(index)).name).value());
    const bool alike = place != known.end() && place->second.ranks == heard_.size();
    positions_.push_back(alike ? place->second.position : kNowhere);
  }
  heard_.clear();
}

}  // namespace aiacc::gradient
