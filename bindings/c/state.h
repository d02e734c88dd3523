// The state of the process behind the C ABI: handle tables and the default context. The only globals of the library.
// They are constant-initialised and never destroyed, so exit() without aiacc_finalize is safe while threads are still
// inside a call.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "include/aiacc/aiacc.h"
#include "runtime/ended_handles.h"
#include "runtime/group/requested_work.h"
#include "runtime/handles.h"
#include "runtime/shared_memory.h"

namespace aiacc {
class Group;
class RealContext;
}  // namespace aiacc

namespace aiacc::abi {

// The object behind a context handle; the default context has a fixed handle.
struct ContextEntry {
  std::shared_ptr<RealContext> context;
  aiacc_group_t world = AIACC_NULL;
};

struct GroupEntry {
  GroupEntry(std::shared_ptr<RealContext> of, Group& named) : context(std::move(of)), group(named) {}
  ~GroupEntry();  // no handle of the group is left
  GroupEntry(const GroupEntry&) = delete;
  GroupEntry& operator=(const GroupEntry&) = delete;

  std::shared_ptr<RealContext> context;  // keeps the group alive
  Group& group;
};

struct MeshEntry;      // bindings/c/mesh.h
struct GradientEntry;  // bindings/c/gradient.h
struct SyncbnEntry;    // bindings/c/syncbn.h
struct KvEntry;        // bindings/c/kv.h

struct RequestEntry {
  explicit RequestEntry(const std::shared_ptr<RealContext>& of) noexcept;
  // The same for who holds the lane.
  RequestEntry(RealContext& of, std::unique_ptr<RequestedWork> its) noexcept;

  bool done() const noexcept { return operation == nullptr || operation->done(); }
  std::exception_ptr error() const noexcept { return operation == nullptr ? nullptr : operation->error(); }
  bool failed() const noexcept { return operation != nullptr && operation->error() != nullptr; }
  std::uint64_t sequence() const noexcept { return operation == nullptr ? 0 : operation->sequence(); }
  // Called before a caller waits for it or asks whether it is done.
  void expect() noexcept {
    if (operation != nullptr) operation->expect();
  }

  ~RequestEntry() {  // an operation that is not done goes on without it
    if (context != nullptr) leave_context();
  }
  RequestEntry(const RequestEntry&) = delete;
  RequestEntry& operator=(const RequestEntry&) = delete;
  // The operation ends as with the entry, and it is the caller's to count this request no longer (RealContext::end_requests).
  RealContext* take_context() noexcept;
  void leave_context() noexcept;

  RealContext* context = nullptr;  // counts this request: the operation refers to it
  std::unique_ptr<RequestedWork> operation;
  std::unique_ptr<const std::string> sentence;  // guarded by State::sentences_mutex
};
static_assert(sizeof(void*) != 8 || sizeof(std::optional<RequestEntry>) <= 48,
              "a slot of their table is one cache line");
using RequestTable = HandleTable<RequestEntry, std::optional<RequestEntry>>;

// Host memory needs no data for it; a device will store its registration of the pages here.
struct RegistrationEntry {
  std::shared_ptr<RealContext> context;
};

struct MemoryEntry {
  std::shared_ptr<RealContext> context;
  SharedMemory memory;
};

// The groups, meshes, engines and registrations that the user created in each context.
class MadeHandles {
 public:
  void add(const RealContext& context, std::uint64_t handle);
  void drop(const RealContext& context, std::uint64_t handle) noexcept;
  std::set<std::uint64_t> take_all(const RealContext& context);
  std::set<std::uint64_t> all(const RealContext& context);

 private:
  std::mutex mutex_;
  std::map<const RealContext*, std::set<std::uint64_t>> of_;
};

class State {
 public:
  HandleTable<ContextEntry> contexts{HandleKind::kContext};
  HandleTable<GroupEntry> groups{HandleKind::kGroup};
  RequestTable requests{HandleKind::kRequest};
  EndedHandles ended_requests;  // of calls that ended well while they were submitted
  std::mutex sentences_mutex;
  HandleTable<MeshEntry> meshes{HandleKind::kMesh};
  HandleTable<RegistrationEntry> registrations{HandleKind::kRegistration};
  HandleTable<GradientEntry> gradients{HandleKind::kGradient};
  HandleTable<SyncbnEntry> syncbns{HandleKind::kSyncbn};
  HandleTable<KvEntry> stores{HandleKind::kKv};

  // Handles that end with their context at the latest.
  MadeHandles made;

  std::mutex life_mutex;  // guards `changing`
  bool changing = false;  // a thread is inside aiacc_init or aiacc_finalize

  std::mutex memory_mutex;
  std::unordered_map<void*, MemoryEntry> memory;

  enum class Life : int { kFresh, kAlive, kFinalized };
  std::atomic<Life> life{Life::kFresh};
  // Number of ranks in this process: contexts that were initialised and not finalized.
  std::atomic<int> ranks{0};
  std::atomic<bool> exiting{false};  // exit() was called: no callback begins any more
  std::atomic<bool> forked{false};   // this process is the child of one that was a rank

  // Makes forked children set `forked`: a child of a process with ranks is not a rank.
  void watch_forks();
};

extern std::atomic<State*> made_state;
State& make_state() noexcept;
inline State& state() noexcept {
  State* const made = made_state.load(std::memory_order_acquire);
  return made != nullptr ? *made : make_state();
}

// The free slots of `requests` that this thread has taken ahead.
extern constinit thread_local RequestTable::Stock request_stock;
void fill_request_stock();
// What it has of `ended_requests`.
extern constinit thread_local EndedHandles::Block ended_block;
// They are given back when the thread ends.
void return_stock_at_the_end();
// Whether a call that ends while it is submitted can have a request without a slot.
bool prepare_ended_block();
inline bool can_name_ended() { return EndedHandles::prepared(ended_block) || prepare_ended_block(); }
inline aiacc_request_t name_ended(std::uint64_t sequence) noexcept {
  return state().ended_requests.name(ended_block, sequence);
}
// A slot for a request.
inline RequestTable::Place request_place() {
  if (request_stock.empty()) fill_request_stock();
  return RequestTable::Place(state().requests, request_stock);
}

// Throws kInvalidState in a forked child.
void refuse_forked();

// Creates a handle for a group of a context. Frees the group if no handle is left.
aiacc_group_t name_group(const std::shared_ptr<RealContext>& context, Group& group);
// Frees the group and its handle. False if another thread has done so.
bool free_group(HandleTable<GroupEntry>::Pin pin, aiacc_group_t group);

// The error for an unknown handle.
Error unknown_group(aiacc_group_t group);
Error unknown_context(aiacc_context_t context);

}  // namespace aiacc::abi
