// aiacc for C++20: aiacc.h with owners, spans and exceptions. Header only; depends on aiacc.h alone.
//
// - What fails throws aiacc::Error, with the status and the sentence of the library.
// - Buffers are contiguous ranges (vector, array, span, Memory) of an element type; their length is the count.
// - A Group blocks; group.async() has the same functions and returns a Request: wait(), wait_for(), done().
//   Buffers of a Request belong to the library until it has completed.
#ifndef AIACC_AIACC_HPP
#define AIACC_AIACC_HPP

#include <aiacc/aiacc.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
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
  int rank() const noexcept { return rank_; }  // that the sentence is about, -1 if none

 private:
  aiacc_status_t status_;
  int rank_;
};

// Throws the calling thread's last error unless `status` is AIACC_OK.
inline void check(aiacc_status_t status) {
  if (status != AIACC_OK) throw Error(status, aiacc_last_error(), aiacc_last_error_rank());
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

inline constexpr aiacc_op_t sum = AIACC_SUM;
inline constexpr aiacc_op_t avg = AIACC_AVG;
inline constexpr aiacc_op_t prod = AIACC_PROD;
inline constexpr aiacc_op_t min = AIACC_MIN;
inline constexpr aiacc_op_t max = AIACC_MAX;
inline constexpr aiacc_op_t band = AIACC_BAND;
inline constexpr aiacc_op_t bor = AIACC_BOR;
inline constexpr aiacc_op_t bxor = AIACC_BXOR;

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

}  // namespace detail

// --- requests --------------------------------------------------------------------------------------------------------

// An operation that was started. Whoever destroys one that runs waits for it: its buffers are still in use.
class [[nodiscard]] Request {
 public:
  Request() = default;
  Request(Request &&other) noexcept : handle_(std::exchange(other.handle_, AIACC_NULL)) {}
  Request &operator=(Request &&other) noexcept {
    if (this != &other) {
      finish();
      handle_ = std::exchange(other.handle_, AIACC_NULL);
    }
    return *this;
  }
  ~Request() { finish(); }

  // Started by `submit(attr, request)`, a call of aiacc.h.
  template <class Submit>
  static Request start(const Options &options, Submit &&submit) {
    Request request;
    const aiacc_attr_t attr = detail::attr_of(options);
    check(submit(&attr, &request.handle_));
    return request;
  }

  explicit operator bool() const noexcept { return handle_ != AIACC_NULL; }
  aiacc_request_t handle() const noexcept { return handle_; }

  // Returns or throws once, as the operation ended; afterwards the request is empty.
  void wait() {
    if (handle_ != AIACC_NULL) check(aiacc_wait(std::exchange(handle_, AIACC_NULL)));
  }
  // As wait() if the operation has ended, or ends in time; else false, and the request stays.
  bool wait_for(std::chrono::milliseconds timeout) { return ended(aiacc_wait_for(handle_, timeout.count())); }
  bool done() { return ended(aiacc_test(handle_)); }

 private:
  bool ended(aiacc_status_t status) {
    if (handle_ == AIACC_NULL) return true;
    if (status == AIACC_PENDING) return false;
    handle_ = AIACC_NULL;
    check(status);
    return true;
  }
  void finish() noexcept {
    if (handle_ == AIACC_NULL) return;
    (void)aiacc_wait(std::exchange(handle_, AIACC_NULL));
  }

  aiacc_request_t handle_ = AIACC_NULL;
};

// Waits for all; then throws the first error in their order.
inline void wait_all(std::span<Request> requests) {
  std::exception_ptr first;
  for (Request &request : requests) {
    try {
      request.wait();
    } catch (const Error &) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

// --- calls on a group ------------------------------------------------------------------------------------------------

// Every function of aiacc.h that moves data, once: `Self` blocks (Group) or starts (Async).
template <class Self>
class Calls {
 public:
  template <Elements S, Buffer R>
  auto allreduce(const S &send, R &&recv, aiacc_op_t op, const Options &options = {}) const {
    same_length(send, recv);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allreduce(data(send), data(recv), count(send), type(send), op, group, attr, request);
    });
  }
  template <Buffer R>
  auto allreduce(R &&in_place, aiacc_op_t op, const Options &options = {}) const {
    return allreduce(in_place, in_place, op, options);
  }

  // `recv` may be empty on other ranks than the root.
  template <Elements S, Buffer R>
  auto reduce(const S &send, R &&recv, aiacc_op_t op, int root, const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_reduce(data(send), data(recv), count(send), type(send), op, root, group, attr, request);
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
  template <Elements S, Buffer R>
  auto reduce_scatter(const S &send, R &&recv, aiacc_op_t op, const Options &options = {}) const {
    holds_blocks(send, recv);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_reduce_scatter(data(send), data(recv), count(recv), type(recv), op, group, attr, request);
    });
  }

  // As allgather, with counts[r] elements of rank r.
  template <Elements S, Buffer R>
  auto allgatherv(const S &send, R &&recv, std::span<const std::size_t> counts, const Options &options = {}) const {
    same_type<S, R>();
    holds(recv, counts);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allgatherv(data(send), count(send), data(recv), counts.data(), nullptr, type(send), group, attr,
                              request);
    });
  }

  // As reduce_scatter, with counts[r] elements for rank r.
  template <Elements S, Buffer R>
  auto reduce_scatterv(const S &send, R &&recv, std::span<const std::size_t> counts, aiacc_op_t op,
                       const Options &options = {}) const {
    same_type<S, R>();
    holds(send, counts);
    detail::require(count(recv) >= counts[static_cast<std::size_t>(self().rank())],
                    "recv is shorter than this rank's block");
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_reduce_scatterv(data(send), data(recv), counts.data(), type(send), op, group, attr, request);
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

  // send_counts[r] elements go to rank r, recv_counts[r] come from there; blocks stand one after another.
  template <Elements S, Buffer R>
  auto alltoallv(const S &send, std::span<const std::size_t> send_counts, R &&recv,
                 std::span<const std::size_t> recv_counts, const Options &options = {}) const {
    same_type<S, R>();
    holds(send, send_counts);
    holds(recv, recv_counts);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_alltoallv(data(send), send_counts.data(), nullptr, data(recv), recv_counts.data(), nullptr,
                             type(send), group, attr, request);
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
  template <Element T>
  auto allreduce_grouped(std::span<const std::span<T>> buffers, aiacc_op_t op, const Options &options = {}) const {
    std::vector<void *> places;
    std::vector<std::size_t> counts;
    for (const std::span<T> &buffer : buffers) {
      places.push_back(buffer.data());
      counts.push_back(buffer.size());
    }
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allreduce_grouped(places.size(), const_cast<const void *const *>(places.data()), places.data(),
                                     counts.data(), dtype_of<T>, op, group, attr, request);
    });
  }

 private:
  std::size_t block_of(const auto &blocks) const {
    const auto ranks = static_cast<std::size_t>(self().size());
    detail::require(count(blocks) % ranks == 0, "the buffer is no block of equal length for each rank of the group");
    return count(blocks) / ranks;
  }
  void holds(const auto &blocks, std::span<const std::size_t> counts) const {
    std::size_t all = 0;
    for (const std::size_t one : counts) all += one;
    detail::require(counts.size() == static_cast<std::size_t>(self().size()),
                    "counts has not one number for each rank");
    detail::require(count(blocks) >= all, "the buffer is shorter than its counts together");
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
  template <class A, class B>
  static void same_type() {
    static_assert(dtype_of<std::ranges::range_value_t<A>> == dtype_of<std::ranges::range_value_t<B>>,
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

// Ranks that work together: a name, which is copied freely.
class Group : public Calls<Group> {
 public:
  Group() = default;
  explicit Group(aiacc_group_t handle) noexcept : handle_(handle) {}

  aiacc_group_t handle() const noexcept { return handle_; }
  Async async() const noexcept { return Async(handle_); }

  int rank() const { return detail::number(aiacc_rank, handle_); }
  int size() const { return detail::number(aiacc_size, handle_); }
  int local_rank() const { return detail::number(aiacc_local_rank, handle_); }
  int local_size() const { return detail::number(aiacc_local_size, handle_); }
  int host_index() const { return detail::number(aiacc_host_index, handle_); }

  // The value of all ranks together.
  template <Element T>
  T combined(T value, aiacc_op_t op, const Options &options = {}) const {
    this->allreduce(std::span<T>(&value, 1), op, options);
    return value;
  }

 private:
  friend class Calls<Group>;
  template <class Submit>
  void submit(const Options &options, Submit &&submit) const {
    const aiacc_attr_t attr = detail::attr_of(options);
    check(submit(&attr, static_cast<aiacc_request_t *>(nullptr)));
  }
  aiacc_group_t handle_ = AIACC_NULL;
};

// --- life ------------------------------------------------------------------------------------------------------------

struct InitOptions {
  std::optional<int> rank;  // with world_size: nothing is looked up
  int world_size = 0;
  std::chrono::milliseconds timeout{0};
};

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
    if (handle_ == AIACC_NULL) return Group(AIACC_WORLD);
    aiacc_group_t world = AIACC_NULL;
    check(aiacc_context_world(handle_, &world));
    return Group(world);
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
template <Element T>
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

}  // namespace v0
}  // namespace aiacc

#endif
