#include "groupcomm/gradient/row_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "groupcomm/gradient/slots.h"

namespace aiacc::gradient {

RowExchange::~RowExchange() {
  give_back(gathered_);
  for (Table& table : tables_) give_back(table.memory);
}

void RowExchange::give_back(LaunchMemory::Piece& piece) noexcept {
  if (piece.data != nullptr) memory_.give(std::exchange(piece, {}));
}

void RowExchange::add(std::uint64_t table_rows, RowsView own) {
  tables_.push_back({table_rows, own, false, {}, 0, {}});
}

RowExchange::Step RowExchange::count() {
  counts_.resize(ranks_ * tables_.size());
  std::uint64_t* const own = counts_.data() + rank_ * tables_.size();
  for (std::size_t table = 0; table < tables_.size(); ++table) own[table] = tables_[table].own.numbers.size();
  Step step;
  step.call.kind = Collective::kAllgather;
  step.call.reduction.type = DType::kUInt64;
  step.call.count = tables_.size();
  step.send = Buffer{reinterpret_cast<std::byte*>(own), tables_.size() * sizeof *own};
  step.recv = Buffer{reinterpret_cast<std::byte*>(counts_.data()), counts_.size() * sizeof *own};
  return step;
}

// Of a table's rows in a rank's block. What follows is aligned to 8 bytes again.
std::size_t RowExchange::block_bytes(std::uint64_t rows) const noexcept {
  const std::size_t elements = static_cast<std::size_t>(rows) * kind_.row_bytes();
  return static_cast<std::size_t>(rows) * sizeof(std::int64_t) + (elements + 7) / 8 * 8;
}

void RowExchange::choose() {
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    std::uint64_t all = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::uint64_t count = count_of(rank, table);
      if (count > tables_[table].rows) {
        throw Error(Code::kProtocol,
                    fmt::format("rank {} says that it has {} rows of a table of {}", rank, count, tables_[table].rows),
                    static_cast<int>(rank));
      }
      all += count;
    }
    tables_[table].whole = !moves_less_as_rows(all, tables_[table].rows, kind_.row_bytes());
  }
}

// Of all ranks' rows, if they travel as rows.
std::size_t RowExchange::gathered_bytes(std::size_t table) const noexcept {
  std::size_t bytes = 0;
  for (std::size_t rank = 0; rank < ranks_; ++rank) bytes += block_bytes(count_of(rank, table));
  return bytes;
}

void RowExchange::begin_portion() {
  begin_ = end_;
  std::size_t bytes = 0;
  while (end_ < tables_.size()) {
    bytes += tables_[end_].whole ? bytes_of(tables_[end_]) : gathered_bytes(end_);
    if (end_ > begin_ && bytes > portion_bytes_) break;
    ++end_;
  }
}

std::vector<RowExchange::Step> RowExchange::move(std::size_t piece_bytes) {
  if (end_ == 0) choose();
  finish();
  begin_portion();
  std::vector<Step> steps;
  if (Step step = gather(); step.call.count > 0) steps.push_back(step);
  if (Step step = mark(); step.call.count > 0) steps.push_back(step);
  for (Table& table : portion()) {
    if (table.whole) reduce(table, piece_bytes, steps);
  }
  return steps;
}

void RowExchange::finish() {
  for (std::size_t table = begin_; table < end_; ++table) {
    add_up(table);
    give_back(tables_[table].memory);
  }
  give_back(gathered_);
  begin_ = end_;
}

RowExchange::Step RowExchange::gather() {
  std::size_t total = 0;
  blocks_.clear();
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    std::size_t bytes = 0;
    for (std::size_t table = begin_; table < end_; ++table) {
      if (!tables_[table].whole) bytes += block_bytes(count_of(rank, table));
    }
    blocks_.push_back({total, bytes});
    total += bytes;
  }
  Step step;
  step.call.kind = Collective::kAllgather;
  step.call.uneven = true;
  step.call.reduction.type = DType::kUInt8;
  step.call.count = total;
  step.call.blocks = blocks_;
  if (total == 0) return step;
  gathered_ = memory_.take(total);
  std::byte* const own = gathered_.data + blocks_[rank_].begin;
  std::byte* to = own;
  for (const Table& table : portion()) {
    const std::size_t rows = table.own.numbers.size();
    if (table.whole || rows == 0) continue;
    std::memcpy(to, table.own.numbers.data(), rows * sizeof(std::int64_t));
    std::byte* const elements = to + rows * sizeof(std::int64_t);
    to += block_bytes(rows);
    std::memcpy(elements, table.own.elements, rows * kind_.row_bytes());
    std::fill(elements + rows * kind_.row_bytes(), to, std::byte{});
  }
  step.send = Buffer{own, blocks_[rank_].count};
  step.recv = Buffer{gathered_.data, total};
  return step;
}

// Which rows of the whole tables there are.
RowExchange::Step RowExchange::mark() {
  std::size_t words = 0;
  for (Table& table : portion()) {
    if (!table.whole) continue;
    table.first_word = words;
    words += words_of(table);
  }
  bits_.assign(words, 0);
  for (const Table& table : portion()) {
    if (!table.whole) continue;
    for (const std::int64_t number : table.own.numbers) {
      const auto row = static_cast<std::size_t>(number);
      bits_[table.first_word + row / kRowsOfWord] |= std::uint64_t{1} << row % kRowsOfWord;
    }
  }
  Step step;
  step.call.kind = Collective::kAllreduce;
  step.call.reduction.type = DType::kUInt64;
  step.call.reduction.op = ReduceOp::kBitOr;
  step.call.count = words;
  step.send = step.recv = Buffer{reinterpret_cast<std::byte*>(bits_.data()), words * sizeof(std::uint64_t)};
  return step;
}

void RowExchange::reduce(Table& table, std::size_t piece_bytes, std::vector<Step>& steps) {
  const std::size_t bytes = bytes_of(table), row_bytes = kind_.row_bytes();
  table.memory = memory_.take(bytes);
  std::byte* const data = table.memory.data;
  std::memset(data, 0, bytes);
  const std::byte* from = table.own.elements;
  for (const std::int64_t number : table.own.numbers) {
    std::memcpy(data + static_cast<std::size_t>(number) * row_bytes, from, row_bytes);
    from += row_bytes;
  }
  Slots::for_each_piece(bytes, piece_bytes, [&](std::size_t at, std::size_t length) {
    Step step;
    step.call.kind = Collective::kAllreduce;
    step.call.reduction = kind_.reduction();
    step.call.count = length / size_of(kind_.type);
    step.send = step.recv = Buffer{data + at, length};
    steps.push_back(step);
  });
}

std::size_t RowExchange::moved_bytes(std::size_t table) const noexcept {
  const Table& of = tables_[table];
  return of.whole ? bytes_of(of) : of.own.numbers.size() * (sizeof(std::int64_t) + kind_.row_bytes());
}

RowsView RowExchange::gathered(std::size_t rank, std::size_t table) const noexcept {
  const std::byte* at = gathered_.data + blocks_[rank].begin;
  for (std::size_t before = begin_; before < table; ++before) {
    if (!tables_[before].whole) at += block_bytes(count_of(rank, before));
  }
  const auto rows = static_cast<std::size_t>(count_of(rank, table));
  return {{reinterpret_cast<const std::int64_t*>(at), rows}, at + rows * sizeof(std::int64_t)};
}

void RowExchange::check(std::size_t rank, std::size_t table, RowsView rows) const {
  std::int64_t least = 0;
  for (const std::int64_t number : rows.numbers) {
    if (number < least || static_cast<std::uint64_t>(number) >= tables_[table].rows) {
      throw Error(Code::kProtocol,
                  fmt::format("rank {} sends rows of a table of {} rows that are not ascending numbers of it: {}", rank,
                              tables_[table].rows, number),
                  static_cast<int>(rank));
    }
    least = number + 1;
  }
}

void RowExchange::add_up(std::size_t table) {
  Table& of = tables_[table];
  if (of.whole) {
    of.sum.pick(kind_.row_bytes(), std::span(bits_).subspan(of.first_word, words_of(of)), of.memory.data);
    return;
  }
  std::vector<RowsView> of_ranks;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (count_of(rank, table) == 0) continue;
    of_ranks.push_back(gathered(rank, table));
    check(rank, table, of_ranks.back());
  }
  of.sum.sum(kind_.reduction(), kind_.row_elements, of_ranks, static_cast<int>(ranks_));
}

}  // namespace aiacc::gradient
