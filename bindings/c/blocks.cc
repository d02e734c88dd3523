// The collectives that move a block for each rank without a reduction: they check the arguments and call the group.
#include "bindings/c/arguments.h"
#include "bindings/c/guard.h"
#include "bindings/c/submit.h"
#include "runtime/group/group.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

const std::byte* at(const void* buffer, const Call& call, Extent block) noexcept {
  return static_cast<const std::byte*>(buffer) + block.begin * call.element_bytes();
}

// The uneven call for a layout; it points to the layout's blocks.
Call uneven_call(Collective kind, std::size_t count, DType type, const Layout* layout) {
  Call call = call_of(kind, count, type);
  call.uneven = true;
  if (layout != nullptr) call.blocks = layout->blocks;
  return call;
}

// Arguments of gather and scatter: `all` is the root's buffer with one block for each rank, `own` each rank's block.
struct Rooted {
  const void* all;
  std::size_t all_bytes;
  const void* own;
  std::size_t own_bytes;
};

void submit_rooted(GroupPin& pin, Call& call, const Rooted& buffers, const aiacc_attr_t* attr,
                   aiacc_request_t* request) {
  const bool gathers = call.kind == Collective::kGather;
  const bool is_root = pin->group.rank() == call.root;
  check_buffer(gathers ? "send" : "recv", buffers.own, buffers.own_bytes);
  if (is_root) {
    check_buffer(gathers ? "recv" : "send", buffers.all, buffers.all_bytes);
    if (buffers.own_bytes > 0 && buffers.own != at(buffers.all, call, call.block(call.root))) {
      check_apart(gathers ? buffers.own : buffers.all, gathers ? buffers.own_bytes : buffers.all_bytes,
                  gathers ? buffers.all : buffers.own, gathers ? buffers.all_bytes : buffers.own_bytes,
                  gathers ? "send is the root's own block of recv" : "recv is the root's own block of send");
    }
  }
  const Buffer own = buffer_of(buffers.own, buffers.own_bytes);
  const Buffer all = is_root ? buffer_of(buffers.all, buffers.all_bytes) : Buffer{};
  submit(pin, call, gathers ? own : all, gathers ? all : own, attr, request);
}

aiacc_status_t rooted(Collective kind, const void* all, const void* own, std::size_t count, aiacc_dtype_t dtype,
                      int root, aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) noexcept {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(kind, count, checked_dtype(dtype));
    check_rank("root", root, pin->group.size());
    call.root = root;
    const Rooted buffers{all, checked_bytes(count, pin->group.size(), call.reduction), own,
                         checked_bytes(count, 1, call.reduction)};
    submit_rooted(pin, call, buffers, attr, request);
  });
}

aiacc_status_t rooted_uneven(Collective kind, const void* all, const std::size_t* counts,
                             const std::size_t* displacements, const void* own, std::size_t own_count,
                             aiacc_dtype_t dtype, int root, aiacc_group_t group, const aiacc_attr_t* attr,
                             aiacc_request_t* request) noexcept {
  return guarded([&] {
    auto pin = pinned(group);
    Reduction elements;
    elements.type = checked_dtype(dtype);
    check_rank("root", root, pin->group.size());
    const bool gathers = kind == Collective::kGather;
    const std::size_t own_bytes = checked_bytes(own_count, 1, elements);
    Layout layout;
    const bool is_root = pin->group.rank() == root;
    if (is_root) {
      layout = checked_layout("counts", counts, "displacements", displacements, pin->group.size(), elements);
      check_own_count(gathers ? "send_count" : "recv_count", own_count, "counts", layout, root);
      if (gathers) check_blocks_apart("displacements", layout);
    }
    Call call = uneven_call(kind, own_count, elements.type, is_root ? &layout : nullptr);
    call.root = root;
    submit_rooted(pin, call, {all, layout.bytes, own, own_bytes}, attr, request);
  });
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_allgather(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, aiacc_group_t group,
                               const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kAllgather, count, checked_dtype(dtype));
    const std::size_t bytes = checked_bytes(count, 1, call.reduction);
    const std::size_t all = checked_bytes(count, pin->group.size(), call.reduction);
    check_buffer("send", send, bytes);
    check_buffer("recv", recv, all);
    if (send != at(recv, call, call.block(pin->group.rank()))) {
      check_apart(send, bytes, recv, all, "pass send = recv + rank * count");
    }
    submit(pin, call, buffer_of(send, bytes), buffer_of(recv, all), attr, request);
  });
}

aiacc_status_t aiacc_allgatherv(const void* send, size_t send_count, void* recv, const size_t* counts,
                                const size_t* displacements, aiacc_dtype_t dtype, aiacc_group_t group,
                                const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Reduction elements;
    elements.type = checked_dtype(dtype);
    const int rank = pin->group.rank();
    const Layout layout = checked_layout("counts", counts, "displacements", displacements, pin->group.size(), elements);
    check_own_count("send_count", send_count, "counts", layout, rank);
    check_blocks_apart("displacements", layout);
    Call call = uneven_call(Collective::kAllgather, layout.count, elements.type, &layout);
    const std::size_t bytes = checked_bytes(send_count, 1, elements);
    check_buffer("send", send, bytes);
    check_buffer("recv", recv, layout.bytes);
    if (send != at(recv, call, call.block(rank))) {
      check_apart(send, bytes, recv, layout.bytes, "pass send = recv + displacements[rank]");
    }
    submit(pin, call, buffer_of(send, bytes), buffer_of(recv, layout.bytes), attr, request);
  });
}

aiacc_status_t aiacc_alltoall(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, aiacc_group_t group,
                              const aiacc_attr_t* attr, aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Call call = call_of(Collective::kAlltoall, count, checked_dtype(dtype));
    const std::size_t bytes = checked_bytes(count, pin->group.size(), call.reduction);
    check_buffer("send", send, bytes);
    check_buffer("recv", recv, bytes);
    if (send != recv) check_apart(send, bytes, recv, bytes, "pass the same pointer for both");
    submit(pin, call, buffer_of(send, bytes), buffer_of(recv, bytes), attr, request);
  });
}

aiacc_status_t aiacc_alltoallv(const void* send, const size_t* send_counts, const size_t* send_displacements,
                               void* recv, const size_t* recv_counts, const size_t* recv_displacements,
                               aiacc_dtype_t dtype, aiacc_group_t group, const aiacc_attr_t* attr,
                               aiacc_request_t* request) {
  return guarded([&] {
    auto pin = pinned(group);
    Reduction elements;
    elements.type = checked_dtype(dtype);
    const int size = pin->group.size();
    const int rank = pin->group.rank();
    const Layout out =
        checked_layout("send_counts", send_counts, "send_displacements", send_displacements, size, elements);
    const Layout in =
        checked_layout("recv_counts", recv_counts, "recv_displacements", recv_displacements, size, elements);
    check_blocks_apart("recv_displacements", in);
    check_own_count("send_counts of this rank", out.blocks[static_cast<std::size_t>(rank)].count, "recv_counts", in,
                    rank);
    check_buffer("send", send, out.bytes);
    check_buffer("recv", recv, in.bytes);
    check_apart(send, out.bytes, recv, in.bytes, "there is only aiacc_alltoall");
    Call call = uneven_call(Collective::kAlltoall, out.count, elements.type, &out);
    call.recv_blocks = in.blocks;
    submit(pin, call, buffer_of(send, out.bytes), buffer_of(recv, in.bytes), attr, request);
  });
}

aiacc_status_t aiacc_gather(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, int root,
                            aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return rooted(Collective::kGather, recv, send, count, dtype, root, group, attr, request);
}

aiacc_status_t aiacc_gatherv(const void* send, size_t send_count, void* recv, const size_t* counts,
                             const size_t* displacements, aiacc_dtype_t dtype, int root, aiacc_group_t group,
                             const aiacc_attr_t* attr, aiacc_request_t* request) {
  return rooted_uneven(Collective::kGather, recv, counts, displacements, send, send_count, dtype, root, group, attr,
                       request);
}

aiacc_status_t aiacc_scatter(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, int root,
                             aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  return rooted(Collective::kScatter, send, recv, count, dtype, root, group, attr, request);
}

aiacc_status_t aiacc_scatterv(const void* send, const size_t* counts, const size_t* displacements, void* recv,
                              size_t recv_count, aiacc_dtype_t dtype, int root, aiacc_group_t group,
                              const aiacc_attr_t* attr, aiacc_request_t* request) {
  return rooted_uneven(Collective::kScatter, send, counts, displacements, recv, recv_count, dtype, root, group, attr,
                       request);
}

}  // extern "C"
