// The timeline, and the numbers about a rank.
#include "include/aiacc/observe.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "bindings/c/callbacks.h"
#include "bindings/c/guard.h"
#include "bindings/c/state.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

std::shared_ptr<RealContext> context_of(aiacc_context_t context) {
  if (context == AIACC_NULL) context = decltype(State::contexts)::kFixed;
  auto pin = state().contexts.find(context);
  if (!pin) throw unknown_context(context);
  return pin->context;
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_timeline_start(aiacc_context_t context, const char* file) {
  return guarded([&] {
    const std::shared_ptr<RealContext> of = context_of(context);
    if (of->world().rank() == 0 && (file == nullptr || *file == '\0'))
      throw Error(Code::kInvalidArgument, "file is empty: rank 0 writes the timeline, to a file");
    of->start_timeline(file == nullptr ? "" : file);
  });
}

aiacc_status_t aiacc_timeline_stop(aiacc_context_t context) {
  return guarded([&] {
    refuse_to_block("aiacc_timeline_stop");
    context_of(context)->stop_timeline();
  });
}

aiacc_status_t aiacc_metrics(aiacc_context_t context, char* json, size_t capacity, size_t* needed) {
  return guarded([&] {
    if (json == nullptr && capacity > 0) {
      throw Error(Code::kInvalidArgument, "json is NULL and capacity is not 0: pass where the text shall go");
    }
    const std::string text = context_of(context)->metrics().text();
    if (needed != nullptr) *needed = text.size() + 1;
    if (capacity == 0) return;
    const std::size_t copied = std::min(text.size(), capacity - 1);
    std::memcpy(json, text.data(), copied);
    json[copied] = 0;
  });
}

}  // extern "C"
