// What is on this machine, for launcher and ranks alike: a local socket with a random abstract name. Whoever reaches it runs
// on the same machine, in the same network namespace, and can be passed descriptors. Host names and a machine's description
// of itself are never trusted. The kernel says which user is at the other end; processes of other users could pass on what
// somebody on another machine says, and are not counted as being here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/io/clock.h"
#include "base/io/net.h"

namespace aiacc::io {

// For Address::local(); nobody can guess it.
std::string random_local_name(Entropy& entropy);

// Whether the other end of a local stream is a process of that user.
bool is_of_user(const Stream& stream, std::uint32_t user) noexcept;

// Connects to the local socket of that name. Null: no process of that user has it on this machine. Throws when stopped.
Task<std::unique_ptr<Stream>> connect_on_this_host(Net& net, std::string name, std::uint32_t user, Stop& stop);

}  // namespace aiacc::io
