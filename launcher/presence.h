// Presence: how agents find out that two names of a list of hosts lead to one machine. Each has a local socket with a random
// name, and tells a random token to whoever of its user calls there; who can say that token to aiaccrun is where the agent is,
// and can share memory with it, because such a socket passes its descriptor and does not reach any further. A name of a host
// is never believed, and neither is a machine's own account of itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/io/clock.h"
#include "base/io/net.h"
#include "base/task/scope.h"

namespace aiacc::launcher {

class Presence {
 public:
  // `user` may call. Throws kSystem if the host has no local sockets.
  Presence(io::Net& net, io::Entropy& entropy, std::uint32_t user);

  const std::string& name() const noexcept { return name_; }    // of the socket
  const std::string& token() const noexcept { return token_; }  // 32 letters

  // Answers until stopped.
  Task<void> serve(Stop& stop);

 private:
  std::uint32_t user_;
  std::string name_;
  std::string token_;
  std::unique_ptr<io::Listener> listener_;
};

// What is told at the socket of that name; empty if nobody of this user has it here, or tells anything within a moment.
Task<std::string> token_at(Loop& loop, io::Net& net, std::string name, std::uint32_t user, Stop& stop);

}  // namespace aiacc::launcher
