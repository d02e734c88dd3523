// All that aiacc_info tells about library, host and settings.
#pragma once

#include "base/json.h"

namespace aiacc::info {

// `version`: of the library; `recent_operations`: of this rank, an empty array if it is none. Local; needs no context. Takes milliseconds, more where a process has much memory to fork.
Json report(const char* version, Json recent_operations);

}  // namespace aiacc::info
