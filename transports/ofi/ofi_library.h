// The library libfabric, as transports/active uses it.
#pragma once

#include "transports/active/library.h"

namespace aiacc::ofi {

// With a provider of a fast network or, where there is none, over TCP.
extern const active::Library kLibrary;
// Without TCP.
inline constexpr std::string_view kHardware = "efa,verbs;ofi_rxm";

}  // namespace aiacc::ofi
