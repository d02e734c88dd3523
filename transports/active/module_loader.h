// Loads the module of a library, and with it the library, into this process, and opens workers.
//
// The library is a guest there. It reads its settings from the environment: some when it is loaded (UCX: signal handlers,
// patches of mmap and brk, logs), the others when a worker is opened. It finds none of the user's variables of its prefix, such
// as UCX_*, which are for others that use the library; it finds defaults of ours and the variables that the user has set under
// the names AIACC_UCX_*. A library that somebody else has loaded before keeps what it read then.
#pragma once

#include <span>
#include <string>

#include "transports/active/library.h"
#include "transports/active/module_api.h"

namespace aiacc::active {

// `settings`: "UCX_TLS=tcp". All throw kUnsupported with the reason if there is no module, no library, a module of another
// version, or none of the transports and devices that the settings name.

// The same for each call with this library; it stays loaded.
const Module& load(const Library& library, std::span<const std::string> settings);
const Module& load_from(const Library& library, const char* file, std::span<const std::string> settings);

Worker* open_worker(const Library& library, const Module& module, std::span<const std::string> settings);

}  // namespace aiacc::active
