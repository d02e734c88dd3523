// What the short ways in C++ (_shim.cc) share: the calls of the library and their failures, an operation as torch's Work, and the threads that
// wait for operations whose future was asked for.
#pragma once

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
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace aiacc_shim {

namespace py = pybind11;
using Tensor = at::Tensor;
using Tensors = std::vector<Tensor>;
using Milliseconds = std::chrono::milliseconds;

inline constexpr int kOk = 0;
inline constexpr int kInvalidHandle = 2;
inline constexpr int kTimeout = 7;
inline constexpr int kPending = 12;
inline constexpr Milliseconds kTick(
    250);  // a wait in the library sees no signal of Python (Ctrl-C): it returns this often
inline constexpr std::int64_t kLong = 1 << 30;  // milliseconds
inline constexpr Milliseconds kLongestEnd(
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
inline Calls calls;
inline PyObject* failure_of = nullptr;  // of Python: the exception of a status, a sentence and a rank

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
inline Failure last_failure(int status) { return Failure(status, calls.last_error(), calls.last_error_rank()); }

inline void translate(std::exception_ptr thrown) {
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
inline Dropped& dropped() {
  static Dropped* const one = new Dropped;  // threads may use it at the end of the process
  return *one;
}

class ShortWork;
inline void wait_elsewhere(c10::intrusive_ptr<ShortWork> work);

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

inline std::atomic<Waiters*>& waiters() {
  static std::atomic<Waiters*> those{new Waiters};  // never freed: threads may use them at the end of the process
  return those;
}

inline void wait_elsewhere(c10::intrusive_ptr<ShortWork> work) {
  // A forked child has none of the threads.
  static const int at_fork = pthread_atfork(nullptr, nullptr, [] { waiters() = new Waiters; });
  static_cast<void>(at_fork);
  waiters().load()->wait_for(std::move(work));
}

// Called when Python ends. A thread that takes the interpreter's lock afterwards, to free a tensor of Python's or for what users attached to
// a future, is ended within C++, which aborts the process. `waits`: for operations that end soon.
inline void end_threads(bool waits) { waiters().exchange(new Waiters)->end(waits); }

}  // namespace aiacc_shim
