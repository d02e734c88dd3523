// All that aiacc_info tells about library, host and settings.
#pragma once

#include "base/json.h"

namespace aiacc::info {

// `version`: of the library. Local; needs no context. Takes milliseconds, more where a process has much memory to fork.
Json report(const char* version);

}  // namespace aiacc::info
