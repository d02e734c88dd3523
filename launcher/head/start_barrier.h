// StartBarrier: the part of the start barrier that spans hosts. Each agent reports when all its ranks have said hello.
// When all agents have reported, each gets the addresses of all ranks, or the reason why the ranks do not fit together.
// In an elastic job the ranks change between one start barrier and the next, and with them their numbers in the world.
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
    std::vector<std::uint32_t> answers;  // by host: the number of its HostReady
  };

  // `least`: no world of an elastic job has fewer ranks.
  explicit StartBarrier(std::vector<Host> hosts, bool elastic = false, int least = 1);

  void set_addresses(int host, std::vector<std::string> addresses);
  // nullopt while other hosts are missing. Ranks may run several programs in sequence, so a new start barrier begins
  // after each outcome. Throws kProtocol for a message that does not fit its host; in an elastic job such a message was
  // sent before the agent knew that a rank was left out, and is void.
  std::optional<Outcome> ready(int host, const wire::HostReady& message);

  // Elastic jobs only. The rank's process has exited: what its host has reported is void.
  void exited(int rank);
  // Another process has its place, which was in no world yet.
  void replaced(int rank);
  // A further host, without ranks so far; returns its index. A further rank, whose number is one higher than that of the last: it is
  // awaited only once it has said hello.
  int add_host(const std::string& name);
  int add_rank();
  void admit(int host, int rank);
  // Whether the next world waits for it.
  bool awaits(int rank) const;
  // No further world has it. The others may have been waiting for it alone.
  std::optional<Outcome> leave_out(int rank);
  int worlds() const noexcept { return worlds_; }  // that were opened

 private:
  std::optional<Outcome> complete();
  std::optional<wire::RefuseWorld> disagreement() const;
  void describe(wire::OpenWorld& world);

  std::vector<Host> hosts_;
  std::vector<std::optional<wire::HostReady>> ready_;
  bool elastic_;
  int least_;
  std::vector<int> numbers_;  // of each rank in the last world; kNewcomer: it was not in it
  int worlds_ = 0;
};

}  // namespace aiacc::launcher
