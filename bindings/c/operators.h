// User-defined operators: what aiacc_op_create made, by the aiacc_op_t that names it, and the reductions of calls.
//
// An aiacc_op_t is an int: bit 30, then 15 bits of generation and 15 of index, so that a stale one is found out.
#pragma once

#include <memory>

#include "bindings/c/submit.h"

namespace aiacc::abi {

// Sets type and operator of a reduction. What it gives back keeps a user-defined operator alive; null for the others.
std::shared_ptr<const UserOp> set_reduction(Call& call, aiacc_dtype_t dtype, aiacc_op_t op);

// submit() of a reduction, whose attributes are read here.
void submit_reduction(GroupPin& pin, Call& call, Buffer send, Buffer recv, const aiacc_attr_t* attr,
                      std::shared_ptr<const UserOp> keeps, aiacc_request_t* request);

}  // namespace aiacc::abi
