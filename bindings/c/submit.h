// Submits a checked call to its group: the last step of every operation of the ABI.
#pragma once

#include "bindings/c/state.h"
#include "collectives/plain_call.h"
#include "runtime/group/group_operation.h"

namespace aiacc::abi {

using GroupPin = HandleTable<GroupEntry>::Pin;

// Throws if the handle is not one of a group.
inline GroupPin pinned(aiacc_group_t group) {
  GroupPin pin = state().groups.find(group);
  if (!pin) [[unlikely]]
    throw unknown_group(group);
  return pin;
}

inline Call call_of(Collective kind, std::size_t count, DType type) noexcept {
  Call call;
  call.kind = kind;
  call.count = count;
  call.reduction.type = type;
  return call;
}
inline Buffer buffer_of(const void* data, std::size_t bytes) noexcept {
  Buffer buffer;
  buffer.data = static_cast<std::byte*>(const_cast<void*>(data));  // not written to if the call only sends
  buffer.bytes = bytes;
  return buffer;
}

// Blocks if `request` is null; otherwise starts the call and creates a request. `options` may be null.
void submit(GroupPin& pin, const Call& call, const Buffer& send, const Buffer& recv, const CallOptions* options,
            aiacc_request_t* request);
// The same with attributes, which may be null and may change the call.
void submit_with_attr(GroupPin& pin, Call& call, const Buffer& send, const Buffer& recv, const aiacc_attr_t& attr,
                      aiacc_request_t* request);
inline void submit(GroupPin& pin, Call& call, const Buffer& send, const Buffer& recv, const aiacc_attr_t* attr,
                   aiacc_request_t* request) {
  if (attr == nullptr) [[likely]]
    return submit(pin, call, send, recv, static_cast<const CallOptions*>(nullptr), request);
  submit_with_attr(pin, call, send, recv, *attr, request);
}
// The same for a send or recv without options: as a record if it can.
void submit_message(GroupPin& pin, const PlainCall& call, const Buffer& memory, aiacc_request_t* request);

}  // namespace aiacc::abi
