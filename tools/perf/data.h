// The inputs of ranks and their correct results: whole numbers so small that every order of the reduction is exact in
// every type. Both repeat after kPeriod elements; it is a prime, so a shifted block is detected.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/perf/collectives.h"

namespace aiacc::tools {

inline constexpr std::size_t kPeriod = 251;

// Whether the results are exact for this number of ranks. If not, they are not compared.
bool exact(aiacc_dtype_t type, aiacc_op_t op, int ranks) noexcept;

// Fills in the input of this rank: `count` elements (of all blocks together).
void fill(const CallShape& shape, void* to, std::size_t count);

// The number of wrong elements in this rank's result.
std::uint64_t count_wrong(const Collective& collective, const CallShape& shape);

// A hash to compare results between ranks and between runs; not for secrets.
std::uint64_t hash_bytes(const void* data, std::size_t bytes) noexcept;

}  // namespace aiacc::tools
