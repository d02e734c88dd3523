// The topology as hwloc reports it, from a module that is loaded on demand, so that ranks do not load hwloc.
#pragma once

#include "base/json.h"

namespace aiacc::info {

// The description made by base/topology/module.cc, or an object whose only member `missing` says why there is none.
Json topology();

}  // namespace aiacc::info
