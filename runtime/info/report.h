// runtime/info: what aiacc_info reports about library, host and settings. Not here: its layout for people (tools/info).
#pragma once

#include "base/json.h"

namespace aiacc::info {

// `version`: of the library; `transport`: of this rank to other hosts; "" if it has none; `recent_operations`: of this rank; an
// empty array if this process is not a rank. Local;
// needs no context. Takes milliseconds, more in a process with much memory, because it forks.
Json report(const char* version, const std::string& transport, Json recent_operations);

}  // namespace aiacc::info
