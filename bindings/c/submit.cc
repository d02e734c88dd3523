#include "bindings/c/submit.h"

#include "bindings/c/arguments.h"
#include "bindings/c/callbacks.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/real_context.h"

namespace aiacc::abi {

namespace {

// If the call can wait without an operation.
bool start_waiting(GroupPin& pin, const PlainCall& call, const Buffer& send, const Buffer& recv, Lane::Hold& hold,
                   RequestTable::Place& place, aiacc_request_t* request) {
  std::unique_ptr<RequestedWork> waiting = pin->group.prepare_waiting(call, send, recv);
  if (waiting == nullptr) return false;
  hold.start(*waiting, waiting->sends());
  place.object().emplace(*pin->context, std::move(waiting));
  *request = place.name_quiet();
  return true;
}

}  // namespace

void submit_message(GroupPin& pin, const PlainCall& call, const Buffer& memory, aiacc_request_t* request) {
  const bool sends = call.kind == Collective::kSend;
  const Buffer none;
  if (request != nullptr) {
    Lane& lane = pin->context->context().lane();
    lane.ensure_helper();
    RequestTable::Place place = request_place();
    Lane::Hold hold(lane, Lane::Hold::AtOnce());
    if (hold.owns() && start_waiting(pin, call, sends ? memory : none, sends ? none : memory, hold, place, request)) {
      return;
    }
  }
  submit(pin, call.call(), sends ? memory : none, sends ? none : memory, static_cast<const CallOptions*>(nullptr),
         request);
}

void submit_with_attr(GroupPin& pin, Call& call, const Buffer& send, const Buffer& recv, const aiacc_attr_t& attr,
                      aiacc_request_t* request) {
  CallOptions options;
  const bool other = read_attr(&attr, call, options);
  submit(pin, call, send, recv, other ? &options : nullptr, request);
}

void submit(GroupPin& pin, const Call& call, const Buffer& send, const Buffer& recv, const CallOptions* options,
            aiacc_request_t* request) {
  const bool calls_back = options != nullptr && options->callback != nullptr;
  if (request == nullptr && !calls_back) {
    refuse_to_block("a call without a request");
    pin->group.run(call, send, recv, options);
    return;
  }
  // The place is taken before the operation starts, so that a full table leaves the group usable.
  RequestTable::Place place = request_place();
  Lane& lane = pin->context->context().lane();
  lane.ensure_helper();
  // What can end at once needs no operation.
  Lane::Hold hold(lane, Lane::Hold::AtOnce());
  if (hold.owns() && options == nullptr) {
    if (can_name_ended()) {
      if (const std::uint64_t sequence = pin->group.finish_at_once(call, send, recv); sequence != 0) {
        *request = name_ended(sequence);
        return;
      }
    }
    if (!is_message(call.kind) && PlainCall::describes(call)) {
      if (start_waiting(pin, PlainCall::of(call), send, recv, hold, place, request)) return;
    }
  }
  place.object().emplace(pin->context);
  const std::uint64_t handle = place.handle();
  auto entry = place.name_and_pin();
  try {
    std::unique_ptr<GroupOperation> operation = pin->group.prepare(call, send, recv, options);
    GroupOperation& started = *operation;
    entry->operation = std::move(operation);
    if (calls_back) {
      auto callback = std::make_unique<Callback>(*pin->context, *options);
      if (request == nullptr) callback->owns(handle);
      started.tell(std::move(callback));
    }
    hold.owns() ? hold.start(started) : lane.start(started);
  } catch (...) {
    entry->operation.reset();
    entry.remove();
    throw;
  }
  if (request != nullptr) *request = handle;
}

}  // namespace aiacc::abi
