// Short ways in C++ of the back end aiacc of torch.distributed, an extension module of Python that `python -m aiacc.torch.build` compiles
// for one version of torch. A short way takes the calls that torch makes most: one dense tensor of the CPU, a type and an operator that
// the library has, no time-out of the call's own. For every other call it returns None, and process_group.py does it. Calls of the
// library come as addresses, because Python has loaded it and knows where it is.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace {

using Tensor = at::Tensor;
using Tensors = std::vector<Tensor>;
using Milliseconds = std::chrono::milliseconds;

// Read by Python in the file, before it loads a module that was made for another torch.
constexpr char built_for[] = "aiacc-torch-shim for " AIACC_SHIM_KEY;

constexpr int kOk = 0;
constexpr int kInvalidHandle = 2;
constexpr int kTimeout = 7;
constexpr int kPending = 12;
constexpr int kUint8 = 1;  // AIACC_UINT8
constexpr std::size_t kLongBytes = 4 << 20;
constexpr Milliseconds kTick(250);  // a wait in the library sees no signal of Python (Ctrl-C): it returns this often
constexpr std::int64_t kLong = 1 << 30;  // milliseconds
constexpr Milliseconds kLongestEnd(
    5000);  // of threads, at the end of Python: one may wait for an operation that never ends

// Of aiacc.h.
using Group = std::uint64_t;
using Request = std::uint64_t;
struct Calls {
  int (*allreduce)(const void*, void*, std::size_t, int, int, Group, const void*, Request*);
  int (*broadcast)(void*, std::size_t, int, int, Group, const void*, Request*);
  int (*allgather)(const void*, void*, std::size_t, int, Group, const void*, Request*);
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, Group, const void*, Request*);
  int (*alltoallv)(const void*, const std::size_t*, const std::size_t*, void*, const std::size_t*, const std::size_t*,
                   int, Group, const void*, Request*);
  int (*barrier)(Group, const void*, Request*);
  int (*send)(const void*, std::size_t, int, int, std::uint32_t, Group, const void*, Request*);
  int (*recv)(void*, std::size_t, int, int, std::uint32_t, Group, const void*, Request*);
  int (*wait_for)(Request, std::int64_t);
  const char* (*last_error)();
  int (*last_error_rank)();
};
Calls calls;
PyObject* failure_of = nullptr;  // of Python: the exception of a status, a sentence and a rank

#ifdef AIACC_SHIM_TORCH_1
struct Base : std::runtime_error {
  explicit Base(const std::string& sentence) : std::runtime_error(sentence) {}
};
#else
struct Base : c10::DistBackendError {
  explicit Base(const std::string& sentence) : c10::DistBackendError({__func__, __FILE__, __LINE__}, sentence) {}
};
#endif

// What Python shows as the exception that failure_of makes of it, and what is one of torch's in C++.
struct Failure : Base {
  Failure(int status_, std::string sentence_, int rank_)
      : Base(sentence_), status(status_), sentence(std::move(sentence_)), rank(rank_) {}
  int status;
  std::string sentence;
  int rank;
};

// The last error of this thread.
Failure last_failure(int status) { return Failure(status, calls.last_error(), calls.last_error_rank()); }

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    py::object made = py::reinterpret_steal<py::object>(
        PyObject_CallFunction(failure_of, "isi", failure.status, failure.sentence.c_str(), failure.rank));
    if (made) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  }
}

// Without the interpreter's lock, if this thread has it.
class Unlocked {
 public:
  Unlocked() {
    if (PyGILState_Check() != 0) released_.emplace();
  }

 private:
  std::optional<py::gil_scoped_release> released_;
};

// Tensors of operations that nobody can wait for any more, until they have ended.
class Dropped {
 public:
  void keep(Request request, Tensors tensors) {
    std::lock_guard lock(mutex_);
    kept_.emplace_back(request, std::move(tensors));
    some_ = true;
  }
  // At two of them, before each operation.
  void look() {
    if (!some_) return;
    // Looked at, and given back, without the lock: either may run Python.
    std::list<std::pair<Request, Tensors>> seen, pending;
    std::unique_lock lock(mutex_);
    while (!kept_.empty() && seen.size() < 2) seen.splice(seen.end(), kept_, kept_.begin());
    lock.unlock();
    for (auto one = seen.begin(); one != seen.end();) {
      const auto next = std::next(one);
      if (calls.wait_for(one->first, 0) == kPending) pending.splice(pending.end(), seen, one);
      one = next;
    }
    lock.lock();
    kept_.splice(kept_.end(), pending);
    some_ = !kept_.empty();
    lock.unlock();
  }

 private:
  std::mutex mutex_;
  std::list<std::pair<Request, Tensors>> kept_;
  std::atomic<bool> some_{false};
};
Dropped& dropped() {
  static Dropped* const one = new Dropped;  // threads may use it at the end of the process
  return *one;
}

class ShortWork;
void wait_elsewhere(c10::intrusive_ptr<ShortWork> work);

// One operation. It keeps the tensors alive until it has completed. Any thread may wait.
class ShortWork : public c10d::Work {
 public:
  ShortWork(Request request, Tensors results, Tensors kept, int source)
      : request_(request), results_(std::move(results)), kept_(std::move(kept)), source_(source) {}
  ~ShortWork() override {
    if (!ended_ && calls.wait_for(request_, 0) == kPending) {
      for (Tensor& each : results_) kept_.push_back(std::move(each));
      dropped().keep(request_, std::move(kept_));
    }
  }

  bool isCompleted() override {
    if (!ended_) take(calls.wait_for(request_, 0));
    return ended_;
  }
  bool isSuccess() const override { return const_cast<ShortWork*>(this)->isCompleted() && !failure_; }
  std::exception_ptr exception() const override { return ended_ ? failure_ : nullptr; }
  int sourceRank() const override { return source_; }
  Tensors result() override { return results_; }
  void synchronize() override { wait(); }
  void abort() override {}

  bool wait(Milliseconds timeout = kNoTimeout) override {
    Unlocked unlocked;
    const bool limited = timeout > kNoTimeout;
    Milliseconds left = timeout;
    while (!ended_) {
      const Milliseconds tick = limited ? std::min(kTick, left) : kTick;
      if (take(calls.wait_for(request_, tick.count()))) break;
      if (limited && (left -= tick) <= Milliseconds::zero()) {
        throw Failure(kTimeout,
                      "the operation did not complete within " + std::to_string(timeout.count()) + " ms, and goes on",
                      -1);
      }
      py::gil_scoped_acquire acquired;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    if (failure_) std::rethrow_exception(failure_);
    return true;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    bool first = false;
    {
      std::lock_guard lock(end_mutex_);
      if (!future_) {
        future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
        first = true;
      }
    }
    if (first) {
      Unlocked unlocked;
      if (isCompleted()) {
        complete();
      } else {
        wait_elsewhere(c10::intrusive_ptr<ShortWork>::unsafe_reclaim_from_nonowning(this));
      }
    }
    return future_;
  }

  // On a thread of its own. Runs nothing of Python; what it returns is for complete_with() on the same thread.
  int wait_in_library() {
    int status = kPending;
    while (status == kPending && !ended_) status = calls.wait_for(request_, kLong);
    return status;
  }
  void complete_with(int status) {
    if (!ended_) take(status);
    complete();
  }

 private:
  // Whether it has ended, of a status of wait_for.
  bool take(int status) {
    if (status == kPending) return false;
    Tensors kept;  // given back without the mutex: that may take the interpreter's lock
    std::unique_lock lock(end_mutex_);
    if (status == kInvalidHandle && !ended_) {  // another thread has waited for it, and ends this
      end_.wait_for(lock, std::chrono::seconds(10), [this] { return ended_.load(); });
    }
    if (ended_) return true;
    if (status != kOk) failure_ = std::make_exception_ptr(last_failure(status));
    kept.swap(kept_);
    ended_ = true;
    end_.notify_all();
    return true;
  }
  // Only by the one that made the future, or for it. What users attached to it runs here.
  void complete() { failure_ ? future_->setError(failure_) : future_->markCompleted(results_); }

  const Request request_;
  Tensors results_;
  Tensors kept_;
  const int source_;
  std::mutex end_mutex_;  // guards kept_, failure_ until ended_, and future_
  std::condition_variable end_;
  std::atomic<bool> ended_{false};
  std::exception_ptr failure_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Threads that wait for operations of which the future was asked for. There are as many as ever were waited for at a time.
class Waiters {
 public:
  void wait_for(c10::intrusive_ptr<ShortWork> work) {
    std::lock_guard lock(mutex_);
    asked_.push_back(std::move(work));
    if (asked_.size() > free_) {
      std::thread([this] { serve(); }).detach();
      ++free_;
      ++threads_;
    }
    more_.notify_one();
  }
  // Those whose operation does not end in time run nothing of Python from then on.
  void end(bool waits) {
    std::unique_lock lock(mutex_);
    ending_ = true;
    more_.notify_all();
    none_.wait_for(lock, waits ? kLongestEnd : Milliseconds(0), [this] { return threads_ == 0; });
    abandoned_ = true;
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      more_.wait(lock, [this] { return !asked_.empty() || ending_; });
      if (asked_.empty()) break;
      c10::intrusive_ptr<ShortWork> work = std::move(asked_.front());
      asked_.pop_front();
      --free_;
      lock.unlock();
      const int status = work->wait_in_library();
      lock.lock();
      if (abandoned_) {
        static_cast<void>(work.release());  // its tensors may be Python's
        return;
      }
      lock.unlock();
      work->complete_with(status);
      work.reset();
      lock.lock();
      ++free_;
    }
    --threads_;
    none_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable more_, none_;
  std::deque<c10::intrusive_ptr<ShortWork>> asked_;
  std::size_t free_ = 0;  // threads that wait for nothing, those that begin included
  std::size_t threads_ = 0;
  bool ending_ = false, abandoned_ = false;
};

std::atomic<Waiters*>& waiters() {
  static std::atomic<Waiters*> those{new Waiters};  // never freed: threads may use them at the end of the process
  return those;
}

void wait_elsewhere(c10::intrusive_ptr<ShortWork> work) {
  // A forked child has none of the threads.
  static const int at_fork = pthread_atfork(nullptr, nullptr, [] { waiters() = new Waiters; });
  static_cast<void>(at_fork);
  waiters().load()->wait_for(std::move(work));
}

// Called when Python ends. A thread that takes the interpreter's lock afterwards, to free a tensor of Python's or for what users attached to
// a future, is ended within C++, which aborts the process. `waits`: for operations that end soon.
void end_threads(bool waits) { waiters().exchange(new Waiters)->end(waits); }

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

PYBIND11_MODULE(aiacc_torch_shim, module) {
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
