// bindings/c: the C ABI: argument checks, handles, statuses and error sentences around the runtime. Not here: what the
// calls do (runtime).
//
// The exception barrier: no exception crosses the ABI. An exception that arrives here becomes a status and this
// thread's last error.
#pragma once

#include <exception>

#include "base/error.h"
#include "include/aiacc/aiacc.h"

namespace aiacc::abi {

// Stores the error's sentence for aiacc_last_error() and returns its status.
aiacc_status_t remember(const std::exception_ptr& error) noexcept;
aiacc_status_t remember(const Error& error) noexcept;

// Runs `body`, which returns a status or nothing.
template <class Body>
aiacc_status_t guarded(Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return AIACC_OK;
    } else {
      return body();
    }
  } catch (...) {
    return remember(std::current_exception());
  }
}

}  // namespace aiacc::abi
