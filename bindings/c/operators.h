// User-defined operators (aiacc_op_create) by their aiacc_op_t, and the reductions of calls.
//
// Such an aiacc_op_t is an int: bit 30, then 15 bits of generation and 15 of index, so that a stale one is detected.
#pragma once

#include <memory>

#include "bindings/c/submit.h"

namespace aiacc::abi {

// Sets type and operator of a reduction. The result keeps a user-defined operator alive; it is null for the library's
// operators.
std::shared_ptr<const UserOp> set_reduction(Call& call, aiacc_dtype_t dtype, aiacc_op_t op);

// Reads the attributes of a reduction and submits it.
void submit_reduction(GroupPin& pin, Call& call, Buffer send, Buffer recv, const aiacc_attr_t* attr,
                      std::shared_ptr<const UserOp> keeps, aiacc_request_t* request);

}  // namespace aiacc::abi
