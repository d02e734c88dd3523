// Checks of a call's arguments, all made before its ticket is taken: what is refused here has started nothing and leaves the
// group usable. Each throws kInvalidArgument with a sentence that names the argument.
#pragma once

#include <cstddef>

#include "collectives/operation.h"
#include "include/aiacc/aiacc.h"
#include "runtime/group_operation.h"

namespace aiacc::abi {

DType checked_dtype(aiacc_dtype_t dtype);
ReduceOp checked_op(aiacc_op_t op, DType type);

// count * ranks * element size; throws when that is more than memory can hold.
std::size_t checked_bytes(std::size_t count, int ranks, DType type);

// Throws if it is null and has a byte.
void check_buffer(const char* argument, const void* buffer, std::size_t bytes);

// `rank` of a group of `size`; `argument` is "root", "to" or "from".
void check_rank(const char* argument, int rank, int size);

// send and recv share no byte. Equal pointers are the caller's business.
void check_apart(const void* send, std::size_t send_bytes, const void* recv, std::size_t recv_bytes,
                 const char* in_place);

// What `attr` says, applied to `call` and `options`. True if `options` holds anything but defaults.
bool read_attr(const aiacc_attr_t* attr, Call& call, CallOptions& options);

}  // namespace aiacc::abi
