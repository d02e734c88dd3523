// Groups of ranks, with blocking and asynchronous calls. Part of aiacc.hpp.
#ifndef AIACC_GROUP_HPP
#define AIACC_GROUP_HPP

#include <aiacc/aiacc.h>
#include <aiacc/calls.hpp>
#include <aiacc/error.hpp>
#include <aiacc/operators.hpp>
#include <aiacc/options.hpp>
#include <aiacc/request.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace aiacc {
inline namespace v0 {

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

// Options of a group; see aiacc_group_attr_t.
struct GroupOptions {
  const char *name = nullptr;
  std::uint64_t key = 0;                               // equal on all members; distinguishes groups of equal members
  std::chrono::milliseconds timeout{0};                // of operations without one of their own
  std::int32_t traffic_class = AIACC_TRAFFIC_DEFAULT;  // likewise
};

// A group of ranks. The destructor frees a group made by create() or split(); a world or a group of a mesh is only
// referred to.
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

  // Reduces one value of each rank and returns the result.
  template <class T, Reducing<T> Op>
  T combined(T value, const Op &op, const Options &options = {}) const {
    this->allreduce(std::span<T>(&value, 1), op, options);
    return value;
  }

  // Makes a group of these ranks of this group; called by exactly these ranks.
  Group create(std::span<const int> ranks, const GroupOptions &options = {}) const {
    const aiacc_group_attr_t attr = attr_of(options);
    aiacc_group_t group = AIACC_NULL;
    check(aiacc_group_create(handle_, ranks.size(), ranks.data(), &attr, &group));
    return Group(group, true);
  }
  // Makes a group of the ranks of one color, ordered by key; nullopt for a rank without a color. Collective.
  std::optional<Group> split(std::optional<int> color, int key = 0, const GroupOptions &options = {}) const {
    const aiacc_group_attr_t attr = attr_of(options);
    aiacc_group_t group = AIACC_NULL;
    check(aiacc_group_split(handle_, color.value_or(AIACC_NO_COLOR), key, &attr, &group));
    if (!color) return std::nullopt;
    return Group(group, true);
  }
  void abort(const std::string &reason) const { check(aiacc_group_abort(handle_, reason.c_str())); }
  // The ranks in `to` of these ranks of this group; -1 for a rank that is not a member of `to`.
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
    attr.traffic_class = options.traffic_class;
    return attr;
  }
  void free() noexcept {
    if (owned_ && handle_ != AIACC_NULL) aiacc_group_free(handle_);
  }
  aiacc_group_t handle_ = AIACC_NULL;
  bool owned_ = false;
};

}  // namespace v0
}  // namespace aiacc

#endif
