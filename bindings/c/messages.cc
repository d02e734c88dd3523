// Messages between two ranks: they check the arguments and call the group.
#include <fmt/format.h>

#include "base/error.h"
#include "bindings/c/arguments.h"
#include "bindings/c/guard.h"
#include "bindings/c/submit.h"
#include "runtime/group/group.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

void submit_with_attributes(GroupPin& pin, const PlainCall& plain, const Buffer& memory, const aiacc_attr_t& attr,
                            aiacc_request_t* request) {
  Call call = plain.call();
  CallOptions options;
  const bool other = read_attr(&attr, call, options);
  if (!other && PlainCall::describes(call)) return submit_message(pin, plain, memory, request);
  const bool sends = call.kind == Collective::kSend;
  submit(pin, call, sends ? memory : Buffer{}, sends ? Buffer{} : memory, other ? &options : nullptr, request);
}

aiacc_status_t message(Collective kind, const void* buffer, size_t count, aiacc_dtype_t dtype, int peer, uint32_t tag,
                       aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) noexcept {
  try {  // not guarded(): whose body would be a function of its own here, with all of these behind a pointer
    auto pin = pinned(group);
    const DType type = checked_dtype(dtype);
    const std::size_t bytes = checked_bytes(count, type);
    check_buffer("buffer", buffer, bytes);
    check_rank(kind == Collective::kSend ? "to" : "from", peer, pin->group.size());
    const PlainCall plain{kind, type, ReduceOp::kSum, tag, peer, count};
    const Buffer memory = buffer_of(buffer, bytes);
    attr == nullptr ? submit_message(pin, plain, memory, request)
                    : submit_with_attributes(pin, plain, memory, *attr, request);
    return AIACC_OK;
  } catch (...) {
    return remember(std::current_exception());
  }
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_send(const void* buffer, size_t count, aiacc_dtype_t dtype, int to, uint32_t tag,
                          aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return message(Collective::kSend, buffer, count, dtype, to, tag, group, attr, request);
}

aiacc_status_t aiacc_recv(void* buffer, size_t count, aiacc_dtype_t dtype, int from, uint32_t tag, aiacc_group_t group,
                          const aiacc_attr_t* attr, aiacc_request_t* request) {
  return message(Collective::kRecv, buffer, count, dtype, from, tag, group, attr, request);
}

aiacc_status_t aiacc_sendrecv(const void* send, size_t send_count, int to, uint32_t send_tag, void* recv,
                              size_t recv_count, int from, uint32_t recv_tag, aiacc_dtype_t dtype, aiacc_group_t group,
                              const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kSendrecv, send_count, checked_dtype(dtype));
    const std::size_t send_bytes = checked_bytes(send_count, 1, call.reduction);
    const std::size_t recv_bytes = checked_bytes(recv_count, 1, call.reduction);
    check_buffer("send", send, send_bytes);
    check_buffer("recv", recv, recv_bytes);
    check_rank("to", to, pin->group.size());
    check_rank("from", from, pin->group.size());
    check_apart(send, send_bytes, recv, recv_bytes, "there is none");
    call.root = to;
    call.tag = send_tag;
    call.recv_count = recv_count;
    call.from = from;
    call.recv_tag = recv_tag;
    CallOptions options;
    const bool other = read_attr(attr, call, options);
    submit(pin, call, buffer_of(send, send_bytes), buffer_of(recv, recv_bytes), other ? &options : nullptr, request);
  });
}

aiacc_status_t aiacc_recv_any(void* buffer, size_t count, aiacc_dtype_t dtype, int* from, uint32_t tag,
                              aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kRecvAny, count, checked_dtype(dtype));
    const std::size_t bytes = checked_bytes(count, 1, call.reduction);
    check_buffer("buffer", buffer, bytes);
    if (from == nullptr) throw Error(Code::kInvalidArgument, "from is NULL: pass where the sender's rank shall go");
    call.tag = tag;
    call.sender = from;
    CallOptions options;
    const bool other = read_attr(attr, call, options);
    submit(pin, call, {}, buffer_of(buffer, bytes), other ? &options : nullptr, request);
  });
}

}  // extern "C"
