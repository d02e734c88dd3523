// Bootstrap: how a rank learns who it is and finds its peers. A provider per way of being started (docs/architecture.md,
// "A rank's birth"); the Context asks exactly one, chosen by runtime/bootstrap_choice.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/task/loop.h"
#include "base/view.h"
#include "transports/host/host_domain.h"
#include "transports/message.h"

namespace aiacc {

// Everything a context needs to begin: filled by the provider.
struct Birth {
  int rank = 0;
  ViewPtr world;                      // shared by the contexts of a process
  std::unique_ptr<HostDomain> host;   // with the ranks of this host, mine among them; null if I am alone on it
  std::unique_ptr<MessagePort> port;  // to the ranks of the world, by their ranks in it; null if they share my host
  std::string job_name;               // for messages
  std::string host_name;
  std::vector<std::string> host_names;  // by Member::host, for messages; may be empty if there is one host
  std::vector<std::string> remarks;     // sentences for the log, as warnings
};

// What a context hears from outside while it lives.
class BirthObserver {
 public:
  // A rank died or its host was lost; `error` is kPeerFailed and names it.
  virtual void on_rank_lost(int rank, std::exception_ptr error) noexcept = 0;
  // Whether a rank of this host has said, in the memory that they share, that it leaves in order.
  virtual bool leaving(int rank) const noexcept {
    static_cast<void>(rank);
    return false;
  }

 protected:
  ~BirthObserver() = default;
};

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  // Comes up; gives up when `stop` is requested. Called once.
  virtual Task<Birth> join(Stop& stop) = 0;
  // From now on `observer` hears of deaths. Called once after join().
  virtual void observe(BirthObserver& observer) noexcept = 0;
  // A group of this rank ended because that rank of the world is gone. Whoever began the job shall know which of them failed
  // first; told once is enough.
  virtual void lost_peer(int rank) noexcept { static_cast<void>(rank); }
  // Says that this rank leaves in order; its going away is no failure afterwards.
  virtual Task<void> leave(Stop& stop) = 0;
};

}  // namespace aiacc
