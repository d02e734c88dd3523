// The state of a server as bytes: values and what updaters remember of them, for a file that training goes on from. Of this byte
// order; a store that loads it has the same keys, with the same shapes, and the same servers. It has the parts of one server, not the
// copies that this has of another's. Whoever serves the parts of a lost server saves and loads its state, too.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "groupcomm/kv/server.h"

namespace aiacc::kv {

// `index` of `servers`: whose parts, of a store's servers. Throws kPeerFailed if some of them are lost.
std::string saved_state(Server& server, int index, int servers);
// All of it or nothing. The replica gets what it says while copies_anew(). Throws kInvalidArgument with a sentence about what the
// bytes are or lack.
void restore_state(Server& server, int index, int servers, std::string_view bytes);

}  // namespace aiacc::kv
