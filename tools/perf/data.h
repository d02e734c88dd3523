// What ranks send, and what they must receive: whole numbers so small that every order of the reduction is exact in every
// type. Both repeat after kPeriod elements, a prime, so that no shift of a block looks right.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/perf/collectives.h"

namespace aiacc::tools {

inline constexpr std::size_t kPeriod = 251;

// Are the numbers exact for so many ranks? Beyond, results are not compared.
bool exact(aiacc_dtype_t type, aiacc_op_t op, int ranks) noexcept;

// Fills what this rank sends: `count` elements (of all blocks together).
void fill(const CallShape& shape, void* to, std::size_t count);

// Elements of this rank's result that are not what they must be.
std::uint64_t count_wrong(const Collective& collective, const CallShape& shape);

// Of bytes, for comparing results between ranks and between runs; not for secrets.
std::uint64_t hash_bytes(const void* data, std::size_t bytes) noexcept;

}  // namespace aiacc::tools
