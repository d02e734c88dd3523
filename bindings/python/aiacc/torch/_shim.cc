// Short ways in C++ of the back end aiacc of torch.distributed, an extension module of Python that `python -m aiacc.torch.build` compiles
// for one version of torch. A short way takes the calls that torch makes most: one dense tensor of the CPU, a type and an operator that
// the library has, no time-out of the call's own. For every other call it returns None, and process_group.py does it. Calls of the
// library come as addresses, because Python has loaded it and knows where it is.
#include <cstdint>
#include <utility>
#include <vector>

#include "_shim_work.h"

namespace aiacc_shim {
namespace {

// Read by Python in the file, before it loads a module that was made for another torch.
constexpr char built_for[] = "aiacc-torch-shim for " AIACC_SHIM_KEY;

constexpr int kUint8 = 1;  // AIACC_UINT8
constexpr std::size_t kLongBytes = 4 << 20;

using Made = c10::intrusive_ptr<c10d::Work>;

bool is_plain(const Tensor& tensor) {
  return tensor.layout() == c10::kStrided && tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_neg() &&
         !tensor.is_conj();
}

// AIACC_INT8 and its like; -1: not one that is reduced as it is.
int element_type(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Char: return 0;
    case c10::ScalarType::Byte: return 1;
    case c10::ScalarType::Short: return 2;
    case c10::ScalarType::Int: return 4;
    case c10::ScalarType::Long: return 6;
    case c10::ScalarType::Half: return 8;
    case c10::ScalarType::BFloat16: return 9;
    case c10::ScalarType::Float: return 10;
    case c10::ScalarType::Double: return 11;
    default: return -1;
  }
}

// torch's operators up to BXOR have the numbers of aiacc.h; -1: another one.
int operator_of(const c10d::ReduceOp& op) {
  const int number = static_cast<int>(static_cast<c10d::ReduceOp::RedOpType>(op));
  return number <= 7 ? number : -1;
}

template <class Options>
auto waits(const Options& options, int) -> decltype(options.asyncOp) {
  return !options.asyncOp;
}
template <class Options>
bool waits(const Options&, long) {  // torch before asyncOp
  return false;
}

// `call(request)` starts the operation.
template <class Call>
Made start(const Call& call, bool wait, Tensors results, Tensors kept, int source = -1) {
  py::gil_scoped_release released;
  dropped().look();
  Request request = 0;
  if (const int status = call(&request); status != kOk) throw last_failure(status);
  auto work = c10::make_intrusive<ShortWork>(request, std::move(results), std::move(kept), source);
  if (wait) work->wait();
  return work;
}

template <class Options>
bool has_limit(const Options& options) {
  return options.timeout > Milliseconds::zero();
}

Made allreduce(Group group, std::int64_t, const Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() != 1 || has_limit(options) || !is_plain(tensors[0])) return {};
  const int type = element_type(tensors[0]);
  const int op = operator_of(options.reduceOp);
  if (type < 0 || op < 0) return {};
  if (!waits(options, 0) && tensors[0].nbytes() >= kLongBytes) return {};  // why is said in process_group.py
  void* const place = tensors[0].data_ptr();
  const std::size_t count = tensors[0].numel();
  return start(
      [&](Request* request) { return calls.allreduce(place, place, count, type, op, group, nullptr, request); },
      waits(options, 0), tensors, {});
}

Made broadcast(Group group, std::int64_t size, const Tensors& tensors, const c10d::BroadcastOptions& options) {
  if (tensors.size() != 1 || options.rootTensor != 0 || options.rootRank < 0 || options.rootRank >= size) return {};
  if (has_limit(options) || !is_plain(tensors[0])) return {};
  return start(
      [&](Request* request) {
        return calls.broadcast(tensors[0].data_ptr(), tensors[0].nbytes(), kUint8, static_cast<int>(options.rootRank),
                               group, nullptr, request);
      },
      waits(options, 0), tensors, {});
}

bool are_plain(const Tensor& one, const Tensor& other) {
  return one.scalar_type() == other.scalar_type() && is_plain(one) && is_plain(other);
}

Made allgather(Group group, std::int64_t size, const Tensor& output, const Tensor& given,
               const c10d::AllgatherOptions& options) {
  if (has_limit(options) || output.numel() != given.numel() * size || !are_plain(output, given)) return {};
  return start(
      [&](Request* request) {
        return calls.allgather(given.data_ptr(), output.data_ptr(), given.nbytes(), kUint8, group, nullptr, request);
      },
      waits(options, 0), {output}, {given});
}

Made reduce_scatter(Group group, std::int64_t size, const Tensor& output, const Tensor& given,
                    const c10d::ReduceScatterOptions& options) {
  if (has_limit(options) || given.numel() != output.numel() * size || !are_plain(output, given)) return {};
  const int type = element_type(given);
  const int op = operator_of(options.reduceOp);
  if (type < 0 || op < 0) return {};
  return start(
      [&](Request* request) {
        return calls.reduce_scatter(given.data_ptr(), output.data_ptr(), output.numel(), type, op, group, nullptr,
                                    request);
      },
      waits(options, 0), {output}, {given});
}

Made alltoall(Group group, std::int64_t size, const Tensor& output, const Tensor& given,
              const std::vector<std::int64_t>& output_splits, const std::vector<std::int64_t>& input_splits,
              const c10d::AllToAllOptions& options) {
  if (!output_splits.empty() || !input_splits.empty() || has_limit(options) || !are_plain(output, given)) return {};
  if (given.dim() == 0 || output.dim() == 0 || given.size(0) % size != 0 || output.size(0) % size != 0 ||
      given.numel() != output.numel())
    return {};
  const std::vector<std::size_t> each(size, given.nbytes() / size);  // as other ranks may have given sizes
  return start(
      [&](Request* request) {
        return calls.alltoallv(given.data_ptr(), each.data(), nullptr, output.data_ptr(), each.data(), nullptr, kUint8,
                               group, nullptr, request);
      },
      waits(options, 0), {output}, {given});
}

Made barrier(Group group, std::int64_t, const c10d::BarrierOptions& options) {
  if (has_limit(options)) return {};
  return start([&](Request* request) { return calls.barrier(group, nullptr, request); }, waits(options, 0), {}, {});
}

Made send(Group group, std::int64_t, const Tensors& tensors, int to, std::int64_t tag) {
  if (tensors.size() != 1 || tag < 0 || tag > UINT32_MAX || !is_plain(tensors[0])) return {};
  return start(
      [&](Request* request) {
        return calls.send(tensors[0].data_ptr(), tensors[0].nbytes(), kUint8, to, static_cast<std::uint32_t>(tag),
                          group, nullptr, request);
      },
      false, {}, tensors);
}

Made recv(Group group, std::int64_t, const Tensors& tensors, int from, std::int64_t tag) {
  if (tensors.size() != 1 || tag < 0 || tag > UINT32_MAX || !is_plain(tensors[0])) return {};
  return start(
      [&](Request* request) {
        return calls.recv(tensors[0].data_ptr(), tensors[0].nbytes(), kUint8, from, static_cast<std::uint32_t>(tag),
                          group, nullptr, request);
      },
      false, tensors, {}, from);
}

template <class Function>
void set(Function*& function, const py::dict& addresses, const char* name) {
  function = reinterpret_cast<Function*>(addresses[name].cast<std::uintptr_t>());
}

void bind(const py::dict& addresses, py::object failure) {
  set(calls.allreduce, addresses, "allreduce");
  set(calls.broadcast, addresses, "broadcast");
  set(calls.allgather, addresses, "allgather");
  set(calls.reduce_scatter, addresses, "reduce_scatter");
  set(calls.alltoallv, addresses, "alltoallv");
  set(calls.barrier, addresses, "barrier");
  set(calls.send, addresses, "send");
  set(calls.recv, addresses, "recv");
  set(calls.wait_for, addresses, "wait_for");
  set(calls.last_error, addresses, "last_error");
  set(calls.last_error_rank, addresses, "last_error_rank");
  failure_of = failure.release().ptr();
}

}  // namespace
}  // namespace aiacc_shim

PYBIND11_MODULE(aiacc_torch_shim, module) {
  using namespace aiacc_shim;
  py::register_exception_translator(translate);
  module.attr("built_for") = built_for;
  module.def("bind", bind);
  module.def("allreduce", allreduce);
  module.def("broadcast", broadcast);
  module.def("allgather", allgather);
  module.def("reduce_scatter", reduce_scatter);
  module.def("alltoall", alltoall);
  module.def("barrier", barrier);
  module.def("send", send);
  module.def("recv", recv);
  module.def("end_threads", end_threads, py::call_guard<py::gil_scoped_release>());
}
