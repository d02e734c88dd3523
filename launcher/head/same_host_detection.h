// SameHostDetection: determines which connected hosts are the same machine, from what their agents report. Pure: no
// I/O.
#pragma once

#include <string>
#include <vector>

namespace aiacc::launcher {

class SameHostDetection {
 public:
  struct Agent {
    std::string machine;           // its description of the machine (machine_mark); empty: none
    std::string same_host_socket;  // the local socket that sends its token
    std::string token;
  };

  explicit SameHostDetection(std::vector<Agent> agents);

  // The sockets of earlier hosts that may be the same machine; empty if there is none to check.
  std::vector<std::string> candidates(int host) const;
  // The tokens that the agent received from candidates(), in that order; "" where nobody answered. Throws kProtocol if
  // their number is wrong.
  void found(int host, const std::vector<std::string>& tokens);
  // Whether all hosts with candidates have answered.
  bool complete() const;

  // The groups of hosts that are one machine, ascending and ordered by their first host; single hosts are omitted.
  std::vector<std::vector<int>> same() const;

 private:
  struct Host {
    Agent agent;
    std::vector<int> like;  // earlier hosts with the same description
    int first;              // the first host that is this machine, as far as is known
    bool answered;
  };
  std::vector<Host> hosts_;
};

}  // namespace aiacc::launcher
