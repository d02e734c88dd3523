// The collectives that can be measured: how each is called, how much it moves, and what it must give. One row a collective.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "include/aiacc/aiacc.h"

namespace aiacc::tools {

// One call. `count` is that of the call: elements on each rank, or of each rank's block.
struct CallShape {
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  aiacc_dtype_t type = AIACC_FLOAT32;
  aiacc_op_t op = AIACC_SUM;      // or kUserOp
  aiacc_op_t handle = AIACC_SUM;  // the library's, of that operator
  int root = 0;
  int rank = 0;
  int size = 1;
};

struct Collective {
  // What a rank's buffers hold: a vector of `count`, `count` for each rank, or nothing.
  enum class Holds { kNothing, kOne, kAll };
  // Whose result is what.
  enum class Result { kNothing, kReduced, kReducedBlock, kOfRoot, kAllBlocks, kBlockOfRoot, kExchanged, kOfNeighbour };

  std::string_view name;
  aiacc_status_t (*call)(const CallShape& shape);
  Holds send;  // on every rank (of scatter: used at the root only)
  Holds recv;
  bool recv_at_root_only;
  bool reduces;
  bool has_root;
  bool out_of_place;  // can be measured so
  bool in_place;
  Result result;
  // busbw = algbw * factor(n), as in nccl-tests' PERFORMANCE.md: what the slowest link must carry in the best algorithm.
  double (*bus_factor)(double ranks);
  // Memory that the ranks of one host must read and write at least, in units of the size: each input once, each output once.
  // In place, what is there already moves no more.
  double (*traffic)(double ranks, bool in_place);
};

std::span<const Collective> collectives() noexcept;
const Collective* find_collective(std::string_view name) noexcept;

}  // namespace aiacc::tools
