// ScratchPool: memory that operations borrow for as long as they run. What is given back is kept, so that the next one does
// not have its pages made anew (a quarter MiB costs 60 µs that way, as long as it travels).
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace aiacc {

class ScratchPool {
 public:
  static constexpr std::size_t kKeptBytes = 8 << 20;

  struct Block {
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
  };

  // At least so many bytes, with any content; from what is kept, the smallest that is large enough.
  Block take(std::size_t bytes) {
    if (bytes == 0) return {};
    const auto found = std::lower_bound(kept_.begin(), kept_.end(), bytes,
                                        [](const Block& block, std::size_t wanted) { return block.bytes < wanted; });
    if (found == kept_.end()) return {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
    Block block = std::move(*found);
    kept_.erase(found);
    kept_bytes_ -= block.bytes;
    return block;
  }

  void give_back(Block block) noexcept {
    if (block.bytes == 0 || kept_bytes_ + block.bytes > kKeptBytes) return;
    const auto place = std::upper_bound(kept_.begin(), kept_.end(), block.bytes,
                                        [](std::size_t bytes, const Block& other) { return bytes < other.bytes; });
    const std::size_t bytes = block.bytes;
    try {
      kept_.insert(place, std::move(block));
      kept_bytes_ += bytes;
    } catch (const std::bad_alloc&) {  // then it is not kept
    }
  }

 private:
  std::vector<Block> kept_;  // by size
  std::size_t kept_bytes_ = 0;
};

}  // namespace aiacc
