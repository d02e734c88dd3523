// MachineCensus: which of the hosts that were reached are the same machine, from what their agents say and find. Pure.
#pragma once

#include <string>
#include <vector>

namespace aiacc::launcher {

class MachineCensus {
 public:
  struct Agent {
    std::string machine;   // its own account of the machine; empty: none
    std::string presence;  // the socket where it tells its token
    std::string token;
  };

  explicit MachineCensus(std::vector<Agent> agents);

  // The sockets of the earlier hosts that may be this one's machine. Empty: it has nobody to look for.
  std::vector<std::string> suspects(int host) const;
  // The tokens that it was told there, in that order; empty where it found nobody. Throws kProtocol if they do not fit.
  void found(int host, const std::vector<std::string>& tokens);
  // Everybody who has somebody to look for has answered.
  bool complete() const;

  // Hosts that are one machine, ascending, those of the first first; hosts that are alone are left out.
  std::vector<std::vector<int>> same() const;

 private:
  struct Host {
    Agent agent;
    std::vector<int> like;  // earlier hosts that describe themselves in the same way
    int first;              // the first host that is this machine, as far as is known
    bool answered;
  };
  std::vector<Host> hosts_;
};

}  // namespace aiacc::launcher
