// PackedLayout: the offsets of the blocks of an all-gather or reduce-scatter when they are ordered host by host.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/hier/hier_call.h"
#include "collectives/hier/select.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::hier {

class PackedLayout {
 public:
  explicit PackedLayout(const HierCall& call) : call_(call) {
    std::size_t at = 0;
    for (const int rank : call.view.host_by_host()) {
      blocks_.push_back({at, call.op.call.block(rank).count});
      at += blocks_.back().count;
      longest_ = std::max(longest_, blocks_.back().count);
    }
    count_ = at;
  }
  std::size_t count() const noexcept { return count_; }  // elements of all
  std::size_t longest() const noexcept { return longest_; }
  // `position` is that of a rank in the order host by host.
  Extent block(std::size_t position) const noexcept { return blocks_[position]; }
  Extent own_block() const noexcept {
    return blocks_[call_.first_of(call_.host) + static_cast<std::size_t>(call_.local_rank)];
  }
  // The extent of all blocks of a host's ranks.
  Extent part(int host) const noexcept {
    const std::size_t first = call_.first_of(host);
    const std::size_t last = first + static_cast<std::size_t>(call_.members_of(host)) - 1;
    return {blocks_[first].begin, blocks_[last].end() - blocks_[first].begin};
  }
  // Of a host's part: each of its shards is cut into `slices` slices.
  Extent piece(int host, std::size_t shard, std::size_t shards, std::size_t slice, std::size_t slices) const {
    const Extent all = part(host);
    const inter::Parts by_shard{all.count, shards}, by_slice{by_shard.length(shard), slices};
    return {all.begin + by_shard.offset(shard) + by_slice.offset(slice), by_slice.length(slice)};
  }
  // How many slices of at most `largest` bytes the longest shard of a host has, in elements of so many bytes.
  std::size_t slices_of(std::size_t shards, std::size_t element_bytes, std::size_t largest) const {
    std::size_t longest = 0;
    for (int host = 0; host < call_.view.hosts(); ++host)
      longest = std::max(longest, piece(host, 0, shards, 0, 1).count);
    return inter::pieces_of(longest * element_bytes, largest);
  }
  // Whether the shards of a host's part are the blocks of its members; of all hosts' parts.
  bool shards_are_blocks(int host, std::size_t shards) const noexcept {
    return static_cast<std::size_t>(call_.members_of(host)) == shards && !call_.op.call.uneven;
  }
  bool shards_are_blocks(std::size_t shards) const noexcept {
    for (int host = 0; host < call_.view.hosts(); ++host) {
      if (!shards_are_blocks(host, shards)) return false;
    }
    return true;
  }
  // Whether the call's own blocks have this layout.
  bool is_the_calls() const noexcept {
    std::size_t position = 0;
    for (const int rank : call_.view.host_by_host()) {
      const Extent here = blocks_[position++];
      if (here.count > 0 && here.begin != call_.op.call.block(rank).begin) return false;
    }
    return true;
  }

 private:
  const HierCall& call_;
  std::vector<Extent> blocks_;
  std::size_t count_ = 0;
  std::size_t longest_ = 0;
};

}  // namespace aiacc::hier
