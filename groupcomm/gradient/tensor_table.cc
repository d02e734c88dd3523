#include "groupcomm/gradient/tensor_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace aiacc::gradient {
namespace {

std::string described_record(const TensorRecord& record) {
  return record.is_table() ? record.description : fmt::format("{} ({} bytes)", record.description, record.bytes);
}

std::string differs(std::string_view name, std::string_view whose, const TensorRecord& record,
                    std::string_view whose_other, const TensorRecord& other) {
  return fmt::format("gradient '{}' is {} on {} and {} on {}; give different tensors different names on all ranks",
                     name, described_record(record), whose, described_record(other), whose_other);
}

}  // namespace

std::uint32_t TensorTable::add(TensorRecord record) {
  if (const auto found = local_names_.find(record.name); found != local_names_.end()) {
    const TensorRecord& before = local_[found->second].record;
    if (before != record)
      throw Error(Code::kMismatch, differs(record.name, fmt::format("rank {} now", rank_), record,
                                           fmt::format("rank {} before", rank_), before));
    return found->second;
  }
  const auto id = static_cast<std::uint32_t>(local_.size());
  Local local;
  if (const auto found = agreed_names_.find(record.name); found != agreed_names_.end()) {
    Agreed& agreed = agreed_[found->second];
    if (agreed.record != record)
      throw Error(Code::kMismatch,
                  differs(record.name, fmt::format("rank {}", rank_), record, fmt::format("rank {}", agreed.first_rank),
                          agreed.record),
                  static_cast<int>(agreed.first_rank));
    local.index = found->second;
    agreed.local = id;
  } else {
    ++new_;
  }
  local_names_.emplace(record.name, id);
  local.record = std::move(record);
  local_.push_back(std::move(local));
  return id;
}

std::vector<TensorRecord> TensorTable::new_records() const {
  std::vector<TensorRecord> records;
  for (const Local& local : local_)
    if (local.index == kNoIndex) records.push_back(local.record);
  return records;
}

std::uint32_t TensorTable::class_of(std::uint64_t key) {
  for (std::uint32_t known = 0; known < keys_.size(); ++known)
    if (keys_[known] == key) return known;
  keys_.push_back(key);
  return static_cast<std::uint32_t>(keys_.size() - 1);
}

void TensorTable::append(std::span<const std::vector<TensorRecord>> of_ranks, std::vector<std::uint32_t>& mapped) {
  for (std::uint32_t rank = 0; rank < of_ranks.size(); ++rank) {
    for (const TensorRecord& record : of_ranks[rank]) {
      if (const auto found = agreed_names_.find(record.name); found != agreed_names_.end()) {
        const Agreed& agreed = agreed_[found->second];
        if (agreed.record != record)
          throw Error(Code::kMismatch,
                      differs(record.name, fmt::format("rank {}", rank), record,
                              fmt::format("rank {}", agreed.first_rank), agreed.record),
                      static_cast<int>(rank));
        continue;
      }
      const auto index = static_cast<std::uint32_t>(agreed_.size());
      agreed_names_.emplace(record.name, index);
      agreed_.push_back({record, rank, kNoIndex, class_of(record.fusion_key)});
      has_priorities_ = has_priorities_ || record.priority != agreed_.front().record.priority;
      const auto local = local_names_.find(record.name);
      // Another record of this rank gets no index: its mismatch is found, on all ranks, where this rank's list has it.
      if (local == local_names_.end() || local_[local->second].record != record) continue;
      agreed_[index].local = local->second;
      local_[local->second].index = index;
      --new_;
      mapped.push_back(local->second);
    }
  }
}

}  // namespace aiacc::gradient
