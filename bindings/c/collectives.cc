// The collectives and point-to-point calls: check, then hand to the group.
#include "bindings/c/arguments.h"
#include "bindings/c/guard.h"
#include "bindings/c/submit.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

aiacc_status_t message(Collective kind, const void* buffer, size_t count, aiacc_dtype_t dtype, int peer, uint32_t tag,
                       aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) noexcept {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(kind, count, checked_dtype(dtype));
    const std::size_t bytes = checked_bytes(count, 1, call.reduction.type);
    check_buffer("buffer", buffer, bytes);
    check_rank(kind == Collective::kSend ? "to" : "from", peer, pin->group.size());
    call.root = peer;
    call.tag = tag;
    CallOptions options;
    const bool other = read_attr(attr, call, options);
    const Buffer memory = buffer_of(buffer, bytes);
    const bool sends = kind == Collective::kSend;
    submit(pin, call, sends ? memory : Buffer{}, sends ? Buffer{} : memory, other ? &options : nullptr, request);
  });
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_allreduce(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, aiacc_op_t op,
                               aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kAllreduce, count, checked_dtype(dtype));
    call.reduction.op = checked_op(op, call.reduction.type);
    const std::size_t bytes = checked_bytes(count, 1, call.reduction.type);
    check_buffer("send", send, bytes);
    check_buffer("recv", recv, bytes);
    if (send != recv) check_apart(send, bytes, recv, bytes, "pass the same pointer for both");
    CallOptions options;
    const bool other = read_attr(attr, call, options);
    submit(pin, call, buffer_of(send, bytes), buffer_of(recv, bytes), other ? &options : nullptr, request);
  });
}

aiacc_status_t aiacc_reduce(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, aiacc_op_t op, int root,
                            aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kReduce, count, checked_dtype(dtype));
    call.reduction.op = checked_op(op, call.reduction.type);
    check_rank("root", root, pin->group.size());
    call.root = root;
    const std::size_t bytes = checked_bytes(count, 1, call.reduction.type);
    check_buffer("send", send, bytes);
    const bool receives = pin->group.rank() == root;
    if (receives) check_buffer("recv", recv, bytes);
    if (receives && send != recv) check_apart(send, bytes, recv, bytes, "pass the same pointer for both");
    CallOptions options;
    const bool other = read_attr(attr, call, options);
    submit(pin, call, buffer_of(send, bytes), receives ? buffer_of(recv, bytes) : Buffer{}, other ? &options : nullptr,
           request);
  });
}

aiacc_status_t aiacc_broadcast(void* buffer, size_t count, aiacc_dtype_t dtype, int root, aiacc_group_t group,
                               const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kBroadcast, count, checked_dtype(dtype));
    check_rank("root", root, pin->group.size());
    call.root = root;
    const std::size_t bytes = checked_bytes(count, 1, call.reduction.type);
    check_buffer("buffer", buffer, bytes);
    CallOptions options;
    const bool other = read_attr(attr, call, options);
    const Buffer memory = buffer_of(buffer, bytes);
    submit(pin, call, memory, memory, other ? &options : nullptr, request);
  });
}

aiacc_status_t aiacc_reduce_scatter(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, aiacc_op_t op,
                                    aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kReduceScatter, count, checked_dtype(dtype));
    call.reduction.op = checked_op(op, call.reduction.type);
    const std::size_t bytes = checked_bytes(count, 1, call.reduction.type);
    const std::size_t all = checked_bytes(count, pin->group.size(), call.reduction.type);
    check_buffer("send", send, all);
    check_buffer("recv", recv, bytes);
    const auto* own = static_cast<const std::byte*>(send) + static_cast<std::size_t>(pin->group.rank()) * bytes;
    if (recv != own) check_apart(send, all, recv, bytes, "pass recv = send + rank * count");
    CallOptions options;
    const bool other = read_attr(attr, call, options);
    submit(pin, call, buffer_of(send, all), buffer_of(recv, bytes), other ? &options : nullptr, request);
  });
}

aiacc_status_t aiacc_reduce_scatterv(const void* send, void* recv, const size_t* counts, aiacc_dtype_t dtype,
                                     aiacc_op_t op, aiacc_group_t group, const aiacc_attr_t* attr,
                                     aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    const DType type = checked_dtype(dtype);
    const Layout layout = checked_layout("counts", counts, "counts", nullptr, pin->group.size(), type);
    Call call = call_of(Collective::kReduceScatter, layout.count, type);
    call.reduction.op = checked_op(op, type);
    call.uneven = true;
    call.blocks = layout.blocks;
    const Extent mine = call.block(pin->group.rank());
    const std::size_t bytes = mine.count * call.element_bytes();
    check_buffer("send", send, layout.bytes);
    check_buffer("recv", recv, bytes);
    const auto* own = static_cast<const std::byte*>(send) + mine.begin * call.element_bytes();
    if (recv != own) check_apart(send, layout.bytes, recv, bytes, "pass recv = send + the counts of lower ranks");
    CallOptions options;
    const bool other = read_attr(attr, call, options);
    submit(pin, call, buffer_of(send, layout.bytes), buffer_of(recv, bytes), other ? &options : nullptr, request);
  });
}

aiacc_status_t aiacc_barrier(aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call;
    CallOptions options;
    const bool other = read_attr(attr, call, options);
    submit(pin, call, {}, {}, other ? &options : nullptr, request);
  });
}

aiacc_status_t aiacc_send(const void* buffer, size_t count, aiacc_dtype_t dtype, int to, uint32_t tag,
                          aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return message(Collective::kSend, buffer, count, dtype, to, tag, group, attr, request);
}

aiacc_status_t aiacc_recv(void* buffer, size_t count, aiacc_dtype_t dtype, int from, uint32_t tag, aiacc_group_t group,
                          const aiacc_attr_t* attr, aiacc_request_t* request) {
  return message(Collective::kRecv, buffer, count, dtype, from, tag, group, attr, request);
}

}  // extern "C"
