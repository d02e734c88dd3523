// The report of aiacc_info as text for people.
#pragma once

#include <string>

#include "base/json.h"

namespace aiacc::tools {

// All parts, aligned.
std::string report_text(const aiacc::Json& report);

// The traffic classes.
std::string qos_text(const aiacc::Json& report);

// The problems, each with its remedy, then the notes.
std::string doctor_text(const aiacc::Json& report);

// The number of problems (findings that are not just notes).
int count_hurts(const aiacc::Json& report);

}  // namespace aiacc::tools
