// Rows: some rows of a table, as the gradient of an embedding has them: ascending numbers, each once, and the elements of each.
//
// A sum of rows has those that any operand has. Where several have a row, its elements are added in the order of the operands, in the
// accumulate type, and rounded once: ranks that sum the same operands have equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/data/reduction.h"

namespace aiacc::gradient {

// Refers to memory of others.
struct RowsView {
  std::span<const std::int64_t> numbers;
  const std::byte* elements = nullptr;  // row after row
};

class Rows {
 public:
  std::size_t size() const noexcept { return numbers_.size(); }
  const std::int64_t* numbers() const noexcept { return numbers_.data(); }
  const std::byte* elements() const noexcept { return elements_.data(); }
  RowsView view() const noexcept { return {numbers_, elements_.data()}; }
  // What they take with their numbers.
  std::size_t bytes() const noexcept { return numbers_.size() * sizeof(std::int64_t) + elements_.size(); }

  // Keeps its memory.
  void clear() noexcept;
  // Copies rows that may come in any order, and several times: then they are added up, in that order.
  void collect(DType type, std::size_t row_elements, RowsView given);
  // `of_ranks`: what each has, ascending. None refers to this object.
  void sum(const Reduction& reduction, std::size_t row_elements, std::span<const RowsView> of_ranks, int ranks);
  // Adds others, without scales.
  void add(DType type, std::size_t row_elements, RowsView others);
  // Copies the rows of a dense table whose bits are set.
  void pick(std::size_t row_bytes, std::span<const std::uint64_t> bits, const std::byte* table);

 private:
  std::vector<std::int64_t> numbers_;
  std::vector<std::byte> elements_;
};

// Whether the rows, of all ranks together, move no more bytes as they are than an allreduce of the whole table. A rank receives
// (n-1)/n of the rows, and sends and receives (n-1)/n of the table twice, with a bit for each row.
bool moves_less_as_rows(std::uint64_t rows_of_all, std::uint64_t rows_of_table, std::size_t row_bytes) noexcept;

}  // namespace aiacc::gradient
