// One rank: initialising, finalizing and its world. Part of aiacc.hpp.
#ifndef AIACC_CONTEXT_HPP
#define AIACC_CONTEXT_HPP

#include <aiacc/aiacc.h>
#include <aiacc/error.hpp>
#include <aiacc/group.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aiacc {
inline namespace v0 {

// Options of a context; see aiacc_init_attr_t.
struct InitOptions {
  std::optional<int> rank;  // with world_size, in place of the environment
  int world_size = 0;
  std::chrono::milliseconds timeout{0};
  const aiacc_store_t *store = nullptr;  // for the rendezvous
  const char *job = nullptr;             // distinguishes jobs that share an address or a store
};

inline bool initialized() noexcept { return aiacc_initialized() != 0; }
inline std::string version() { return aiacc_version(); }  // of the running library
// In an elastic job: 0, or the sum of AIACC_HOSTS_REMOVED and AIACC_HOSTS_ADDED, as aiacc_hosts_updated says. Local.
inline int hosts_updated() {
  int what = 0;
  check(aiacc_hosts_updated(&what));
  return what;
}

// The report of aiacc_info about this host, as JSON.
inline std::string info() {
  std::string json;
  std::size_t needed = 0;
  check(aiacc_info(nullptr, 0, &needed));
  while (needed > json.size() + 1) {  // the length differs from call to call
    json.resize(needed + 64);
    check(aiacc_info(json.data(), json.size() + 1, &needed));
  }
  json.resize(std::strlen(json.c_str()));
  return json;
}

// One rank: the default context, from aiacc_init to aiacc_finalize, or one of several in a process. If an exception
// destroys the default context, it is not finalized: the process ends with an error, and the job with it. Finalizing
// would wait for ranks that wait for this one.
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

  // Leaves in order; unlike the destructor it throws if that fails. Collective.
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

}  // namespace v0
}  // namespace aiacc

#endif
