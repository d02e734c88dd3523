// The state of a server as bytes: values and what updaters remember of them, for a file that training goes on from. Of this byte
// order; a store that loads it has the same keys, with the same shapes, and the same servers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "groupcomm/kv/server.h"

namespace aiacc::kv {

// `index` of `servers`: which of a store's servers this is.
std::string saved_state(Server& server, int index, int servers);
// All of it or nothing. Throws kInvalidArgument with a sentence about what the bytes are or lack.
void restore_state(Server& server, int index, int servers, std::string_view bytes);

}  // namespace aiacc::kv
