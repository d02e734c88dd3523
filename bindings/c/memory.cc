// Memory that is shared by the ranks of a host.
#include <fmt/format.h>

#include "bindings/c/guard.h"
#include "bindings/c/state.h"
#include "runtime/context.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

extern "C" {

aiacc_status_t aiacc_mem_alloc(aiacc_context_t context, size_t bytes, void** memory) {
  return guarded([&] {
    if (memory == nullptr) throw Error(Code::kInvalidArgument, "memory is NULL: pass where the pointer shall go");
    if (bytes == 0) throw Error(Code::kInvalidArgument, "bytes is 0: there is nothing to allocate");
    if (context == AIACC_NULL) context = decltype(state().contexts)::kFixed;
    auto pin = state().contexts.find(context);
    if (!pin) throw unknown_context(context);
    const SharedMemory made = pin->context->allocate(bytes);
    try {
      std::lock_guard lock(state().memory_mutex);
      state().memory.insert_or_assign(made.data, MemoryEntry{pin->context, made});
    } catch (...) {
      pin->context->free(made);
      throw;
    }
    *memory = made.data;
  });
}

aiacc_status_t aiacc_mem_free(void* memory) {
  return guarded([&] {
    refuse_forked();
    if (memory == nullptr) return;
    MemoryEntry entry;
    {
      std::lock_guard lock(state().memory_mutex);
      const auto found = state().memory.find(memory);
      if (found == state().memory.end()) {
        throw Error(Code::kInvalidArgument,
                    fmt::format("{} was not allocated by aiacc_mem_alloc, or was freed already", memory));
      }
      entry = std::move(found->second);
      state().memory.erase(found);
    }
    entry.context->free(entry.memory);
  });
}

}  // extern "C"
