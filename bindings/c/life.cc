// Initialising and finalizing: the default context and contexts of threads as ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "bindings/c/callbacks.h"
#include "bindings/c/gradient.h"
#include "bindings/c/guard.h"
#include "bindings/c/kv.h"
#include "bindings/c/mesh.h"
#include "bindings/c/state.h"
#include "bindings/c/syncbn.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/make_context.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

using Life = State::Life;

struct Start {
  aiacc::Given given;
  EnvironmentSnapshot environment = EnvironmentSnapshot::now();
  RuntimeConfig config = environment.runtime_config();
};

// The caller's attributes in any size that it was compiled with: members that the caller does not know are zero, and
// members that this library does not know must be zero.
aiacc_init_attr_t complete(const aiacc_init_attr_t* attr) {
  constexpr std::size_t kFirstVersion = offsetof(aiacc_init_attr_t, store);
  aiacc_init_attr_t whole{};
  std::size_t size = 0;
  std::memcpy(&size, attr, sizeof size);
  if (size < kFirstVersion) {
    throw Error(Code::kInvalidArgument,
                fmt::format("size in aiacc_init_attr_t is {}: set it to sizeof(aiacc_init_attr_t), "
                            "which is {} here",
                            size, sizeof whole));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(attr);
  if (size > sizeof whole &&
      std::any_of(bytes + sizeof whole, bytes + size, [](unsigned char one) { return one != 0; })) {
    throw Error(Code::kUnsupported,
                fmt::format("aiacc_init_attr_t of {} bytes asks for something that aiacc {} does not know: it knows {} "
                            "bytes",
                            size, aiacc_version(), sizeof whole));
  }
  std::memcpy(&whole, attr, std::min(size, sizeof whole));
  return whole;
}

aiacc::Store checked(const aiacc_store_t& store) {
  if (store.size < sizeof store) {
    throw Error(Code::kInvalidArgument, fmt::format("size in aiacc_store_t is {}: set it to sizeof(aiacc_store_t), "
                                                    "which is {} here",
                                                    store.size, sizeof store));
  }
  if (store.put == nullptr || store.get == nullptr || store.wait == nullptr) {
    throw Error(Code::kInvalidArgument, fmt::format("{} in aiacc_store_t is NULL: all three functions are needed",
                                                    store.put == nullptr   ? "put"
                                                    : store.get == nullptr ? "get"
                                                                           : "wait"));
  }
  aiacc::Store made;
  made.put = [store](const std::string& key, const std::string& value) {
    return store.put(store.arg, key.c_str(), value.data(), value.size());
  };
  made.get = [store](const std::string& key, std::string& value, std::int64_t timeout_ms) {
    constexpr std::size_t kMost = 4096;  // the longest value that rank 0 stores
    value.resize(kMost);
    std::size_t bytes = 0;
    const int status = store.get(store.arg, key.c_str(), value.data(), value.size(), &bytes, timeout_ms);
    if (status == 0 && bytes > kMost) {
      throw Error(Code::kProtocol, fmt::format("the store has {} bytes at the key '{}', and at most {} can be aiacc's",
                                               bytes, key, kMost));
    }
    value.resize(std::min(bytes, kMost));
    return status;
  };
  made.wait = [store](const std::string& key, std::int64_t timeout_ms) {
    const char* keys[] = {key.c_str()};
    return store.wait(store.arg, keys, 1, timeout_ms);
  };
  return made;
}

Start read_init_attr(const aiacc_init_attr_t* given) {
  Start start;
  if (given == nullptr) return start;
  const aiacc_init_attr_t attr = complete(given);
  if (attr.timeout_ms < 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("timeout_ms in aiacc_init_attr_t is {}: give milliseconds, or 0 for "
                            "AIACC_INIT_TIMEOUT",
                            attr.timeout_ms));
  }
  if (attr.timeout_ms > 0) start.config.init_timeout = std::chrono::milliseconds(attr.timeout_ms);
  if (attr.world_size_set != 0) start.given.identity = GivenIdentity{attr.rank, attr.world_size};
  if (attr.job != nullptr) start.given.job = attr.job;
  if (attr.store != nullptr) start.given.store = checked(*attr.store);
  return start;
}

// Runs outstanding callbacks while the handles are still valid, because these may begin operations. An error here
// occurs again in leave(), which reports it.
void drain(RealContext& context) noexcept {
  try {
    context.drain();
  } catch (...) {
  }
}

// Finalizes the context and decrements the process's number of ranks, also after an error.
void leave(RealContext& context) {
  struct Count {
    ~Count() { --state().ranks; }
  } count;
  for (const std::uint64_t handle : state().made.take_all(context)) {
    if (is_kind(handle, HandleKind::kGroup)) state().groups.find(handle).remove();
    if (is_kind(handle, HandleKind::kMesh)) state().meshes.find(handle).remove();
    if (is_kind(handle, HandleKind::kRegistration)) state().registrations.find(handle).remove();
  }
  context.leave();
}

// Creates the handles of the context and of its world.
aiacc_context_t insert(std::shared_ptr<RealContext> context) {
  State& self = state();
  auto group = std::make_unique<GroupEntry>(context, context->world());
  const aiacc_group_t world = self.groups.insert(std::move(group));
  try {
    return self.contexts.insert(std::make_unique<ContextEntry>(ContextEntry{std::move(context), world}));
  } catch (...) {
    self.groups.find(world).remove();
    throw;
  }
}

// Serialises aiacc_init and aiacc_finalize in the process without holding a lock while the ranks wait for each other.
class Turn {
 public:
  Turn() {
    std::lock_guard lock(state().life_mutex);
    if (state().changing) throw Error(Code::kInvalidState, "another thread is inside aiacc_init or aiacc_finalize");
    state().changing = true;
  }
  ~Turn() {
    std::lock_guard lock(state().life_mutex);
    state().changing = false;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
};

}  // namespace

extern "C" {

aiacc_status_t aiacc_init(const aiacc_init_attr_t* attr) {
  return guarded([&] {
    refuse_forked();
    refuse_to_block("aiacc_init");
    const Turn turn;
    State& self = state();
    if (self.life.load() == Life::kAlive) {
      throw Error(Code::kInvalidState,
                  "aiacc_init was called already: once between two calls of aiacc_finalize is enough");
    }
    const Start start = read_init_attr(attr);
    self.watch_forks();
    std::shared_ptr<RealContext> context = join_job(start.given, start.environment, start.config, aiacc_version());
    auto group = std::make_unique<GroupEntry>(context, context->world());
    auto entry = std::make_unique<ContextEntry>(ContextEntry{std::move(context), AIACC_WORLD});
    if (!self.groups.insert_fixed(group) || !self.contexts.insert_fixed(entry)) {
      throw Error(Code::kInvalidState,
                  "calls on the previous world are still running: wait for them before aiacc_init");
    }
    ++self.ranks;
    self.life.store(Life::kAlive);
  });
}

aiacc_status_t aiacc_finalize(void) {
  return guarded([&] {
    refuse_forked();
    refuse_to_block("aiacc_finalize");
    const Turn turn;
    State& self = state();
    auto pin = self.contexts.find(decltype(self.contexts)::kFixed);
    if (!pin) {
      throw Error(Code::kInvalidState, self.life.load() == Life::kFinalized
                                           ? "aiacc_finalize was called already"
                                           : "aiacc_finalize was called before aiacc_init");
    }
    free_stores(*pin->context);
    free_engines(*pin->context);
    free_syncbns(*pin->context);
    drain(*pin->context);
    self.life.store(Life::kFinalized);
    self.groups.find(AIACC_WORLD).remove();
    pin.remove();
    leave(*pin->context);
  });
}

aiacc_status_t aiacc_hosts_updated(int* what) {
  return guarded([&] {
    refuse_forked();
    refuse_to_block("aiacc_hosts_updated");
    if (what == nullptr) throw Error(Code::kInvalidArgument, "what is NULL: pass where the answer shall go");
    auto pin = state().contexts.find(decltype(state().contexts)::kFixed);
    if (!pin) throw Error(Code::kInvalidState, "aiacc_hosts_updated was called before aiacc_init");
    *what = pin->context->hosts_updated();
  });
}

int aiacc_initialized(void) {
  return state().life.load() == Life::kAlive && !state().forked.load(std::memory_order_relaxed) ? 1 : 0;
}

aiacc_status_t aiacc_context_create_local(size_t n, aiacc_context_t* contexts) {
  return guarded([&] {
    refuse_forked();
    if (contexts == nullptr) throw Error(Code::kInvalidArgument, "contexts is NULL: pass an array of n handles");
    constexpr std::size_t kMost = 1024;
    if (n == 0 || n > kMost) {
      throw Error(Code::kInvalidArgument, fmt::format("n is {}: a local world has 1 to {} ranks", n, kMost));
    }
    state().watch_forks();
    const RuntimeConfig config = EnvironmentSnapshot::now().runtime_config();
    std::vector<std::shared_ptr<RealContext>> made = make_local_world(static_cast<int>(n), config);
    for (std::size_t rank = 0; rank < n; ++rank) {
      contexts[rank] = insert(std::move(made[rank]));
      ++state().ranks;
    }
  });
}

aiacc_status_t aiacc_context_destroy(aiacc_context_t context) {
  return guarded([&] {
    refuse_forked();
    refuse_to_block("aiacc_context_destroy");
    State& self = state();
    auto pin = self.contexts.find(context);
    if (!pin) throw unknown_context(context);
    if (context == decltype(self.contexts)::kFixed) {
      throw Error(Code::kInvalidArgument, "the default context ends with aiacc_finalize");
    }
    const aiacc_group_t world = pin->world;
    free_stores(*pin->context);
    free_engines(*pin->context);
    free_syncbns(*pin->context);
    drain(*pin->context);
    if (!pin.remove()) throw unknown_context(context);
    self.groups.find(world).remove();
    leave(*pin->context);
  });
}

aiacc_status_t aiacc_context_world(aiacc_context_t context, aiacc_group_t* world) {
  return guarded([&] {
    if (world == nullptr) throw Error(Code::kInvalidArgument, "world is NULL: pass where the handle shall go");
    if (context == AIACC_NULL) context = decltype(state().contexts)::kFixed;
    auto pin = state().contexts.find(context);
    if (!pin) throw unknown_context(context);
    *world = pin->world;
  });
}

}  // extern "C"
