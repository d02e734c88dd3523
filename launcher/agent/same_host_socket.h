// SameHostSocket: same-host detection by agents: do two names in a list of hosts lead to one machine? Each agent has a
// local socket with a random name (base/io/same_host.h), and sends a random token to any process of its user that
// connects. An agent that can report another one's token to aiaccrun is on the same machine and can share memory with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/io/clock.h"
#include "base/io/net.h"
#include "base/task/scope.h"

namespace aiacc::launcher {

class SameHostSocket {
 public:
  // Only processes of `user` get the token. Throws kSystem if the host has no local sockets.
  SameHostSocket(io::Net& net, io::Entropy& entropy, std::uint32_t user);

  const std::string& name() const noexcept { return name_; }    // of the socket
  const std::string& token() const noexcept { return token_; }  // 32 letters

  // Answers connections until closed or stopped.
  Task<void> serve(Stop& stop);
  // All agents that had to connect have done so: stops listening.
  void close() noexcept;

 private:
  Task<void> answer_all(Stop& stop);

  std::uint32_t user_;
  std::string name_;
  std::string token_;
  std::unique_ptr<io::Listener> listener_;
  bool closed_ = false;
  Stop* serving_ = nullptr;  // of serve(), while it runs
};

// The token from the socket of that name; empty if no process of this user listens there, or none answers in time.
Task<std::string> token_at(Loop& loop, io::Net& net, std::string name, std::uint32_t user, Stop& stop);

}  // namespace aiacc::launcher
