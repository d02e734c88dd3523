// RowExchange: how the rows of one launch's tables come together. First each rank says how many rows of each table it has. All ranks
// then know alike which tables travel as rows, in one allgather, and which are reduced as a whole, because that moves fewer bytes. Of
// these, a bit for each row says which rows some rank has: a row that sums up to zeros is a row, too.
//
// A rank that gives no rows of a table takes part all the same, as all calls follow from what all ranks know. Tables that would need much
// memory together move in portions, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/operation.h"
#include "groupcomm/gradient/kind.h"
#include "groupcomm/gradient/launch_memory.h"
#include "groupcomm/gradient/rows.h"

namespace aiacc::gradient {

class RowExchange {
 public:
  // On all ranks alike, but for the memory. Refers to this object, and to rows that were added.
  struct Step {
    Call call;
    Buffer send, recv;
  };

  // `memory` outlives it. A portion of several tables has at most `portion_bytes`.
  RowExchange(const Kind& kind, int rank, int ranks, LaunchMemory& memory, std::size_t portion_bytes) noexcept
      : kind_(kind),
        rank_(static_cast<std::size_t>(rank)),
        ranks_(static_cast<std::size_t>(ranks)),
        portion_bytes_(portion_bytes),
        memory_(memory) {}
  ~RowExchange();
  RowExchange(const RowExchange&) = delete;
  RowExchange& operator=(const RowExchange&) = delete;

  // A table of so many rows, and what this rank has of it, which stays where it is until all has ended.
  void add(std::uint64_t table_rows, RowsView own);
  // All tables were added.
  Step count();
  // The counts are here, or the last portion is: what the next one needs, which may be nothing. Reductions are cut into pieces of at most
  // `piece_bytes`. Throws kProtocol.
  std::vector<Step> move(std::size_t piece_bytes);
  bool has_more() const noexcept { return end_ < tables_.size(); }
  // The last portion is here.
  void finish();
  // Of this rank's rows of a table, what moved: with their numbers, or the whole table.
  std::size_t moved_bytes(std::size_t table) const noexcept;
  // The sum of all ranks.
  Rows& sum(std::size_t table) noexcept { return tables_[table].sum; }

 private:
  struct Table {
    std::uint64_t rows;
    RowsView own;
    bool whole = false;
    LaunchMemory::Piece memory;  // of a whole one
    std::size_t first_word = 0;  // of its bits
    Rows sum;
  };
  static constexpr std::size_t kRowsOfWord = 64;

  std::size_t words_of(const Table& table) const noexcept {
    return (static_cast<std::size_t>(table.rows) + kRowsOfWord - 1) / kRowsOfWord;
  }
  std::size_t bytes_of(const Table& table) const noexcept {
    return static_cast<std::size_t>(table.rows) * kind_.row_bytes();
  }
  std::span<Table> portion() noexcept { return std::span(tables_).subspan(begin_, end_ - begin_); }
  std::uint64_t count_of(std::size_t rank, std::size_t table) const noexcept {
    return counts_[rank * tables_.size() + table];
  }
  std::size_t block_bytes(std::uint64_t rows) const noexcept;
  std::size_t gathered_bytes(std::size_t table) const noexcept;
  void choose();
  void begin_portion();
  Step gather();
  Step mark();
  void reduce(Table& table, std::size_t piece_bytes, std::vector<Step>& steps);
  RowsView gathered(std::size_t rank, std::size_t table) const noexcept;
  void add_up(std::size_t table);
  void give_back(LaunchMemory::Piece& piece) noexcept;
  void check(std::size_t rank, std::size_t table, RowsView rows) const;

  const Kind kind_;
  const std::size_t rank_, ranks_, portion_bytes_;
  LaunchMemory& memory_;
  std::vector<Table> tables_;
  std::vector<std::uint64_t> counts_;  // of rank and table
  // Of the portion that moves: its tables, and what belongs to them.
  std::size_t begin_ = 0, end_ = 0;
  std::vector<Extent> blocks_;  // by rank, in what is gathered: numbers and elements of each table that travels as rows
  LaunchMemory::Piece gathered_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace aiacc::gradient
