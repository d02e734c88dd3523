// Kind: what tensors that are reduced together have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/data/reduction.h"
#include "groupcomm/gradient/tensor_table.h"

namespace aiacc::gradient {

struct Kind {
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  // For sums and averages of fp32: fp16 or bf16, in which the elements travel, or a codec for long tensors between hosts only.
  std::optional<DType> wire;
  Codec codec = Codec::kNone;
  // Of a table, in each of its rows; 0: no table. A rank submits some rows of a table (rows.h).
  std::size_t row_elements = 0;

  bool operator==(const Kind&) const = default;
  Reduction reduction() const noexcept;
  // What an allreduce over several hosts encodes its messages with. On one host a `wire` is encoded before the sum (wire.h).
  Codec codec_between_hosts() const noexcept;
  // Equal for equal kinds.
  std::uint64_t key() const noexcept;
  // Whether a grouped allreduce reduces a tensor of so many bytes where it is, without packing and encoding it.
  bool needs_no_pack(std::size_t bytes) const noexcept;
  bool is_table() const noexcept { return row_elements != 0; }
  std::size_t row_bytes() const noexcept { return row_elements * size_of(type); }
  bool sums() const noexcept { return op == ReduceOp::kSum || op == ReduceOp::kAvg; }
  // Whether the results of two launches, in each of which other ranks gave zeros, add up to that of one. A mean or a scaled sum of
  // integers is rounded in each.
  bool adds_up() const noexcept {
    const bool plain = op == ReduceOp::kSum && prescale == 1.0 && postscale == 1.0;
    return plain || (sums() && is_floating(type));
  }
  // "1000 fp32, average, wire fp16, prescale 0.5", or "1000 rows of 16 fp32, sum": what people and other ranks read. `count` is that of
  // elements, and of rows of a table.
  std::string describe(std::size_t count) const;
  TensorRecord record(std::string name, std::size_t count) const;
  // Of a tensor that only other ranks have added. Throws kProtocol if the record is not one of these.
  static Kind of(const TensorRecord& record);
};

}  // namespace aiacc::gradient
