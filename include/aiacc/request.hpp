// Operations that were started: waited for, continued, awaited. Part of aiacc.hpp.
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

}  // namespace v0
}  // namespace aiacc

#endif
