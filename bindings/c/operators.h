// User-defined operators (aiacc_op_create) by their aiacc_op_t, and the reductions of calls.
//
// Such an aiacc_op_t is an int: bit 30, then 15 bits of generation and 15 of index, so that a stale one is detected.
#pragma once

#include <memory>

#include "bindings/c/arguments.h"
#include "bindings/c/submit.h"

namespace aiacc::abi {

// Sets type and operator of a reduction. The result keeps a user-defined operator alive; it is null for the library's
// operators.
std::shared_ptr<const UserOp> set_user_reduction(Call& call, aiacc_dtype_t dtype, aiacc_op_t op);
inline std::shared_ptr<const UserOp> set_reduction(Call& call, aiacc_dtype_t dtype, aiacc_op_t op) {
  if (dtype == AIACC_RECORD || static_cast<int>(op) >= kReduceOps) [[unlikely]]
    return set_user_reduction(call, dtype, op);
  call.reduction.type = checked_dtype(dtype);
  call.reduction.op = checked_op(op, call.reduction.type);
  return nullptr;
}

// Reads the attributes of a reduction and submits it.
void submit_user_reduction(GroupPin& pin, Call& call, Buffer send, Buffer recv, const aiacc_attr_t* attr,
                           std::shared_ptr<const UserOp> keeps, aiacc_request_t* request);
inline void submit_reduction(GroupPin& pin, Call& call, Buffer send, Buffer recv, const aiacc_attr_t* attr,
                             const std::shared_ptr<const UserOp>& keeps, aiacc_request_t* request) {
  if (keeps == nullptr) [[likely]]
    return submit(pin, call, send, recv, attr, request);
  submit_user_reduction(pin, call, send, recv, attr, keeps, request);
}

}  // namespace aiacc::abi
