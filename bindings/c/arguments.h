// Checks of a call's arguments, all made before its ticket is taken: what is refused here has started nothing and leaves the
// group usable. Each throws kInvalidArgument with a sentence that names the argument.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/operation.h"
#include "include/aiacc/aiacc.h"
#include "runtime/group_operation.h"

namespace aiacc::abi {

DType checked_dtype(aiacc_dtype_t dtype);
ReduceOp checked_op(aiacc_op_t op, DType type);

// count * ranks * element size; throws when that is more than memory can hold.
std::size_t checked_bytes(std::size_t count, int ranks, const Reduction& elements);

// One block for each rank: `counts[r]` elements at `displacements[r]`, or one after another where that is null.
struct Layout {
  std::vector<Extent> blocks;
  std::size_t count = 0;  // elements of all blocks
  std::size_t bytes = 0;  // from the buffer's beginning to the end of the last block
};
// `counts` and `displacements` are arrays of `ranks` elements, called so in sentences.
Layout checked_layout(const char* counts_name, const std::size_t* counts, const char* displacements_name,
                      const std::size_t* displacements, int ranks, const Reduction& elements);
// Blocks that are written share no element.
void check_blocks_apart(const char* displacements_name, const Layout& layout);
// A rank's own block is as long on both sides.
void check_own_count(const char* argument, std::size_t count, const char* counts_name, const Layout& layout, int rank);

// Throws if it is null and has a byte.
void check_buffer(const char* argument, const void* buffer, std::size_t bytes);

// `rank` of a group of `size`; `argument` is "root", "to" or "from".
void check_rank(const char* argument, int rank, int size);

// send and recv share no byte. Equal pointers are the caller's business.
void check_apart(const void* send, std::size_t send_bytes, const void* recv, std::size_t recv_bytes,
                 const char* in_place);

// Of a struct's timeout_ms: zero means the default, Duration::max() none.
Duration checked_timeout(std::int64_t timeout_ms, const char* where);

// What `attr` says, applied to `call` and `options`. True if `options` holds anything but defaults.
bool read_attr(const aiacc_attr_t* attr, Call& call, CallOptions& options);

}  // namespace aiacc::abi
