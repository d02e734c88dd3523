// TensorTable: the tensors that this rank has added, and the index that all ranks have agreed on for each name.
//
// A tensor gets an index in an exchange: every rank gives its records without an index, all ranks see all records, and
// append the names that are new, by the first rank that has the name and then in that rank's order. The index is the same on
// all ranks from then on. Names that only some ranks have get an index on all. Equal names must have equal records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace aiacc::gradient {

// What all ranks must agree on for a name.
struct TensorRecord {
  std::string name;
  std::uint64_t bytes = 0;       // that its reduction moves, by which tensors are fused; of a table about so many
  std::uint64_t fusion_key = 0;  // a launch holds tensors of one key only: type, operator, scales, wire, length of rows
  bool sum = true;               // a sum or an average. Other operators are never part of a recorded schedule.
  std::string description;       // for people, compared all the same: "float32, 1000 elements, average"
  std::int32_t priority = 0;     // the higher is launched first. Not compared: all ranks take that of the first one
  // Of a table, some rows of which a rank submits: how many it has, and elements of each. 0 and 0: no table.
  std::uint64_t rows = 0;
  std::uint64_t row_elements = 0;

  bool is_table() const noexcept { return row_elements != 0; }
  auto fields() { return std::tie(name, bytes, fusion_key, sum, description, priority, rows, row_elements); }
  bool operator==(const TensorRecord& other) const {
    return std::tie(name, bytes, fusion_key, sum, description, rows, row_elements) ==
           std::tie(other.name, other.bytes, other.fusion_key, other.sum, other.description, other.rows,
                    other.row_elements);
  }
};

inline constexpr std::uint32_t kNoIndex = UINT32_MAX;

class TensorTable {
 public:
  // `rank`: this one, for messages, which other ranks read too.
  explicit TensorTable(int rank = 0) : rank_(rank) {}

  // Returns the tensor's local id: 0, 1, 2 ... in the order of the first add. A name that was added before with an equal
  // record keeps its id. Throws kMismatch if the record differs from the one added before or agreed on.
  std::uint32_t add(TensorRecord record);

  std::size_t local_tensors() const noexcept { return local_.size(); }
  std::size_t agreed_tensors() const noexcept { return agreed_.size(); }
  // kNoIndex: not agreed yet, or not added on this rank.
  std::uint32_t index_of(std::uint32_t local) const noexcept { return local_[local].index; }
  std::uint32_t local_of(std::uint32_t index) const noexcept { return agreed_[index].local; }
  const TensorRecord& agreed(std::uint32_t index) const noexcept { return agreed_[index].record; }
  const TensorRecord& local(std::uint32_t id) const noexcept { return local_[id].record; }
  std::int32_t priority(std::uint32_t index) const noexcept { return agreed_[index].record.priority; }
  // Whether any two agreed tensors differ in it.
  bool has_priorities() const noexcept { return has_priorities_; }
  // Equal keys have equal classes: 0, 1, 2 ... in the order of their first index.
  std::uint32_t fusion_class(std::uint32_t index) const noexcept { return agreed_[index].fusion_class; }
  std::uint32_t fusion_classes() const noexcept { return static_cast<std::uint32_t>(keys_.size()); }

  // Records without an index, for the exchange, in local order.
  bool has_new() const noexcept { return new_ != 0; }
  std::vector<TensorRecord> new_records() const;
  // One list for each rank, in the order of ranks. Throws kMismatch, the same sentence on all ranks, if two ranks have
  // different records of one name. `mapped` is told each local id that got its index.
  void append(std::span<const std::vector<TensorRecord>> of_ranks, std::vector<std::uint32_t>& mapped);

 private:
  struct Local {
    TensorRecord record;
    std::uint32_t index = kNoIndex;
  };
  struct Agreed {
    TensorRecord record;
    std::uint32_t first_rank = 0;  // that had it
    std::uint32_t local = kNoIndex;
    std::uint32_t fusion_class = 0;
  };

  std::uint32_t class_of(std::uint64_t key);

  int rank_;
  std::vector<Local> local_;
  std::vector<Agreed> agreed_;
  std::vector<std::uint64_t> keys_;
  std::size_t new_ = 0;
  bool has_priorities_ = false;
  std::unordered_map<std::string, std::uint32_t> local_names_, agreed_names_;
};

}  // namespace aiacc::gradient
