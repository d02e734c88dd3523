// Asynchronous operations: waits, continuations, futures, and co_await. Part of aiacc.hpp.
#ifndef AIACC_REQUEST_HPP
#define AIACC_REQUEST_HPP

#include <aiacc/aiacc.h>
#include <aiacc/error.hpp>
#include <aiacc/options.hpp>

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace aiacc {
inline namespace v0 {

namespace detail {

// The end of an operation and its continuation. Shared by its Request and the library's callback.
class Ending {
 public:
  // Runs `next` on the completion thread when the operation ends; false, without taking `next`, if it has ended
  // already.
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

// An operation that was started. The destructor waits for a running operation, because its buffers are still in use.
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

  // Starts an operation by `submit(attr, request)`, a call of aiacc.h.
  template <class Submit>
  static Request start(const Options &options, Submit &&submit) {
    Request request;
    request.ending_ = std::make_shared<detail::Ending>();
    auto arg = std::make_unique<std::shared_ptr<detail::Ending>>(request.ending_);
    aiacc_attr_t attr = detail::attr_of(options);
    attr.callback = &detail::Ending::tell;
    attr.callback_arg = arg.get();
    check(submit(&attr, &request.handle_));
    (void)arg.release();  // now owned by the callback
    return request;
  }

  explicit operator bool() const noexcept { return handle_ != AIACC_NULL; }
  aiacc_request_t handle() const noexcept { return handle_; }

  // Waits for the operation, and throws if it failed; afterwards the request is empty.
  void wait() {
    if (handle_ != AIACC_NULL) (void)ended(aiacc_wait(handle_));
  }
  // As wait() if the operation ends within the time-out; otherwise returns false, and the request stays.
  bool wait_for(std::chrono::milliseconds timeout) {
    return handle_ == AIACC_NULL || ended(aiacc_wait_for(handle_, timeout.count()));
  }
  bool done() { return handle_ == AIACC_NULL || ended(aiacc_test(handle_)); }

  // Frees the request without waiting: the operation continues, and its buffers belong to the library until it has
  // ended.
  void forget() {
    if (handle_ != AIACC_NULL) check(aiacc_request_free(std::exchange(handle_, AIACC_NULL)));
  }

  // Inspects the operation and keeps the request: AIACC_PENDING, or its final status and error message ("" without an
  // error).
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
  // Its number among the collectives (or messages) of its group; nullopt before it was begun.
  std::optional<std::uint64_t> sequence() const {
    std::uint64_t sequence = 0;
    const aiacc_status_t status = aiacc_request_sequence(handle_, &sequence);
    if (status == AIACC_PENDING) return std::nullopt;
    check(status);
    return sequence;
  }

  // Calls `next(error)` once when the operation ends, with a null std::exception_ptr on success: on the library's
  // completion thread, or immediately if the operation has ended. The request is empty afterwards. An exception from
  // `next` ends the process.
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

  // A future for the operation's end. The request is empty afterwards; only the future's owner can wait for the
  // buffers.
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

  // co_await std::move(request), or co_await of a call: throws the operation's error. The awaiting coroutine must not
  // be destroyed before the end.
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
  // The handles of completed requests are AIACC_NULL.
  static void keep(std::span<Request> requests, const std::vector<aiacc_request_t> &handles) {
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].handle_ = handles[i];
  }
  bool ended(aiacc_status_t status) {
    if (status == AIACC_PENDING) return false;
    // Refused on the completion thread: the operation still runs.
    if (status != AIACC_ERR_INVALID_STATE) handle_ = AIACC_NULL;
    check(status);
    return true;
  }
  void finish() noexcept {
    if (handle_ == AIACC_NULL) return;
    // Waiting is refused on the completion thread.
    if (aiacc_wait(handle_) == AIACC_ERR_INVALID_STATE) aiacc_request_free(handle_);
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
    // This object may be destroyed once the other thread has `next`, so the shared state is kept here.
    const std::shared_ptr<detail::Ending> ending = request_.ending_;
    return ending->then(next);
  }
  void await_resume() { (void)request_.done(); }

 private:
  Request request_;
};

inline Request::Awaiter Request::operator co_await() && { return Awaiter(std::move(*this)); }

inline constexpr std::chrono::milliseconds forever{AIACC_FOREVER};

// Waits for all, empties them, and throws the first error in their order. Returns false after `timeout`; then those
// that completed without an error are empty.
inline bool wait_all(std::span<Request> requests, std::chrono::milliseconds timeout = forever) {
  std::vector<aiacc_request_t> handles = Request::handles_of(requests);
  const aiacc_status_t status = aiacc_wait_all(handles.size(), handles.data(), timeout.count());
  Request::keep(requests, handles);
  if (status == AIACC_PENDING) return false;
  check(status);
  return true;
}

// Waits until one of the non-empty requests has ended and returns its index, or nullopt after `timeout`. The request is
// empty afterwards; throws if it failed. If all requests are empty, the index is requests.size().
inline std::optional<std::size_t> wait_any(std::span<Request> requests, std::chrono::milliseconds timeout = forever) {
  std::vector<aiacc_request_t> handles = Request::handles_of(requests);
  std::size_t index = requests.size();
  const aiacc_status_t status = aiacc_wait_any(handles.size(), handles.data(), timeout.count(), &index);
  if (status == AIACC_PENDING) return std::nullopt;
  Request::keep(requests, handles);
  check(status);
  return index;
}

}  // namespace v0
}  // namespace aiacc

#endif
