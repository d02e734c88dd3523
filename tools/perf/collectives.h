// The collectives that can be measured, one row each: how it is called, how much it moves, and its correct result.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "include/aiacc/aiacc.h"

namespace aiacc::tools {

// One call. `count` is the number of elements on each rank, or in each rank's block.
struct CallShape {
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  aiacc_dtype_t type = AIACC_FLOAT32;
  aiacc_op_t op = AIACC_SUM;      // or kUserOp
  aiacc_op_t handle = AIACC_SUM;  // the library's handle of that operator
  int root = 0;
  int rank = 0;  // in the group
  int size = 1;
  aiacc_group_t group = AIACC_WORLD;
};

struct Collective {
  // The content of a rank's buffer: `count` elements, `count` elements for each rank, or nothing.
  enum class Holds { kNothing, kOne, kAll };
  // The result of each rank.
  enum class Result { kNothing, kReduced, kReducedBlock, kOfRoot, kAllBlocks, kBlockOfRoot, kExchanged, kOfNeighbour };

  std::string_view name;
  aiacc_status_t (*call)(const CallShape& shape);
  Holds send;  // on every rank (scatter uses it at the root only)
  Holds recv;
  bool recv_at_root_only;
  bool reduces;
  bool has_root;
  bool out_of_place;  // can be measured out of place
  bool in_place;
  Result result;
  // busbw = algbw * factor(n), as in nccl-tests' PERFORMANCE.md: the load of the slowest link in the best algorithm.
  double (*bus_factor)(double ranks);
  // The least memory traffic of the ranks of one host, in units of the size: each input is read once, each output
  // written once. In place, data that is at its destination already does not count.
  double (*traffic)(double ranks, bool in_place);
};

std::span<const Collective> collectives() noexcept;
// Finds a collective by its name or by that of nccl-tests' program (all_reduce_perf); ignores dashes and underscores.
// Null if there is none.
const Collective* find_collective(std::string_view name);

}  // namespace aiacc::tools
