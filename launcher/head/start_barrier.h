// StartBarrier: the part of the start barrier that spans hosts. Each agent reports when all its ranks have said hello.
// When all agents have reported, each gets the addresses of all ranks, or the reason why the ranks do not fit together.
// Pure: no I/O.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/wire/launch_messages.h"

namespace aiacc::launcher {

class StartBarrier {
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

  explicit StartBarrier(std::vector<Host> hosts);

  void set_addresses(int host, std::vector<std::string> addresses);
  // nullopt while other hosts are missing. Ranks may run several programs in sequence, so a new start barrier begins
  // after each outcome. Throws kProtocol for a message that does not fit its host.
  std::optional<Outcome> ready(int host, const wire::HostReady& message);

 private:
  std::optional<wire::RefuseWorld> disagreement() const;

  std::vector<Host> hosts_;
  std::vector<std::optional<wire::HostReady>> ready_;
};

}  // namespace aiacc::launcher
