// The state of the process behind the C ABI: handle tables and the default context. The only globals of the library. Made
// at load time without running code and never destroyed, so that exit() without aiacc_finalize, with threads still inside,
// finds everything in place.
#pragma once

#include <memory>
#include <mutex>
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
  std::shared_ptr<RealContext> context;  // keeps the group alive
  Group& group;
};

struct RequestEntry {
  std::shared_ptr<RealContext> context;  // destroyed last: the operation refers to it
  std::unique_ptr<GroupOperation> operation;
};

struct MemoryEntry {
  std::shared_ptr<RealContext> context;
  SharedMemory memory;
};

class State {
 public:
  HandleTable<ContextEntry> contexts{HandleKind::kContext};
  HandleTable<GroupEntry> groups{HandleKind::kGroup};
  HandleTable<RequestEntry> requests{HandleKind::kRequest};

  std::mutex life_mutex;  // guards `changing`
  bool changing = false;  // a thread is inside aiacc_init or aiacc_finalize

  std::mutex memory_mutex;
  std::unordered_map<void*, MemoryEntry> memory;

  enum class Life : int { kFresh, kAlive, kFinalized };
  std::atomic<Life> life{Life::kFresh};
  std::atomic<int> ranks{0};        // that this process is: contexts that have come up and not left
  std::atomic<bool> forked{false};  // this process is the child of one that was a rank

  // From now on a forked child of a process that is a rank knows that itself is none.
  void watch_forks();
};

State& state() noexcept;

// Throws kInvalidState in a forked child.
void refuse_forked();

// What to say of a handle that no table knows.
Error unknown_group(aiacc_group_t group);
Error unknown_context(aiacc_context_t context);

}  // namespace aiacc::abi
