// Requests: test and wait. The status of an operation goes to exactly one caller, and the request with it.
#include <fmt/format.h>

#include <limits>

#include "bindings/c/guard.h"
#include "bindings/c/state.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

using RequestPin = HandleTable<RequestEntry>::Pin;

Error unknown_request(aiacc_request_t request) {
  return Error(
      Code::kInvalidHandle,
      is_kind(request, HandleKind::kRequest)
          ? fmt::format("request {:#x} does not exist any more: a completed request is gone once aiacc_wait or "
                        "aiacc_test returned its status",
                        request)
          : fmt::format("{:#x} is not the handle of a request", request));
}

RequestPin pinned(aiacc_request_t request) {
  RequestPin pin = state().requests.find(request);
  if (!pin) {
    refuse_forked();
    throw unknown_request(request);
  }
  return pin;
}

// Of a completed operation: its status, for the one caller that takes it.
aiacc_status_t take(RequestPin& pin, aiacc_request_t request) {
  if (!pin.remove()) throw unknown_request(request);
  const std::exception_ptr& error = pin->operation->error();
  return error ? remember(error) : AIACC_OK;
}

aiacc_status_t wait_for(aiacc_request_t request, std::optional<Duration> timeout) noexcept {
  return guarded([&]() -> aiacc_status_t {
    RequestPin pin = pinned(request);
    if (!pin->operation->done() && !pin->context->context().lane().wait(*pin->operation, timeout)) return AIACC_PENDING;
    return take(pin, request);
  });
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_test(aiacc_request_t request) {
  return guarded([&]() -> aiacc_status_t {
    RequestPin pin = pinned(request);
    if (!pin->operation->done()) return AIACC_PENDING;
    return take(pin, request);
  });
}

aiacc_status_t aiacc_wait(aiacc_request_t request) { return wait_for(request, std::nullopt); }

aiacc_status_t aiacc_wait_for(aiacc_request_t request, int64_t timeout_ms) {
  return guarded([&] {
    if (timeout_ms < 0) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("timeout_ms is {}: give 0 or more, or call aiacc_wait", timeout_ms));
    }
    constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max() / 1'000'000;
    return wait_for(request, timeout_ms > kLongest ? std::nullopt : std::optional(Duration(timeout_ms * 1'000'000)));
  });
}

}  // extern "C"
