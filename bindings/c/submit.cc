#include "bindings/c/submit.h"

namespace aiacc::abi {

Call call_of(Collective kind, std::size_t count, DType type) noexcept {
  Call call;
  call.kind = kind;
  call.count = count;
  call.reduction.type = type;
  return call;
}

Buffer buffer_of(const void* data, std::size_t bytes) noexcept {
  Buffer buffer;
  buffer.data = static_cast<std::byte*>(const_cast<void*>(data));  // never written through where the call only sends
  buffer.bytes = bytes;
  return buffer;
}

void submit(GroupPin& pin, const Call& call, Buffer send, Buffer recv, const CallOptions* options,
            aiacc_request_t* request) {
  if (request == nullptr) {
    pin->group.run(call, send, recv, options);
    return;
  }
  // The handle exists before anything starts: a full table leaves the group usable.
  auto entry = std::make_unique<RequestEntry>(RequestEntry{pin->context, nullptr});
  entry->operation = pin->group.prepare(call, send, recv, options);
  GroupOperation& operation = *entry->operation;
  const std::uint64_t handle = state().requests.insert(std::move(entry));
  try {
    pin->context->context().lane().start(operation);
  } catch (...) {
    state().requests.find(handle).remove();
    throw;
  }
  *request = handle;
}

GroupPin pinned(aiacc_group_t group) {
  GroupPin pin = state().groups.find(group);
  if (!pin) [[unlikely]]
    throw unknown_group(group);
  return pin;
}

}  // namespace aiacc::abi
