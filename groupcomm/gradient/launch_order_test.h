// LaunchOrder: checks that what all ranks have agreed on is launched by priority. A launch goes behind one of lower priority only if
// some rank had said in its word that it may begin that one before the result of the round.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "groupcomm/gradient/tensor_table.h"
#include "groupcomm/gradient/word.h"

namespace aiacc::gradient::test {

class LaunchOrder {
 public:
  explicit LaunchOrder(std::uint64_t fusion_bytes) : fusion_bytes_(fusion_bytes) {}

  // A rank's word of a round: how many launches it has made, and up to how many it may make before the result.
  void contributed(std::uint64_t round, std::uint64_t launched, std::uint64_t may) {
    committed_.resize(std::max<std::size_t>(committed_.size(), round));
    committed_[round - 1].emplace_back(launched, may);
  }

  // The words of all ranks.
  void agreed(std::uint64_t round, const Word& merged) {
    rounds_of_.resize(merged.tensors());
    if (merged.any(Word::kBreak) || merged.any(Word::kSettling) || merged.all(Word::kAllJoined)) return;
    for (std::size_t index = 0; index < merged.tensors(); ++index)
      if (merged.ready(index)) rounds_of_[index].push_back(round);
  }

  // The next launch, the same on all ranks. What is wrong with its place, if anything.
  const char* launched(const TensorTable& tensors, std::span<const std::uint32_t> indices, bool scheduled) {
    const std::uint64_t serial = launches_.size();
    Launched& one = launches_.emplace_back();
    if (one.scheduled = scheduled; scheduled) return nullptr;
    one.priority = tensors.priority(indices.front());
    for (const std::uint32_t index : indices) {
      one.priority = std::max(one.priority, tensors.priority(index));
      one.bytes += tensors.agreed(index).bytes;
      if (rounds_of_[index].empty()) continue;  // all ranks have joined
      one.round = rounds_of_[index].front();
      rounds_of_[index].pop_front();
    }
    return one.round == 0 || !tensors.has_priorities() ? nullptr : what_is_wrong(serial);
  }

  std::uint64_t overtaken() const { return overtaken_; }

 private:
  struct Launched {
    bool scheduled = false;
    std::int32_t priority = 0;
    std::uint64_t bytes = 0;
    std::uint64_t round = 0;  // that agreed on it; 0: none
  };

  const char* what_is_wrong(std::uint64_t serial) {
    const Launched& one = launches_[serial];
    std::uint64_t settled = 0;
    for (const auto& [launched, may] : committed_[one.round - 1]) {
      settled = std::max(settled, may);
      std::uint64_t bytes = 0;
      for (std::uint64_t at = launched; at < std::min(may, serial); ++at) bytes += launches_[at].bytes;
      if (may > launched + 1 && bytes > fusion_bytes_) return "a rank begins too much during a round";
    }
    if (settled > serial) return "ranks begin what is not agreed on";
    for (std::uint64_t at = 0; at < serial; ++at) {
      const Launched& before = launches_[at];
      if (at >= settled && !before.scheduled && before.priority < one.priority)
        return "a lower priority is launched first";
      overtaken_ += before.round > one.round && before.priority > one.priority ? 1 : 0;
    }
    return nullptr;
  }

  const std::uint64_t fusion_bytes_;
  std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> committed_;  // by round
  std::vector<std::deque<std::uint64_t>> rounds_of_;  // by tensor: those that agreed on it, and its launch has not come
  std::vector<Launched> launches_;
  std::uint64_t overtaken_ = 0;
};

}  // namespace aiacc::gradient::test
