// From a checked call to the group: what every operation of the ABI ends with.
#pragma once

#include "bindings/c/state.h"
#include "runtime/group_operation.h"

namespace aiacc::abi {

using GroupPin = HandleTable<GroupEntry>::Pin;

// Throws for a handle that is no group's.
GroupPin pinned(aiacc_group_t group);

Call call_of(Collective kind, std::size_t count, DType type) noexcept;
Buffer buffer_of(const void* data, std::size_t bytes) noexcept;

// Blocks without a request; with one, starts the call and names it. `options` may be null.
void submit(GroupPin& pin, const Call& call, Buffer send, Buffer recv, const CallOptions* options,
            aiacc_request_t* request);

}  // namespace aiacc::abi
