// Extents: the element ranges of a buffer that belong to one member. Its extents, concatenated, are the member's
// stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "collectives/operation.h"

namespace aiacc::intra {

class Extents {
 public:
  void add(Extent extent) {
    if (extent.count == 0) return;
    extents_.push_back(extent);
    count_ += extent.count;
  }
  std::size_t count() const noexcept { return count_; }

  // Calls fn(position in the stream, extent) for the pieces that make up [begin, begin + count) of the stream, up to
  // its end.
  template <class Fn>
  void for_each(std::size_t begin, std::size_t count, Fn&& fn) const {
    const std::size_t end = std::min(count_, begin + count);
    std::size_t position = 0;
    for (const Extent& extent : extents_) {
      const std::size_t from = std::max(position, begin);
      const std::size_t to = std::min(position + extent.count, end);
      if (from < to) fn(from, Extent{extent.begin + (from - position), to - from});
      position += extent.count;
    }
  }
  // The same pieces as a list, for coroutines.
  struct Piece {
    std::size_t position;
    Extent extent;
  };
  std::vector<Piece> pieces(std::size_t begin, std::size_t count) const {
    std::vector<Piece> found;
    for_each(begin, count, [&found](std::size_t position, Extent extent) { found.push_back({position, extent}); });
    return found;
  }

 private:
  std::vector<Extent> extents_;
  std::size_t count_ = 0;
};

}  // namespace aiacc::intra
