// Rank, size and other properties of a group, by its handle.
#include <fmt/format.h>

#include "bindings/c/guard.h"
#include "bindings/c/state.h"
#include "runtime/group/group.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

template <class Get>
aiacc_status_t get(aiacc_group_t group, int* into, const char* argument, Get&& value) noexcept {
  return guarded([&] {
    if (into == nullptr)
      throw Error(Code::kInvalidArgument, fmt::format("{} is NULL: pass where the number shall go", argument));
    auto pin = state().groups.find(group);
    if (!pin) throw unknown_group(group);
    *into = value(pin->group);
  });
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_rank(aiacc_group_t group, int* rank) {
  return get(group, rank, "rank", [](const Group& of) { return of.rank(); });
}
aiacc_status_t aiacc_size(aiacc_group_t group, int* size) {
  return get(group, size, "size", [](const Group& of) { return of.size(); });
}
aiacc_status_t aiacc_local_rank(aiacc_group_t group, int* local_rank) {
  return get(group, local_rank, "local_rank", [](const Group& of) { return of.local_rank(); });
}
aiacc_status_t aiacc_local_size(aiacc_group_t group, int* local_size) {
  return get(group, local_size, "local_size", [](const Group& of) { return of.local_size(); });
}
aiacc_status_t aiacc_host_index(aiacc_group_t group, int* host_index) {
  return get(group, host_index, "host_index", [](const Group& of) { return of.host_index(); });
}

}  // extern "C"
