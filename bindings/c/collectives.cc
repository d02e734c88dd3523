// Reductions, broadcast and barrier: they check the arguments and call the group.
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/c/arguments.h"
#include "bindings/c/guard.h"
#include "bindings/c/operators.h"
#include "bindings/c/submit.h"
#include "runtime/group/group.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

std::vector<Tensor> checked_tensors(std::size_t n, const void* const* sends, void* const* recvs,
                                    const std::size_t* counts, const Reduction& elements) {
  if (n == 0) throw Error(Code::kInvalidArgument, "n is 0: a grouped allreduce has at least one tensor");
  check_buffer("sends", sends, n);
  check_buffer("recvs", recvs, n);
  check_buffer("counts", counts, n);
  std::vector<Tensor> tensors;
  std::size_t all = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t bytes = checked_bytes(counts[i], 1, elements);
    if (__builtin_add_overflow(all, counts[i], &all)) checked_bytes(SIZE_MAX, 1, elements);
    const std::string at = "[" + std::to_string(i) + "]";
    check_buffer(("sends" + at).c_str(), sends[i], bytes);
    check_buffer(("recvs" + at).c_str(), recvs[i], bytes);
    if (sends[i] != recvs[i]) check_apart(sends[i], bytes, recvs[i], bytes, "pass the same pointer for both");
    tensors.push_back({buffer_of(sends[i], bytes), buffer_of(recvs[i], bytes)});
  }
  checked_bytes(all, 1, elements);
  return tensors;
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_allreduce(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, aiacc_op_t op,
                               aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kAllreduce, count, DType::kInt8);
    const auto user = set_reduction(call, dtype, op);
    const std::size_t bytes = checked_bytes(count, 1, call.reduction);
    check_buffer("send", send, bytes);
    check_buffer("recv", recv, bytes);
    if (send != recv) check_apart(send, bytes, recv, bytes, "pass the same pointer for both");
    submit_reduction(pin, call, buffer_of(send, bytes), buffer_of(recv, bytes), attr, user, request);
  });
}

aiacc_status_t aiacc_allreduce_grouped(size_t n, const void* const* sends, void* const* recvs, const size_t* counts,
                                       aiacc_dtype_t dtype, aiacc_op_t op, aiacc_group_t group,
                                       const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kGroupedAllreduce, 0, DType::kInt8);
    const auto user = set_reduction(call, dtype, op);
    const std::vector<Tensor> tensors = checked_tensors(n, sends, recvs, counts, call.reduction);
    for (const Tensor& tensor : tensors) call.count += tensor.send.bytes / call.element_bytes();
    call.tensors = tensors;
    submit_reduction(pin, call, {}, {}, attr, user, request);
  });
}

aiacc_status_t aiacc_reduce(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, aiacc_op_t op, int root,
                            aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kReduce, count, DType::kInt8);
    const auto user = set_reduction(call, dtype, op);
    check_rank("root", root, pin->group.size());
    call.root = root;
    const std::size_t bytes = checked_bytes(count, 1, call.reduction);
    check_buffer("send", send, bytes);
    const bool receives = pin->group.rank() == root;
    if (receives) check_buffer("recv", recv, bytes);
    if (receives && send != recv) check_apart(send, bytes, recv, bytes, "pass the same pointer for both");
    submit_reduction(pin, call, buffer_of(send, bytes), receives ? buffer_of(recv, bytes) : Buffer{}, attr, user,
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
    const std::size_t bytes = checked_bytes(count, 1, call.reduction);
    check_buffer("buffer", buffer, bytes);
    const Buffer memory = buffer_of(buffer, bytes);
    submit(pin, call, memory, memory, attr, request);
  });
}

aiacc_status_t aiacc_reduce_scatter(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, aiacc_op_t op,
                                    aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kReduceScatter, count, DType::kInt8);
    const auto user = set_reduction(call, dtype, op);
    const std::size_t bytes = checked_bytes(count, 1, call.reduction);
    const std::size_t all = checked_bytes(count, pin->group.size(), call.reduction);
    check_buffer("send", send, all);
    check_buffer("recv", recv, bytes);
    const auto* own = static_cast<const std::byte*>(send) + static_cast<std::size_t>(pin->group.rank()) * bytes;
    if (recv != own) check_apart(send, all, recv, bytes, "pass recv = send + rank * count");
    submit_reduction(pin, call, buffer_of(send, all), buffer_of(recv, bytes), attr, user, request);
  });
}

aiacc_status_t aiacc_reduce_scatterv(const void* send, void* recv, const size_t* counts, aiacc_dtype_t dtype,
                                     aiacc_op_t op, aiacc_group_t group, const aiacc_attr_t* attr,
                                     aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kReduceScatter, 0, DType::kInt8);
    const auto user = set_reduction(call, dtype, op);
    const Layout layout = checked_layout("counts", counts, "counts", nullptr, pin->group.size(), call.reduction);
    call.count = layout.count;
    call.uneven = true;
    call.blocks = layout.blocks;
    const Extent mine = call.block(pin->group.rank());
    const std::size_t bytes = mine.count * call.element_bytes();
    check_buffer("send", send, layout.bytes);
    check_buffer("recv", recv, bytes);
    const auto* own = static_cast<const std::byte*>(send) + mine.begin * call.element_bytes();
    if (recv != own) check_apart(send, layout.bytes, recv, bytes, "pass recv = send + the counts of lower ranks");
    submit_reduction(pin, call, buffer_of(send, layout.bytes), buffer_of(recv, bytes), attr, user, request);
  });
}

aiacc_status_t aiacc_barrier(aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call;
    submit(pin, call, {}, {}, attr, request);
  });
}

}  // extern "C"
