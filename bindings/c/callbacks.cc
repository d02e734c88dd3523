#include "bindings/c/callbacks.h"

#include <fmt/format.h>

#include "base/error.h"

namespace aiacc::abi {

bool in_callback() noexcept { return false; }

void refuse_to_block(const char* call) {
  if (!in_callback()) return;
  throw Error(
      Code::kInvalidState,
      fmt::format("{} would block inside a completion callback: pass a request or a callback, and wait in another "
                  "thread",
                  call));
}

}  // namespace aiacc::abi
