#include "groupcomm/gradient/rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/data/cpu_compute.h"

namespace aiacc::gradient {
namespace {

struct Row {
  std::int64_t number;
  const std::byte* elements;
};

bool by_number(const Row& one, const Row& other) noexcept { return one.number < other.number; }

// Neighbours of the list are merged until one run is left: rows of one number keep their order.
void merge_runs(std::vector<Row>& rows, std::vector<std::size_t> ends) {
  std::vector<Row> merged(ends.size() > 1 ? rows.size() : 0);
  std::vector<std::size_t> next;
  while (ends.size() > 1) {
    std::size_t begin = 0;
    next.clear();
    for (std::size_t run = 0; run < ends.size(); run += 2) {
      const std::size_t middle = ends[run], end = run + 1 < ends.size() ? ends[run + 1] : middle;
      const auto at = [&](std::size_t row) { return rows.begin() + static_cast<std::ptrdiff_t>(row); };
      std::merge(at(begin), at(middle), at(middle), at(end), merged.begin() + static_cast<std::ptrdiff_t>(begin),
                 by_number);
      next.push_back(end);
      begin = end;
    }
    rows.swap(merged);
    ends.swap(next);
  }
}

// Rows of one number become one. `rows` is ascending.
class Adder {
 public:
  Adder(const Reduction& reduction, std::size_t row_elements, int ranks)
      : reduction_(reduction), row_elements_(row_elements), ranks_(ranks) {}

  void add(std::span<const Row> rows, std::vector<std::int64_t>& numbers, std::vector<std::byte>& elements) {
    const std::size_t row_bytes = row_elements_ * size_of(reduction_.type);
    std::size_t different = 0;
    for (std::size_t at = 0; at < rows.size(); ++at) different += at == 0 || rows[at].number != rows[at - 1].number;
    numbers.resize(different);
    elements.resize(different * row_bytes);
    std::size_t at = 0;
    for (std::size_t to = 0; to < different; ++to) {
      numbers[to] = rows[at].number;
      operands_.clear();
      while (at < rows.size() && rows[at].number == numbers[to]) operands_.push_back(rows[at++].elements);
      std::byte* const result = elements.data() + to * row_bytes;
      cpu_.reduce_now({&result, 1}, operands_, row_elements_, reduction_, ranks_);
    }
  }

 private:
  const CpuCompute cpu_;
  const Reduction reduction_;
  const std::size_t row_elements_;
  const int ranks_;
  std::vector<const std::byte*> operands_;
};

Reduction plain_sum(DType type) {
  Reduction sum;
  sum.type = type;
  return sum;
}

}  // namespace

void Rows::clear() noexcept {
  numbers_.clear();
  elements_.clear();
}

void Rows::collect(DType type, std::size_t row_elements, RowsView given) {
  const std::size_t row_bytes = row_elements * size_of(type);
  const auto not_ascending = [](std::int64_t one, std::int64_t next) { return one >= next; };
  if (std::adjacent_find(given.numbers.begin(), given.numbers.end(), not_ascending) == given.numbers.end()) {
    numbers_.assign(given.numbers.begin(), given.numbers.end());
    elements_.assign(given.elements, given.elements + given.numbers.size() * row_bytes);
    return;
  }
  std::vector<Row> rows(given.numbers.size());
  for (std::size_t at = 0; at < rows.size(); ++at) rows[at] = {given.numbers[at], given.elements + at * row_bytes};
  std::stable_sort(rows.begin(), rows.end(), by_number);
  Adder(plain_sum(type), row_elements, 1).add(rows, numbers_, elements_);
}

void Rows::sum(const Reduction& reduction, std::size_t row_elements, std::span<const RowsView> of_ranks, int ranks) {
  const std::size_t row_bytes = row_elements * size_of(reduction.type);
  std::vector<Row> rows;
  std::vector<std::size_t> ends;
  for (const RowsView& of : of_ranks) {
    for (std::size_t at = 0; at < of.numbers.size(); ++at)
      rows.push_back({of.numbers[at], of.elements + at * row_bytes});
    if (!of.numbers.empty()) ends.push_back(rows.size());
  }
  merge_runs(rows, std::move(ends));
  Adder(reduction, row_elements, ranks).add(rows, numbers_, elements_);
}

void Rows::add(DType type, std::size_t row_elements, RowsView others) {
  const Rows own = std::exchange(*this, {});
  const RowsView both[] = {own.view(), others};
  sum(plain_sum(type), row_elements, both, 1);
}

void Rows::pick(std::size_t row_bytes, std::span<const std::uint64_t> bits, const std::byte* table) {
  std::size_t count = 0;
  for (const std::uint64_t word : bits) count += static_cast<std::size_t>(std::popcount(word));
  numbers_.resize(count);
  elements_.resize(count * row_bytes);
  std::size_t to = 0;
  for (std::size_t at = 0; at < bits.size(); ++at) {
    for (std::uint64_t word = bits[at]; word != 0; word &= word - 1) {
      const std::size_t row = at * 64 + static_cast<std::size_t>(std::countr_zero(word));
      numbers_[to] = static_cast<std::int64_t>(row);
      std::memcpy(elements_.data() + to++ * row_bytes, table + row * row_bytes, row_bytes);
    }
  }
}

bool moves_less_as_rows(std::uint64_t rows_of_all, std::uint64_t rows_of_table, std::size_t row_bytes) noexcept {
  const double as_rows = static_cast<double>(rows_of_all) * static_cast<double>(row_bytes + sizeof(std::int64_t));
  const double whole = static_cast<double>(rows_of_table) * (static_cast<double>(row_bytes) + 0.125);
  return as_rows <= 2 * whole;
}

}  // namespace aiacc::gradient
