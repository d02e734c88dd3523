// Messages between two ranks: they check the arguments and call the group.
#include <fmt/format.h>

#include "base/error.h"
#include "bindings/c/arguments.h"
#include "bindings/c/callbacks.h"
#include "bindings/c/guard.h"
#include "bindings/c/submit.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/message_now.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

// A send to a member of this host ends while it is submitted, and an asynchronous recv from one does so or waits as a
// record, unless something is unusual: then nothing has happened. The check of a call and this are one function for each of
// the two, because each layer of functions costs a part of what is the whole message elsewhere.
template <Collective kKind>
[[gnu::always_inline]] inline bool start_on_host(GroupEntry& entry, int member, const PlainCall& call,
                                                 const Buffer& memory, aiacc_request_t* request) {
  RealContext& context = *entry.context;
  Lane& lane = context.context().lane();
  if (!lane.helper_started()) lane.ensure_helper();
  if (!can_name_ended()) return false;
  if constexpr (kKind == Collective::kSend) {
    Lane::Hold hold(lane, Lane::Hold::AtOnce());
    if (!hold.owns() || entry.group.lends(member, memory)) return false;
    const std::uint64_t sequence = entry.group.finish_send(member, call, memory);
    if (sequence == 0) return false;
    *request = name_ended(sequence);
  } else {
    RequestTable::Place place = request_place();
    Lane::Hold hold(lane, Lane::Hold::AtOnce());
    if (!hold.owns()) return false;
    Group::BegunReceive begun = entry.group.begin_receive(member, call, memory, hold);
    if (begun.ended != 0) {
      *request = name_ended(begun.ended);
      return true;
    }
    if (begun.waiting == nullptr) return false;
    place.object().emplace(context, std::move(begun.waiting));
    *request = place.name_quiet();
  }
  return true;
}

// The same of a call that blocks: whether it has ended.
template <Collective kKind>
[[gnu::always_inline]] inline bool end_on_host(GroupEntry& entry, int member, const PlainCall& call,
                                               const Buffer& memory) {
  refuse_to_block("a call without a request");
  Lane::Hold hold(entry.context->context().lane(), Lane::Hold::AtOnce());
  if (!hold.owns()) return false;
  if constexpr (kKind == Collective::kSend) {
    return !entry.group.lends(member, memory) && entry.group.finish_send(member, call, memory) != 0;
  }
  return entry.group.finish_receive(member, call, memory, hold);
}

[[gnu::noinline]] void submit_otherwise(GroupPin& pin, const PlainCall& plain, const Buffer& memory,
                                        const aiacc_attr_t* attr, aiacc_request_t* request) {
  if (attr == nullptr) return submit_message(pin, plain, memory, request);
  Call call = plain.call();
  CallOptions options;
  const bool other = read_attr(attr, call, options);
  if (!other && PlainCall::describes(call)) return submit_message(pin, plain, memory, request);
  const bool sends = call.kind == Collective::kSend;
  submit(pin, call, sends ? memory : Buffer{}, sends ? Buffer{} : memory, other ? &options : nullptr, request);
}

template <Collective kKind>
[[gnu::always_inline]] inline aiacc_status_t message(const void* buffer, size_t count, aiacc_dtype_t dtype, int peer,
                                                     uint32_t tag, aiacc_group_t group, const aiacc_attr_t* attr,
                                                     aiacc_request_t* request) noexcept {
  try {  // not guarded(): whose body would be a function of its own here, with all of these behind a pointer
    GroupPin pin = state().groups.find(group);
    if (!pin) [[unlikely]]
      throw unknown_group(group);
    const DType type = checked_dtype(dtype);
    const std::size_t bytes = checked_bytes(count, type);
    check_buffer("buffer", buffer, bytes);
    check_rank(kKind == Collective::kSend ? "to" : "from", peer, pin->group.size());
    const PlainCall plain{kKind, type, ReduceOp::kSum, tag, peer, count};
    const Buffer memory = buffer_of(buffer, bytes);
    const int member = attr == nullptr ? pin->group.message_member(peer) : -1;
    if (member >= 0) {
      if (request == nullptr ? end_on_host<kKind>(*pin, member, plain, memory)
                             : start_on_host<kKind>(*pin, member, plain, memory, request)) {
        return AIACC_OK;
      }
    }
    submit_otherwise(pin, plain, memory, attr, request);
    return AIACC_OK;
  } catch (...) {
    return remember(std::current_exception());
  }
}

// A blocking sendrecv with members of this host: when its message is posted, it is a recv. False: nothing has happened.
bool go_on_as_recv(GroupPin& pin, const PlainCall& sending, const Buffer& send, const PlainCall& receiving,
                   const Buffer& recv) {
  const int to = pin->group.message_member(sending.root), from = pin->group.message_member(receiving.root);
  if (to < 0 || from < 0 || !end_on_host<Collective::kSend>(*pin, to, sending, send)) return false;
  if (!end_on_host<Collective::kRecv>(*pin, from, receiving, recv)) {
    submit_otherwise(pin, receiving, recv, nullptr, nullptr);
  }
  return true;
}

}  // namespace

extern "C" {

// Flat: what a message needs of the tables of handles is in these two.
[[gnu::flatten]] aiacc_status_t aiacc_send(const void* buffer, size_t count, aiacc_dtype_t dtype, int to, uint32_t tag,
                                           aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return message<Collective::kSend>(buffer, count, dtype, to, tag, group, attr, request);
}

[[gnu::flatten]] aiacc_status_t aiacc_recv(void* buffer, size_t count, aiacc_dtype_t dtype, int from, uint32_t tag,
                                           aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return message<Collective::kRecv>(buffer, count, dtype, from, tag, group, attr, request);
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
    if (attr == nullptr && request == nullptr) {
      const DType type = call.reduction.type;
      const PlainCall sending{Collective::kSend, type, ReduceOp::kSum, send_tag, to, send_count};
      const PlainCall receiving{Collective::kRecv, type, ReduceOp::kSum, recv_tag, from, recv_count};
      if (go_on_as_recv(pin, sending, buffer_of(send, send_bytes), receiving, buffer_of(recv, recv_bytes))) return;
    }
    call.root = to;
    call.tag = send_tag;
    call.recv_count = recv_count;
    call.from = from;
    call.recv_tag = recv_tag;
    submit(pin, call, buffer_of(send, send_bytes), buffer_of(recv, recv_bytes), attr, request);
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
    submit(pin, call, {}, buffer_of(buffer, bytes), attr, request);
  });
}

}  // extern "C"
