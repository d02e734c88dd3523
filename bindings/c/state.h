// The state of the process behind the C ABI: handle tables and the default context. The only globals of the library. Made
// at load time without running code and never destroyed, so that exit() without aiacc_finalize, with threads still inside,
// finds everything in place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "include/aiacc/aiacc.h"
#include "runtime/handles.h"
#include "runtime/real_context.h"

namespace aiacc::abi {

// What a context handle names; the default context has the fixed handle.
struct ContextEntry {
  std::shared_ptr<RealContext> context;
  aiacc_group_t world = AIACC_NULL;
};

struct GroupEntry {
  GroupEntry(std::shared_ptr<RealContext> of, Group& named) : context(std::move(of)), group(named) {}
  ~GroupEntry() { group.let_go(); }  // nobody can call on it any more
  GroupEntry(const GroupEntry&) = delete;
  GroupEntry& operator=(const GroupEntry&) = delete;

  std::shared_ptr<RealContext> context;  // keeps the group alive
  Group& group;
};

struct MeshEntry;  // bindings/c/mesh.h

struct RequestEntry {
  explicit RequestEntry(std::shared_ptr<RealContext> of) : context(std::move(of)) {}
  ~RequestEntry() {
    if (operation != nullptr && !operation->done()) context->adopt(std::move(operation));
  }
  RequestEntry(const RequestEntry&) = delete;
  RequestEntry& operator=(const RequestEntry&) = delete;

  std::shared_ptr<RealContext> context;  // destroyed last: the operation refers to it
  std::unique_ptr<GroupOperation> operation;
  std::mutex mutex;  // guards `sentence`
  std::optional<std::string> sentence;
};

// The kernel keeps nothing for it; a device will keep what it made of the pages here.
struct RegistrationEntry {
  std::shared_ptr<RealContext> context;
};

struct MemoryEntry {
  std::shared_ptr<RealContext> context;
  SharedMemory memory;
};

// The groups, meshes and registrations that the user made of each context.
class MadeHandles {
 public:
  void add(const RealContext& context, std::uint64_t handle);
  void drop(const RealContext& context, std::uint64_t handle) noexcept;
  std::set<std::uint64_t> take_all(const RealContext& context);

 private:
  std::mutex mutex_;
  std::map<const RealContext*, std::set<std::uint64_t>> of_;
};

class State {
 public:
  HandleTable<ContextEntry> contexts{HandleKind::kContext};
  HandleTable<GroupEntry> groups{HandleKind::kGroup};
  HandleTable<RequestEntry> requests{HandleKind::kRequest};
  HandleTable<MeshEntry> meshes{HandleKind::kMesh};
  HandleTable<RegistrationEntry> registrations{HandleKind::kRegistration};

  // Handles that were made of a context and go with it, at the latest.
  MadeHandles made;

  std::mutex life_mutex;  // guards `changing`
  bool changing = false;  // a thread is inside aiacc_init or aiacc_finalize

  std::mutex memory_mutex;
  std::unordered_map<void*, MemoryEntry> memory;

  enum class Life : int { kFresh, kAlive, kFinalized };
  std::atomic<Life> life{Life::kFresh};
  std::atomic<int> ranks{0};         // that this process is: contexts that have come up and not left
  std::atomic<bool> exiting{false};  // exit() was called: no callback begins any more
  std::atomic<bool> forked{false};   // this process is the child of one that was a rank

  // From now on a forked child of a process that is a rank knows that itself is none.
  void watch_forks();
};

State& state() noexcept;

// Throws kInvalidState in a forked child.
void refuse_forked();

// Makes a handle for a group that was made of a context. Takes the group back if there is none left.
aiacc_group_t name_group(const std::shared_ptr<RealContext>& context, Group& group);
// Frees it. False if another thread was quicker.
bool free_group(HandleTable<GroupEntry>::Pin pin, aiacc_group_t group);

// What to say of a handle that no table knows.
Error unknown_group(aiacc_group_t group);
Error unknown_context(aiacc_context_t context);

}  // namespace aiacc::abi
