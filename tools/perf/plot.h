// A plot of bandwidth over size: SVG, both axes logarithmic, one line for each collective, type, operator, and in or
// out of place.
#pragma once

#include <string>
#include <vector>

#include "tools/perf/measure.h"

namespace aiacc::tools {

std::string plot_svg(const std::vector<Row>& rows, const std::string& title);

}  // namespace aiacc::tools
