// Blocks with a length for each rank, for allgatherv and similar calls. Part of aiacc.hpp.
#ifndef AIACC_BLOCKS_HPP
#define AIACC_BLOCKS_HPP

#include <aiacc/aiacc.h>
#include <aiacc/error.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

namespace aiacc {
inline namespace v0 {

// The positions of the ranks' blocks in a buffer: counts[r] elements each, consecutive, or at element displacements[r].
// Refers to the caller's arrays, which are read when the operation is called.
//   world.allgatherv(mine, all, counts);
//   world.allgatherv(mine, all, {counts, displacements});
class Blocks {
 public:
  using Numbers = std::span<const std::size_t>;

  Blocks() = default;
  template <class Counts>
  requires std::is_convertible_v<const Counts &, Numbers> Blocks(const Counts &counts) : counts_(counts) {}
  Blocks(Numbers counts, Numbers displacements) : counts_(counts), displacements_(displacements) {
    if (counts.size() != displacements.size()) {
      throw Error(AIACC_ERR_INVALID_ARGUMENT, "counts and displacements have not one number each for each rank");
    }
  }
  Numbers counts() const noexcept { return counts_; }
  // Null: consecutive blocks.
  const std::size_t *displacements() const noexcept { return displacements_.empty() ? nullptr : displacements_.data(); }
  // Whether all blocks fit into a buffer of this many elements.
  bool fit(std::size_t elements) const noexcept {
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
      if (!displacements_.empty()) at = displacements_[rank];
      if (at > elements || counts_[rank] > elements - at) return false;
      at += counts_[rank];
    }
    return true;
  }

 private:
  Numbers counts_;
  Numbers displacements_;
};

}  // namespace v0
}  // namespace aiacc

#endif
