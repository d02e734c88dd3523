// The report of aiacc_info as people read it.
#pragma once

#include <string>

#include "base/json.h"

namespace aiacc::tools {

// All parts, aligned.
std::string report_text(const aiacc::Json& report);

// What will hurt, each with its cure, then the notes.
std::string doctor_text(const aiacc::Json& report);

// How many findings are more than notes.
int count_hurts(const aiacc::Json& report);

}  // namespace aiacc::tools
