// Positions: which tensors lie alike in the memory of all ranks, so that neighbours are one range on each (slots.h).
//
// Each rank adds to its payload of an exchange where its new tensors lie; what all ranks say is the same on all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "groupcomm/gradient/tensor_table.h"

namespace aiacc::gradient {

class Positions {
 public:
  // No place that all ranks have alike.
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  // A tensor of this rank that has no index yet.
  void add(std::string_view name, std::uint64_t position);
  // `payload` with the tensors that were added behind it; they are forgotten.
  std::vector<std::byte> take_with(std::span<const std::byte> payload);
  // Takes what each rank gave apart: returns the payloads, and keeps the positions for learn(). Throws kProtocol.
  std::vector<std::span<const std::byte>> split(std::span<const std::vector<std::byte>> of_ranks);
  // The table has the indices of the tensors of the last split().
  void learn(const TensorTable& table);

  std::uint64_t of(std::uint32_t index) const noexcept {
    return index < positions_.size() ? positions_[index] : kNowhere;
  }

 private:
  struct OfRank {
    std::vector<std::uint64_t> names;  // hashes
    std::vector<std::uint64_t> positions;
    auto fields() { return std::tie(names, positions); }
  };

  OfRank mine_;
  std::vector<OfRank> heard_;             // by rank, of the last exchange
  std::vector<std::uint64_t> positions_;  // by agreed index
};

}  // namespace aiacc::gradient
