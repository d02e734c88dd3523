// The topology as hwloc sees it, from a module that is loaded only when somebody asks: ranks do not carry hwloc.
#pragma once

#include "base/json.h"

namespace aiacc::info {

// What base/topology/module.cc describes, or an object whose only member `missing` says why there is nothing.
Json topology();

}  // namespace aiacc::info
