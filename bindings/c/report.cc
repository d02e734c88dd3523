// aiacc_info: the report about library and host, written into the caller's buffer.
#include <cstring>

#include "bindings/c/guard.h"
#include "bindings/c/state.h"
#include "runtime/context.h"
#include "runtime/info/report.h"
#include "runtime/real_context.h"

using namespace aiacc;

namespace {

// The operations of the default context; none in a forked child.
Json recent_operations() {
  auto pin = abi::state().contexts.find(decltype(abi::State::contexts)::kFixed);
  return pin ? pin->context->recent_operations() : Json(Json::Array{});
}

// Of the default context; "" if there is none, or one of a single host.
std::string transport() {
  auto pin = abi::state().contexts.find(decltype(abi::State::contexts)::kFixed);
  return pin ? pin->context->transport() : std::string();
}

}  // namespace

extern "C" aiacc_status_t aiacc_info(char* json, size_t capacity, size_t* needed) {
  return abi::guarded([&] {
    if (json == nullptr && capacity > 0) {
      throw Error(Code::kInvalidArgument, "json is NULL and capacity is not 0: pass where the text shall go");
    }
    const std::string text = info::report(aiacc_version(), transport(), recent_operations()).text();
    if (needed != nullptr) *needed = text.size() + 1;
    if (capacity == 0) return;
    const std::size_t copied = std::min(text.size(), capacity - 1);
    std::memcpy(json, text.data(), copied);
    json[copied] = 0;
  });
}
