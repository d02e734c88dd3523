// The library UCX, as transports/active uses it.
#pragma once

#include "transports/active/library.h"

namespace aiacc::ucx {

extern const active::Library kLibrary;

}  // namespace aiacc::ucx
