// aiacc for C++20: aiacc.h with owners, spans, futures and awaitable requests. Header only; depends on aiacc.h alone.
//
// - What fails throws aiacc::Error, with the status and the sentence of the library.
// - Buffers are contiguous ranges (vector, array, span, Memory) of an element type; their length is the count.
// - A Group blocks; group.async() has the same functions and returns a Request: wait(), done(), then(), future(), or
//   co_await it. Buffers of a Request belong to the library until it has completed.
// - A coroutine or continuation that waited goes on on the library's completion thread, where blocking calls are refused and
//   asynchronous ones work, or at once if the operation had ended.
#ifndef AIACC_AIACC_HPP
#define AIACC_AIACC_HPP

#include <aiacc/aiacc.h>

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace aiacc {
inline namespace v0 {

// --- errors ----------------------------------------------------------------------------------------------------------

class Error : public std::runtime_error {
 public:
  Error(aiacc_status_t status, const std::string &sentence, int rank = -1)
      : std::runtime_error(sentence), status_(status), rank_(rank) {}
  aiacc_status_t status() const noexcept { return status_; }
  const char *name() const noexcept { return aiacc_status_name(status_); }  // "peer failed" and so on
  int rank() const noexcept { return rank_; }                               // that the sentence is about, -1 if none
  // All ranks that it is about, ascending: those that were missing in a barrier whose time was over.
  const std::vector<int> &ranks() const noexcept { return *ranks_; }

  // The calling thread's last error, which `status` was returned for.
  static Error last(aiacc_status_t status) {
    Error error(status, aiacc_last_error(), aiacc_last_error_rank());
    std::size_t count = 0;
    if (aiacc_last_error_ranks(nullptr, 0, &count) != AIACC_OK || count == 0) return error;
    auto ranks = std::make_shared<std::vector<int>>(count);
    if (aiacc_last_error_ranks(ranks->data(), count, &count) == AIACC_OK) error.ranks_ = std::move(ranks);
    return error;
  }

 private:
  aiacc_status_t status_;
  int rank_;
  // Shared, so that copies of an exception do not throw.
  std::shared_ptr<const std::vector<int>> ranks_ = std::make_shared<const std::vector<int>>();
};

// Throws the calling thread's last error unless `status` is AIACC_OK.
inline void check(aiacc_status_t status) {
  if (status != AIACC_OK) throw Error::last(status);
}

// --- elements --------------------------------------------------------------------------------------------------------

// 16-bit floats as their bits: for those who have types of their own, cast buffers to these.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

namespace detail {

template <class T>
constexpr int dtype_or_none() {
  if constexpr (std::is_same_v<T, bool>)
    return AIACC_BOOL;
  else if constexpr (std::is_same_v<T, float>)
    return AIACC_FLOAT32;
  else if constexpr (std::is_same_v<T, double>)
    return AIACC_FLOAT64;
  else if constexpr (std::is_same_v<T, float16>)
    return AIACC_FLOAT16;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return AIACC_BFLOAT16;
  else if constexpr (std::is_same_v<T, std::byte>)
    return AIACC_UINT8;
  else if constexpr (std::is_integral_v<T> && sizeof(T) <= 8) {
    constexpr int width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : sizeof(T) == 4 ? 4 : 6;
    return width + (std::is_signed_v<T> ? 0 : 1);
  } else
    return -1;
}

}  // namespace detail

template <class T>
concept Element = detail::dtype_or_none<std::remove_cv_t<T>>()
>= 0;

template <Element T>
inline constexpr aiacc_dtype_t dtype_of = static_cast<aiacc_dtype_t>(detail::dtype_or_none<std::remove_cv_t<T>>());

template <class R>
concept Elements =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Element<std::ranges::range_value_t<R>>;

// Ranges that can be written to.
template <class R>
concept Buffer = Elements<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

// --- operators -------------------------------------------------------------------------------------------------------

inline constexpr aiacc_op_t sum = AIACC_SUM;
inline constexpr aiacc_op_t avg = AIACC_AVG;
inline constexpr aiacc_op_t prod = AIACC_PROD;
inline constexpr aiacc_op_t min = AIACC_MIN;
inline constexpr aiacc_op_t max = AIACC_MAX;
inline constexpr aiacc_op_t band = AIACC_BAND;
inline constexpr aiacc_op_t bor = AIACC_BOR;
inline constexpr aiacc_op_t bxor = AIACC_BXOR;

struct OperatorOptions {
  const char *name = nullptr;  // compared between ranks
  bool commutative = false;    // operands may change places, which is faster over several hosts
};

// What an operator of one's own combines: plain data of at most 512 bytes.
template <class T>
concept Record = std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> && sizeof(T) <= 512;

// An operator on records: `combine(a, b)` makes a to a op b, where lower ranks gave a. It must be associative, is called on any
// thread, calls nothing of aiacc, and has no state (a lambda without captures): running operations outlive their operator.
//   aiacc::Operator<Moments> merge([](Moments &all, const Moments &more) { ... }, {.name = "moments"});
template <Record T>
class Operator {
 public:
  template <class Combine>
  requires std::is_empty_v<Combine> && std::is_default_constructible_v<Combine> &&
      std::is_invocable_v<Combine, T &, const T &>
  explicit Operator(Combine, const OperatorOptions &options = {}) {
    aiacc_op_attr_t attr{};
    attr.size = sizeof attr;
    attr.name = options.name;
    attr.commutative = options.commutative ? 1 : 0;
    check(aiacc_op_create(&combine_all<Combine>, nullptr, sizeof(T), &attr, &op_));
    owned_ = true;
  }
  Operator(Operator &&other) noexcept : op_(other.op_), owned_(std::exchange(other.owned_, false)) {}
  Operator &operator=(Operator &&other) noexcept {
    std::swap(op_, other.op_);
    std::swap(owned_, other.owned_);
    return *this;
  }
  ~Operator() {
    if (owned_) aiacc_op_free(op_);
  }
  aiacc_op_t handle() const noexcept { return op_; }

 private:
  // Records may begin anywhere, so they are copied to where a T may be.
  template <class Combine>
  static void combine_all(void *inout, const void *in, std::size_t records, void *) {
    auto *all = static_cast<std::byte *>(inout);
    const auto *more = static_cast<const std::byte *>(in);
    for (std::size_t i = 0; i < records * sizeof(T); i += sizeof(T)) {
      T left;
      T right;
      std::memcpy(&left, all + i, sizeof(T));
      std::memcpy(&right, more + i, sizeof(T));
      Combine{}(left, std::as_const(right));
      std::memcpy(all + i, &left, sizeof(T));
    }
  }
  aiacc_op_t op_ = AIACC_SUM;
  bool owned_ = false;
};

namespace detail {

template <class T>
constexpr aiacc_dtype_t type_for(aiacc_op_t) {
  return dtype_of<T>;
}
template <class T>
constexpr aiacc_dtype_t type_for(const Operator<T> &) {
  return AIACC_RECORD;
}
constexpr aiacc_op_t handle_of(aiacc_op_t op) { return op; }
template <class T>
aiacc_op_t handle_of(const Operator<T> &op) {
  return op.handle();
}

}  // namespace detail

// What reduces T: an operator of the library if T is an element type, or one's own on T.
template <class Op, class T>
concept Reducing = (std::is_same_v<Op, aiacc_op_t> && Element<T>) || std::is_same_v<Op, Operator<std::remove_cv_t<T>>>;

// Ranges that Op reduces, and those that can hold the result.
template <class R, class Op>
concept Operands =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Reducing<Op, std::ranges::range_value_t<R>>;
template <class R, class Op>
concept Results = Operands<R, Op> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

// --- uneven calls ----------------------------------------------------------------------------------------------------

// Where the ranks' blocks stand in a buffer: counts[r] elements each, one after another, or from element displacements[r]
// on. Looks at the caller's numbers, which are read when the operation is called.
//   world.allgatherv(mine, all, counts);
//   world.allgatherv(mine, all, {counts, displacements});
class Blocks {
 public:
  using Numbers = std::span<const std::size_t>;

  Blocks() = default;
  template <class Counts>
  requires std::is_convertible_v<const Counts &, Numbers> Blocks(const Counts &counts) : counts_(counts) {}
  Blocks(Numbers counts, Numbers displacements) : counts_(counts), displacements_(displacements) {
    if (counts.size() != displacements.size()) {
      throw Error(AIACC_ERR_INVALID_ARGUMENT, "counts and displacements have not one number each for each rank");
    }
  }
  Numbers counts() const noexcept { return counts_; }
  // Null: one after another.
  const std::size_t *displacements() const noexcept { return displacements_.empty() ? nullptr : displacements_.data(); }
  // Whether all stand in a buffer of so many elements.
  bool fit(std::size_t elements) const noexcept {
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
      if (!displacements_.empty()) at = displacements_[rank];
      if (at > elements || counts_[rank] > elements - at) return false;
      at += counts_[rank];
    }
    return true;
  }

 private:
  Numbers counts_;
  Numbers displacements_;
};

// --- options of an operation -----------------------------------------------------------------------------------------

// Of one operation; see aiacc_attr_t.
struct Options {
  const char *name = nullptr;
  std::chrono::milliseconds timeout{0};  // 0: the default; -1 ms: none
  double prescale = 1;
  double postscale = 1;
  std::int32_t priority = 0;
};

namespace detail {

inline aiacc_attr_t attr_of(const Options &options) {
  aiacc_attr_t attr{};
  attr.size = sizeof attr;
  attr.name = options.name;
  attr.timeout_ms = options.timeout.count();
  attr.prescale = options.prescale;
  attr.postscale = options.postscale;
  attr.priority = options.priority;
  return attr;
}

inline void require(bool holds, const char *sentence) {
  if (!holds) throw Error(AIACC_ERR_INVALID_ARGUMENT, sentence);
}

// Whether an operation has ended, and what is to run then. Shared by its Request and the library's callback.
class Ending {
 public:
  // Runs `next` on the completion thread at the end; false, and `next` is left alone, if the end was there before.
  bool then(std::function<void()> &next) {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    next_ = std::move(next);
    return true;
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  static void tell(aiacc_status_t, const char *, void *arg) {
    const std::unique_ptr<std::shared_ptr<Ending>> owner(static_cast<std::shared_ptr<Ending> *>(arg));
    std::function<void()> next;
    {
      const std::lock_guard lock((*owner)->mutex_);
      (*owner)->ended_ = true;
      next = std::move((*owner)->next_);
    }
    if (next) next();
  }

 private:
  mutable std::mutex mutex_;
  bool ended_ = false;
  std::function<void()> next_;
};

}  // namespace detail

// --- requests --------------------------------------------------------------------------------------------------------

// An operation that was started. Whoever destroys one that runs waits for it: its buffers are still in use.
class [[nodiscard]] Request {
 public:
  Request() = default;
  Request(Request &&other) noexcept
      : handle_(std::exchange(other.handle_, AIACC_NULL)), ending_(std::move(other.ending_)) {}
  Request &operator=(Request &&other) noexcept {
    if (this != &other) {
      finish();
      handle_ = std::exchange(other.handle_, AIACC_NULL);
      ending_ = std::move(other.ending_);
    }
    return *this;
  }
  ~Request() { finish(); }

  // Started by `submit(attr, request)`, a call of aiacc.h.
  template <class Submit>
  static Request start(const Options &options, Submit &&submit) {
    Request request;
    request.ending_ = std::make_shared<detail::Ending>();
    auto arg = std::make_unique<std::shared_ptr<detail::Ending>>(request.ending_);
    aiacc_attr_t attr = detail::attr_of(options);
    attr.callback = &detail::Ending::tell;
    attr.callback_arg = arg.get();
    check(submit(&attr, &request.handle_));
    (void)arg.release();  // the callback's now
    return request;
  }

  explicit operator bool() const noexcept { return handle_ != AIACC_NULL; }
  aiacc_request_t handle() const noexcept { return handle_; }

  // Returns or throws once, as the operation ended; afterwards the request is empty.
  void wait() {
    if (handle_ != AIACC_NULL) (void)ended(aiacc_wait(handle_));
  }
  // As wait() if the operation has ended, or ends in time; else false, and the request stays.
  bool wait_for(std::chrono::milliseconds timeout) {
    return handle_ == AIACC_NULL || ended(aiacc_wait_for(handle_, timeout.count()));
  }
  bool done() { return handle_ == AIACC_NULL || ended(aiacc_test(handle_)); }

  // Nobody asks any more: the operation goes on, and its buffers belong to the library until it has ended.
  void forget() {
    if (handle_ != AIACC_NULL) check(aiacc_request_free(std::exchange(handle_, AIACC_NULL)));
  }

  // Looks at the operation and leaves the request: AIACC_PENDING, or how it ended, and its sentence ("" if it is well).
  struct Look {
    aiacc_status_t status;
    std::string sentence;
  };
  Look look() const {
    const char *sentence = "";
    const aiacc_status_t status = aiacc_request_error(handle_, &sentence);
    if (status == AIACC_ERR_INVALID_HANDLE) throw Error::last(status);
    return {status, sentence};
  }
  // Its number among the collectives (or messages) of its group; nothing until it was begun.
  std::optional<std::uint64_t> sequence() const {
    std::uint64_t sequence = 0;
    const aiacc_status_t status = aiacc_request_sequence(handle_, &sequence);
    if (status == AIACC_PENDING) return std::nullopt;
    check(status);
    return sequence;
  }

  // Calls `next(error)` once at the end, with a null std::exception_ptr if all went well: on the library's completion
  // thread, or here and now if the end is there already. The request is empty afterwards. What throws there ends the process.
  template <class Next>
  requires std::is_invocable_v<Next &, std::exception_ptr> && std::is_copy_constructible_v<Next>
  void then(Next next) && {
    const std::shared_ptr<detail::Ending> ending = ending_;
    auto request = std::make_shared<Request>(std::move(*this));
    std::function<void()> at_end = [request, next = std::move(next)]() mutable {
      std::exception_ptr error;
      try {
        (void)request->done();
      } catch (const Error &) {
        error = std::current_exception();
      }
      next(std::move(error));
    };
    if (!ending || !ending->then(at_end)) at_end();
  }

  // The operation's end as a future. The request is empty afterwards, and nobody waits for the buffers but the future's owner.
  std::future<void> future() && {
    auto promise = std::make_shared<std::promise<void>>();
    std::future<void> end = promise->get_future();
    std::move(*this).then([promise](const std::exception_ptr &error) {
      if (error) {
        promise->set_exception(error);
      } else {
        promise->set_value();
      }
    });
    return end;
  }

  // co_await std::move(request), or of a call: throws as the operation ended. Who awaits is not destroyed before the end.
  class Awaiter;
  inline Awaiter operator co_await() &&;

 private:
  friend bool wait_all(std::span<Request> requests, std::chrono::milliseconds timeout);
  friend std::optional<std::size_t> wait_any(std::span<Request> requests, std::chrono::milliseconds timeout);

  static std::vector<aiacc_request_t> handles_of(std::span<const Request> requests) {
    std::vector<aiacc_request_t> handles;
    handles.reserve(requests.size());
    for (const Request &request : requests) handles.push_back(request.handle_);
    return handles;
  }
  // Those that completed are AIACC_NULL among the handles.
  static void keep(std::span<Request> requests, const std::vector<aiacc_request_t> &handles) {
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].handle_ = handles[i];
  }
  bool ended(aiacc_status_t status) {
    if (status == AIACC_PENDING) return false;
    if (status != AIACC_ERR_INVALID_STATE) handle_ = AIACC_NULL;  // refused on the completion thread: it still runs
    check(status);
    return true;
  }
  void finish() noexcept {
    if (handle_ == AIACC_NULL) return;
    if (aiacc_wait(handle_) == AIACC_ERR_INVALID_STATE) aiacc_request_free(handle_);  // on the completion thread
    handle_ = AIACC_NULL;
  }

  aiacc_request_t handle_ = AIACC_NULL;
  std::shared_ptr<detail::Ending> ending_;
};

class Request::Awaiter {
 public:
  explicit Awaiter(Request &&request) : request_(std::move(request)) {}
  bool await_ready() const { return !request_.ending_ || request_.ending_->ended(); }
  bool await_suspend(std::coroutine_handle<> waiter) {
    std::function<void()> next = [waiter] { waiter.resume(); };
    // This object may be gone once the other thread has `next`: what is used is held here.
    const std::shared_ptr<detail::Ending> ending = request_.ending_;
    return ending->then(next);
  }
  void await_resume() { (void)request_.done(); }

 private:
  Request request_;
};

inline Request::Awaiter Request::operator co_await() && { return Awaiter(std::move(*this)); }

inline constexpr std::chrono::milliseconds forever{AIACC_FOREVER};

// Waits for all, which are empty then, and throws the first error in their order; false after `timeout`: then those that
// completed well are empty.
inline bool wait_all(std::span<Request> requests, std::chrono::milliseconds timeout = forever) {
  std::vector<aiacc_request_t> handles = Request::handles_of(requests);
  const aiacc_status_t status = aiacc_wait_all(handles.size(), handles.data(), timeout.count());
  Request::keep(requests, handles);
  if (status == AIACC_PENDING) return false;
  check(status);
  return true;
}

// Waits until one of the requests that are not empty has ended; its place, or nothing after `timeout`. The request is empty
// afterwards; throws if it failed. With none left the place is requests.size().
inline std::optional<std::size_t> wait_any(std::span<Request> requests, std::chrono::milliseconds timeout = forever) {
  std::vector<aiacc_request_t> handles = Request::handles_of(requests);
  std::size_t index = requests.size();
  const aiacc_status_t status = aiacc_wait_any(handles.size(), handles.data(), timeout.count(), &index);
  if (status == AIACC_PENDING) return std::nullopt;
  Request::keep(requests, handles);
  check(status);
  return index;
}

// --- calls on a group ------------------------------------------------------------------------------------------------

// Every function of aiacc.h that moves data, once: `Self` blocks (Group) or starts (Async).
template <class Self>
class Calls {
 public:
  template <class Op, Operands<Op> S, Results<Op> R>
  auto allreduce(const S &send, R &&recv, const Op &op, const Options &options = {}) const {
    same_length(send, recv);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allreduce(data(send), data(recv), count(send), type(send, op), detail::handle_of(op), group, attr,
                             request);
    });
  }
  template <class Op, Results<Op> R>
  auto allreduce(R &&in_place, const Op &op, const Options &options = {}) const {
    return allreduce(in_place, in_place, op, options);
  }

  // `recv` may be empty on other ranks than the root.
  template <class Op, Operands<Op> S, Results<Op> R>
  auto reduce(const S &send, R &&recv, const Op &op, int root, const Options &options = {}) const {
    if (self().rank() == root) same_length(send, recv);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_reduce(data(send), data(recv), count(send), type(send, op), detail::handle_of(op), root, group, attr,
                          request);
    });
  }

  template <Buffer R>
  auto broadcast(R &&buffer, int root, const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_broadcast(data(buffer), count(buffer), type(buffer), root, group, attr, request);
    });
  }

  // `recv` holds send's length for each rank.
  template <Elements S, Buffer R>
  auto allgather(const S &send, R &&recv, const Options &options = {}) const {
    holds_blocks(recv, send);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allgather(data(send), data(recv), count(send), type(send), group, attr, request);
    });
  }

  // `send` holds recv's length for each rank.
  template <class Op, Operands<Op> S, Results<Op> R>
  auto reduce_scatter(const S &send, R &&recv, const Op &op, const Options &options = {}) const {
    holds_blocks(send, recv);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_reduce_scatter(data(send), data(recv), count(recv), type(recv, op), detail::handle_of(op), group,
                                  attr, request);
    });
  }

  // As allgather, with blocks.counts()[r] elements of rank r.
  template <Elements S, Buffer R>
  auto allgatherv(const S &send, R &&recv, const Blocks &blocks, const Options &options = {}) const {
    same_type<S, R>();
    holds(recv, blocks);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allgatherv(data(send), count(send), data(recv), blocks.counts().data(), blocks.displacements(),
                              type(send), group, attr, request);
    });
  }

  // As reduce_scatter, with counts[r] elements for rank r, one block after another.
  template <class Op, Operands<Op> S, Results<Op> R>
  auto reduce_scatterv(const S &send, R &&recv, std::span<const std::size_t> counts, const Op &op,
                       const Options &options = {}) const {
    same_type<S, R>();
    holds(send, counts);
    detail::require(count(recv) >= counts[static_cast<std::size_t>(self().rank())],
                    "recv is shorter than this rank's block");
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_reduce_scatterv(data(send), data(recv), counts.data(), type(send, op), detail::handle_of(op), group,
                                   attr, request);
    });
  }

  // A block of equal length for each rank, in both buffers; in place: the same buffer.
  template <Elements S, Buffer R>
  auto alltoall(const S &send, R &&recv, const Options &options = {}) const {
    same_length(send, recv);
    const std::size_t block = block_of(send);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_alltoall(data(send), data(recv), block, type(send), group, attr, request);
    });
  }

  // Block r of `out` goes to rank r, block r of `in` comes from there.
  template <Elements S, Buffer R>
  auto alltoallv(const S &send, const Blocks &out, R &&recv, const Blocks &in, const Options &options = {}) const {
    same_type<S, R>();
    holds(send, out);
    holds(recv, in);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_alltoallv(data(send), out.counts().data(), out.displacements(), data(recv), in.counts().data(),
                             in.displacements(), type(send), group, attr, request);
    });
  }

  // `recv` holds send's length for each rank at the root, and may be empty elsewhere.
  template <Elements S, Buffer R>
  auto gather(const S &send, R &&recv, int root, const Options &options = {}) const {
    if (self().rank() == root) holds_blocks(recv, send);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_gather(data(send), data(recv), count(send), type(send), root, group, attr, request);
    });
  }

  // `send` holds recv's length for each rank at the root, and may be empty elsewhere.
  template <Elements S, Buffer R>
  auto scatter(const S &send, R &&recv, int root, const Options &options = {}) const {
    if (self().rank() == root) holds_blocks(send, recv);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_scatter(data(send), data(recv), count(recv), type(recv), root, group, attr, request);
    });
  }

  // As gather, with blocks.counts()[r] elements of rank r; `recv` and `blocks` may be empty on other ranks than the root.
  template <Elements S, Buffer R>
  auto gatherv(const S &send, R &&recv, const Blocks &blocks, int root, const Options &options = {}) const {
    same_type<S, R>();
    if (self().rank() == root) holds(recv, blocks);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_gatherv(data(send), count(send), data(recv), blocks.counts().data(), blocks.displacements(),
                           type(send), root, group, attr, request);
    });
  }

  // As scatter, with blocks.counts()[r] elements for rank r; `send` and `blocks` may be empty on other ranks than the root.
  template <Elements S, Buffer R>
  auto scatterv(const S &send, const Blocks &blocks, R &&recv, int root, const Options &options = {}) const {
    same_type<S, R>();
    if (self().rank() == root) holds(send, blocks);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_scatterv(data(send), blocks.counts().data(), blocks.displacements(), data(recv), count(recv),
                            type(recv), root, group, attr, request);
    });
  }

  auto barrier(const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) { return aiacc_barrier(group, attr, request); });
  }

  template <Elements S>
  auto send(const S &buffer, int to, std::uint32_t tag = 0, const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_send(data(buffer), count(buffer), type(buffer), to, tag, group, attr, request);
    });
  }
  template <Buffer R>
  auto recv(R &&buffer, int from, std::uint32_t tag = 0, const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_recv(data(buffer), count(buffer), type(buffer), from, tag, group, attr, request);
    });
  }

  // Sends and receives at once, so that a ring of ranks does not lock itself.
  template <Elements S, Buffer R>
  auto sendrecv(const S &send, int to, R &&recv, int from, std::uint32_t tag = 0, const Options &options = {}) const {
    same_type<S, R>();
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_sendrecv(data(send), count(send), to, tag, data(recv), count(recv), from, tag, type(send), group,
                            attr, request);
    });
  }
  // The next message with this tag of whichever rank; `from` is set to it, and lives until the end.
  template <Buffer R>
  auto recv_any(R &&buffer, int &from, std::uint32_t tag = 0, const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_recv_any(data(buffer), count(buffer), type(buffer), &from, tag, group, attr, request);
    });
  }

  // Many buffers of one type as one operation, each in place.
  template <class T, Reducing<T> Op>
  auto allreduce_grouped(std::span<const std::span<T>> buffers, const Op &op, const Options &options = {}) const {
    std::vector<void *> places;
    std::vector<std::size_t> counts;
    for (const std::span<T> &buffer : buffers) {
      places.push_back(buffer.data());
      counts.push_back(buffer.size());
    }
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allreduce_grouped(places.size(), const_cast<const void *const *>(places.data()), places.data(),
                                     counts.data(), detail::type_for<T>(op), detail::handle_of(op), group, attr,
                                     request);
    });
  }

 private:
  std::size_t block_of(const auto &blocks) const {
    const auto ranks = static_cast<std::size_t>(self().size());
    detail::require(count(blocks) % ranks == 0, "the buffer is no block of equal length for each rank of the group");
    return count(blocks) / ranks;
  }
  void holds(const auto &buffer, const Blocks &blocks) const {
    detail::require(blocks.counts().size() == static_cast<std::size_t>(self().size()),
                    "counts has not one number for each rank");
    detail::require(blocks.fit(count(buffer)),
                    blocks.displacements() == nullptr
                        ? "the buffer is shorter than its counts together"
                        : "a block ends after the buffer: look at its displacement and count");
  }
  const Self &self() const { return static_cast<const Self &>(*this); }
  template <class Submit>
  auto call(const Options &options, Submit &&submit) const {
    const aiacc_group_t group = self().handle();
    return self().submit(
        options, [&](const aiacc_attr_t *attr, aiacc_request_t *request) { return submit(group, attr, request); });
  }
  template <class R>
  static auto data(R &&range) {
    return std::ranges::data(range);
  }
  template <class R>
  static std::size_t count(const R &range) {
    return std::ranges::size(range);
  }
  template <class R>
  static aiacc_dtype_t type(const R &) {
    return dtype_of<std::ranges::range_value_t<R>>;
  }
  template <class R, class Op>
  static aiacc_dtype_t type(const R &, const Op &op) {
    return detail::type_for<std::ranges::range_value_t<R>>(op);
  }
  template <class A, class B>
  static constexpr bool one_type() {
    if constexpr (Element<A> && Element<B>) {
      return dtype_of<A> == dtype_of<B>;
    } else {
      return std::is_same_v<A, B>;
    }
  }
  template <class A, class B>
  static void same_type() {
    static_assert(one_type<std::ranges::range_value_t<A>, std::ranges::range_value_t<B>>(),
                  "send and recv hold elements of one type");
  }
  template <class A, class B>
  static void same_length(const A &send, const B &recv) {
    same_type<A, B>();
    detail::require(count(send) == count(recv), "send and recv differ in length: give buffers of equal length");
  }
  template <class A, class B>
  void holds_blocks(const A &blocks, const B &block) const {
    same_type<A, B>();
    detail::require(count(blocks) == count(block) * static_cast<std::size_t>(self().size()),
                    "the longer buffer does not hold the shorter one's length for each rank of the group");
  }
};

namespace detail {

inline int number(aiacc_status_t (*get)(aiacc_group_t, int *), aiacc_group_t group) {
  int value = 0;
  check(get(group, &value));
  return value;
}

}  // namespace detail

// The calls of a group that return a Request.
class Async : public Calls<Async> {
 public:
  explicit Async(aiacc_group_t group) noexcept : group_(group) {}
  aiacc_group_t handle() const noexcept { return group_; }
  int size() const { return detail::number(aiacc_size, group_); }
  int rank() const { return detail::number(aiacc_rank, group_); }

 private:
  friend class Calls<Async>;
  template <class Submit>
  Request submit(const Options &options, Submit &&submit) const {
    return Request::start(options, std::forward<Submit>(submit));
  }
  aiacc_group_t group_;
};

// Of a group; see aiacc_group_attr_t.
struct GroupOptions {
  const char *name = nullptr;
  std::uint64_t key = 0;                 // equal on all members; tells apart groups of equal members
  std::chrono::milliseconds timeout{0};  // of operations on it that name none
};

// Ranks that work together. One that was made here is freed with its owner; a world or a group of a mesh is only named.
class Group : public Calls<Group> {
 public:
  Group() = default;
  static Group named(aiacc_group_t handle) noexcept { return Group(handle, false); }
  Group(Group &&other) noexcept
      : handle_(std::exchange(other.handle_, AIACC_NULL)), owned_(std::exchange(other.owned_, false)) {}
  Group &operator=(Group &&other) noexcept {
    if (this != &other) {
      free();
      handle_ = std::exchange(other.handle_, AIACC_NULL);
      owned_ = std::exchange(other.owned_, false);
    }
    return *this;
  }
  ~Group() { free(); }

  aiacc_group_t handle() const noexcept { return handle_; }
  Async async() const noexcept { return Async(handle_); }

  int rank() const { return detail::number(aiacc_rank, handle_); }
  int size() const { return detail::number(aiacc_size, handle_); }
  int local_rank() const { return detail::number(aiacc_local_rank, handle_); }
  int local_size() const { return detail::number(aiacc_local_size, handle_); }
  int host_index() const { return detail::number(aiacc_host_index, handle_); }

  // The value of all ranks together.
  template <class T, Reducing<T> Op>
  T combined(T value, const Op &op, const Options &options = {}) const {
    this->allreduce(std::span<T>(&value, 1), op, options);
    return value;
  }

  // Of these ranks of this group; called by them alone.
  Group create(std::span<const int> ranks, const GroupOptions &options = {}) const {
    const aiacc_group_attr_t attr = attr_of(options);
    aiacc_group_t group = AIACC_NULL;
    check(aiacc_group_create(handle_, ranks.size(), ranks.data(), &attr, &group));
    return Group(group, true);
  }
  // Of the ranks of one color, ordered by key. Nothing for who gives no color. Collective.
  std::optional<Group> split(std::optional<int> color, int key = 0, const GroupOptions &options = {}) const {
    const aiacc_group_attr_t attr = attr_of(options);
    aiacc_group_t group = AIACC_NULL;
    check(aiacc_group_split(handle_, color.value_or(AIACC_NO_COLOR), key, &attr, &group));
    if (!color) return std::nullopt;
    return Group(group, true);
  }
  void abort(const std::string &reason) const { check(aiacc_group_abort(handle_, reason.c_str())); }
  // The ranks of this group as `to` numbers them; -1 for who is no member of it.
  std::vector<int> translate(std::span<const int> ranks, const Group &to) const {
    std::vector<int> translated(ranks.size());
    check(aiacc_group_translate(handle_, ranks.size(), ranks.data(), to.handle_, translated.data()));
    return translated;
  }
  std::uint64_t sequence() const {
    std::uint64_t sequence = 0;
    check(aiacc_group_sequence(handle_, &sequence));
    return sequence;
  }

 private:
  friend class Calls<Group>;
  Group(aiacc_group_t handle, bool owned) noexcept : handle_(handle), owned_(owned) {}
  template <class Submit>
  void submit(const Options &options, Submit &&submit) const {
    const aiacc_attr_t attr = detail::attr_of(options);
    check(submit(&attr, static_cast<aiacc_request_t *>(nullptr)));
  }
  static aiacc_group_attr_t attr_of(const GroupOptions &options) {
    aiacc_group_attr_t attr{};
    attr.size = sizeof attr;
    attr.name = options.name;
    attr.key = options.key;
    attr.timeout_ms = options.timeout.count();
    return attr;
  }
  void free() noexcept {
    if (owned_ && handle_ != AIACC_NULL) aiacc_group_free(handle_);
  }
  aiacc_group_t handle_ = AIACC_NULL;
  bool owned_ = false;
};

// The ranks of a group in a box of named axes; the last axis varies fastest.
class Mesh {
 public:
  using Axis = std::pair<const char *, int>;

  Mesh(const Group &parent, std::span<const Axis> axes) {
    std::vector<const char *> names;
    std::vector<int> sizes;
    for (const Axis &axis : axes) {
      names.push_back(axis.first);
      sizes.push_back(axis.second);
    }
    check(aiacc_mesh_create(parent.handle(), axes.size(), names.data(), sizes.data(), &handle_));
  }
  Mesh(const Group &parent, std::initializer_list<Axis> axes) : Mesh(parent, std::span(axes.begin(), axes.size())) {}
  Mesh(Mesh &&other) noexcept : handle_(std::exchange(other.handle_, AIACC_NULL)) {}
  Mesh &operator=(Mesh &&other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Mesh() {
    if (handle_ != AIACC_NULL) aiacc_mesh_free(handle_);
  }

  // Of this rank and those that differ from it along these axes only; lives as long as the mesh.
  Group group(std::initializer_list<const char *> axes) const {
    aiacc_group_t group = AIACC_NULL;
    check(aiacc_mesh_group(handle_, axes.size(), axes.begin(), &group));
    return Group::named(group);
  }
  int coordinate(const char *axis) const {
    int index = 0;
    check(aiacc_mesh_coordinate(handle_, axis, &index));
    return index;
  }

 private:
  aiacc_mesh_t handle_ = AIACC_NULL;
};

// --- life ------------------------------------------------------------------------------------------------------------

// Of a context; see aiacc_init_attr_t.
struct InitOptions {
  std::optional<int> rank;  // with world_size: nothing is looked up
  int world_size = 0;
  std::chrono::milliseconds timeout{0};
  const aiacc_store_t *store = nullptr;  // meet through it
  const char *job = nullptr;             // tells apart jobs that meet at one place
};

inline bool initialized() noexcept { return aiacc_initialized() != 0; }
inline std::string version() { return aiacc_version(); }  // of the library that runs

// What aiacc_info finds on this host, as JSON.
inline std::string info() {
  std::string json;
  std::size_t needed = 0;
  check(aiacc_info(nullptr, 0, &needed));
  while (needed > json.size() + 1) {  // it differs from call to call
    json.resize(needed + 64);
    check(aiacc_info(json.data(), json.size() + 1, &needed));
  }
  json.resize(std::strlen(json.c_str()));
  return json;
}

// One rank: the default context, from aiacc_init to aiacc_finalize, or one of several in a process. Left by an exception, the
// default context is not finalized: the process ends with an error and the job with it, where waiting for ranks that wait for
// this one would hang.
class Context {
 public:
  explicit Context(const InitOptions &options = {}) {
    aiacc_init_attr_t attr{};
    attr.size = sizeof attr;
    attr.world_size_set = options.rank ? 1 : 0;
    attr.rank = options.rank.value_or(0);
    attr.world_size = options.world_size;
    attr.timeout_ms = static_cast<std::int32_t>(options.timeout.count());
    attr.store = options.store;
    attr.job = options.job;
    check(aiacc_init(&attr));
    alive_ = true;
  }
  // Ranks 0 to n-1 of a world inside this process, one for each thread.
  static std::vector<Context> local(std::size_t n) {
    std::vector<aiacc_context_t> handles(n);
    check(aiacc_context_create_local(n, handles.data()));
    std::vector<Context> contexts;
    for (const aiacc_context_t handle : handles) contexts.push_back(Context(handle));
    return contexts;
  }
  Context(Context &&other) noexcept
      : handle_(other.handle_), alive_(std::exchange(other.alive_, false)), exceptions_(other.exceptions_) {}
  Context &operator=(Context &&) = delete;
  ~Context() {
    if (alive_ && std::uncaught_exceptions() == exceptions_) leave();
  }

  // Leaves in order, and throws if that fails, which the destructor cannot. Collective.
  void finalize() {
    if (std::exchange(alive_, false)) check(handle_ == AIACC_NULL ? aiacc_finalize() : aiacc_context_destroy(handle_));
  }
  Group world() const {
    if (handle_ == AIACC_NULL) return Group::named(AIACC_WORLD);
    aiacc_group_t world = AIACC_NULL;
    check(aiacc_context_world(handle_, &world));
    return Group::named(world);
  }
  aiacc_context_t handle() const noexcept { return handle_; }

 private:
  explicit Context(aiacc_context_t handle) noexcept : handle_(handle), alive_(true) {}
  void leave() noexcept {
    if (handle_ == AIACC_NULL) {
      aiacc_finalize();
    } else {
      aiacc_context_destroy(handle_);
    }
  }
  aiacc_context_t handle_ = AIACC_NULL;
  bool alive_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

// --- memory ----------------------------------------------------------------------------------------------------------

// An array that the ranks of this host share: collectives on it move the fewest bytes. Not initialised beyond what the library
// gives.
template <class T>
requires std::is_trivially_copyable_v<T>
class Memory {
 public:
  explicit Memory(std::size_t count, aiacc_context_t context = AIACC_NULL) : count_(count) {
    void *memory = nullptr;
    check(aiacc_mem_alloc(context, count * sizeof(T), &memory));
    data_.reset(static_cast<T *>(memory));
  }

  T *data() noexcept { return data_.get(); }
  const T *data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return count_; }
  T *begin() noexcept { return data(); }
  T *end() noexcept { return data() + count_; }
  const T *begin() const noexcept { return data(); }
  const T *end() const noexcept { return data() + count_; }
  T &operator[](std::size_t i) noexcept { return data()[i]; }
  const T &operator[](std::size_t i) const noexcept { return data()[i]; }

 private:
  struct Free {
    void operator()(T *memory) const noexcept { aiacc_mem_free(memory); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t count_;
};

// Memory of the caller's own, registered while this lives or until its context ends; see aiacc_mem_register.
class Registration {
 public:
  template <class T, std::size_t N>
  explicit Registration(std::span<T, N> memory, aiacc_context_t context = AIACC_NULL) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "operations write plain data there");
    check(aiacc_mem_register(context, memory.data(), memory.size_bytes(), &handle_));
  }
  Registration(Registration &&other) noexcept : handle_(std::exchange(other.handle_, AIACC_NULL)) {}
  Registration &operator=(Registration &&other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Registration() {
    if (handle_ != AIACC_NULL) aiacc_mem_deregister(handle_);
  }

 private:
  aiacc_registration_t handle_ = AIACC_NULL;
};

}  // namespace v0
}  // namespace aiacc

#endif
