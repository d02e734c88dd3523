// One measurement: a collective at one size, in or out of place.
#pragma once

#include <cstdint>
#include <optional>

#include "tools/perf/memory.h"
#include "tools/perf/options.h"
#include "tools/perf/user_op.h"
#include "tools/perf/world.h"

namespace aiacc::tools {

struct Row {
  const Collective* collective = nullptr;
  aiacc_dtype_t type = AIACC_FLOAT32;
  aiacc_op_t op = AIACC_SUM;
  int root = 0;
  bool in_place = false;
  std::uint64_t bytes = 0;  // of the larger of a rank's two buffers
  std::uint64_t count = 0;  // elements of the call
  int calls = 0;
  double time_us = 0;  // per call, on the slowest rank
  double p50_us = 0;   // over the calls, each timed on the slowest rank
  double p99_us = 0;
  double alg_gbs = 0;
  double bus_gbs = 0;
  std::optional<double> bound_percent;
  std::optional<std::uint64_t> wrong;  // elements on all ranks
  std::optional<std::uint64_t> hash;   // of the results of all ranks, in their order
};

class Bench {
 public:
  // Allocates the buffers. Collective.
  Bench(const World& world, const PerfOptions& options, std::optional<MemoryBandwidth> memory);

  // Collective: every rank gets the same row.
  Row measure(const Collective& collective, aiacc_dtype_t type, aiacc_op_t op, std::uint64_t bytes, bool in_place);

 private:
  CallShape shape_of(const Row& row, std::size_t slot) const;
  void time(Row& row, const CallShape& shape);
  void check(Row& row, CallShape shape);

  const World& world_;
  const PerfOptions& options_;
  std::optional<MemoryBandwidth> memory_;
  std::size_t cold_bytes_;
  PerfBuffer send_;
  PerfBuffer recv_;
  std::optional<UserOperator> user_;  // if it is measured
};

}  // namespace aiacc::tools
