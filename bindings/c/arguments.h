// Checks a call's arguments before its ticket is taken, so a refused call has started nothing and leaves the group
// usable. Each function throws kInvalidArgument with a sentence that names the argument.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "include/aiacc/aiacc.h"
#include "runtime/group/group_operation.h"

namespace aiacc::abi {

// Throws kInvalidArgument.
[[noreturn]] void refuse(const std::string& sentence);
// Throws if `place`, where a result shall go, is null.
void check_place(const void* place, const char* argument);

[[noreturn]] void refuse_dtype(int dtype);
inline DType checked_dtype(aiacc_dtype_t dtype) {
  const int value = static_cast<int>(dtype);
  if (dtype == AIACC_RECORD || value < 0 || value >= kDTypes) [[unlikely]]
    refuse_dtype(value);
  return static_cast<DType>(value);
}
[[noreturn]] void refuse_op(int op, DType type);
inline ReduceOp checked_op(aiacc_op_t op, DType type) {
  const int value = static_cast<int>(op);
  if (value < 0 || value >= kReduceOps || !supports(static_cast<ReduceOp>(value), type)) [[unlikely]]
    refuse_op(value, type);
  return static_cast<ReduceOp>(value);
}

// count * ranks * element size; throws if that exceeds the possible size of memory.
std::size_t checked_product(std::size_t count, int ranks, const Reduction& elements);
inline std::size_t checked_bytes(std::size_t count, int ranks, const Reduction& elements) {
  constexpr std::size_t kAlwaysFits = std::size_t{1} << 22;  // of records of 512 bytes for 2^31 ranks
  if (count > kAlwaysFits) return checked_product(count, ranks, elements);
  return count * elements.element_bytes() * static_cast<std::size_t>(ranks);
}
// The same of plain elements, for one rank.
inline std::size_t checked_bytes(std::size_t count, DType type) {
  if (count <= std::size_t{1} << 48) return count * size_of(type);
  Reduction elements;
  elements.type = type;
  return checked_bytes(count, 1, elements);
}

// One block for each rank: `counts[r]` elements at `displacements[r]`, or consecutive blocks if that is null.
struct Layout {
  std::vector<Extent> blocks;
  std::size_t count = 0;  // elements of all blocks
  std::size_t bytes = 0;  // from the buffer's beginning to the end of the last block
};
// `counts` and `displacements` are arrays of `ranks` elements; their names are for error messages.
Layout checked_layout(const char* counts_name, const std::size_t* counts, const char* displacements_name,
                      const std::size_t* displacements, int ranks, const Reduction& elements);
// Throws if blocks overlap; for blocks that are written.
void check_blocks_apart(const char* displacements_name, const Layout& layout);
// Throws unless a rank's own block has the same length in both buffers.
void check_own_count(const char* argument, std::size_t count, const char* counts_name, const Layout& layout, int rank);

// Throws if `buffer` is null and `bytes` is not 0.
[[noreturn]] void refuse_buffer(const char* argument, std::size_t bytes);
inline void check_buffer(const char* argument, const void* buffer, std::size_t bytes) {
  if (buffer == nullptr && bytes > 0) [[unlikely]]
    refuse_buffer(argument, bytes);
}

// Throws unless `rank` is a rank of a group of `size`; `argument` is "root", "to" or "from".
[[noreturn]] void refuse_rank(const char* argument, int rank, int size);
inline void check_rank(const char* argument, int rank, int size) {
  if (rank < 0 || rank >= size) [[unlikely]]
    refuse_rank(argument, rank, size);
}

// Throws if send and recv overlap. Equal pointers are not checked here.
void check_apart(const void* send, std::size_t send_bytes, const void* recv, std::size_t recv_bytes,
                 const char* in_place);

// Converts a struct's timeout_ms; the result is zero for the default and Duration::max() for no limit.
Duration checked_timeout(std::int64_t timeout_ms, const char* where);

// Of an abort, for its message; may be null.
std::string checked_reason(const char* reason);

// Nothing for AIACC_TRAFFIC_DEFAULT.
std::optional<TrafficClass> checked_traffic_class(std::int32_t traffic_class, const char* where);

// Applies `attr` to `call` and `options`. True if `options` differs from the defaults.
bool read_attr(const aiacc_attr_t* attr, Call& call, CallOptions& options);

}  // namespace aiacc::abi
