// WorldFence: the part of the fence that is above hosts. Each agent tells when all its ranks have said hello; when all agents
// have, every one of them gets what ranks need to reach each other, or why they do not fit together. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/wire/launch_messages.h"

namespace aiacc::launcher {

class WorldFence {
 public:
  struct Host {
    std::string name;
    std::vector<int> ranks;              // ascending
    std::vector<std::string> addresses;  // known when its agent is up
  };
  // What each agent is told.
  struct Outcome {
    std::optional<wire::OpenWorld> open;
    std::optional<wire::RefuseWorld> refuse;
  };

  explicit WorldFence(std::vector<Host> hosts);

  void set_addresses(int host, std::vector<std::string> addresses);
  // Nothing as long as others are awaited. Programs may follow each other: after an outcome a new fence begins. Throws
  // kProtocol for a message that does not fit its host.
  std::optional<Outcome> ready(int host, const wire::HostReady& message);

 private:
  std::optional<wire::RefuseWorld> disagreement() const;

  std::vector<Host> hosts_;
  std::vector<std::optional<wire::HostReady>> ready_;
};

}  // namespace aiacc::launcher
