#include "bindings/c/callbacks.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"
#include "runtime/real_context.h"

namespace aiacc::abi {
namespace {

thread_local bool in_callback = false;

CompletionThread& prepared(RealContext& context) {
  // No callbacks after exit() has begun: it may destroy objects that a callback uses while the thread still runs.
  static const int registered = std::atexit([] { state().exiting.store(true); });
  if (registered != 0) throw Error(Code::kOutOfMemory, "no handler can be registered for the end of the process");
  context.completions().prepare();
  return context.completions();
}

}  // namespace

Callback::Callback(RealContext& context, const CallOptions& options)
    : Completion(prepared(context)),
      function_(reinterpret_cast<aiacc_callback_t>(options.callback)),
      arg_(options.callback_arg) {}

void Callback::run() noexcept {
  if (!state().exiting.load()) {
    in_callback = true;
    if (error) {
      const Error why = as_error(error);
      function_(static_cast<aiacc_status_t>(why.code()), why.message().c_str(), arg_);
    } else {
      function_(AIACC_OK, "", arg_);
    }
    in_callback = false;
  }
  if (request_ != AIACC_NULL) state().requests.find(request_).remove();
}

InsideCallback::InsideCallback() noexcept : before_(in_callback) { in_callback = true; }
InsideCallback::~InsideCallback() { in_callback = before_; }

void refuse_to_block(const char* call) {
  if (!in_callback) return;
  throw Error(
      Code::kInvalidState,
      fmt::format("{} would block inside a completion callback: pass a request or a callback, and wait in another "
                  "thread",
                  call));
}

}  // namespace aiacc::abi
