// runtime/bootstrap: how a rank learns its identity: one provider for each way of starting a job, the choice among
// them, and shared-memory domain discovery. Not here: the protocol by which ranks without an agent find each other
// (runtime/rendezvous).
//
// Bootstrap: the interface of a provider, which gives a rank its identity and its peers. There is one provider for each
// way of starting a job (docs/architecture.md, "How a rank starts"); a Context uses exactly one, chosen by
// runtime/bootstrap/bootstrap_choice.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/task/loop.h"
#include "base/view.h"
#include "collectives/inter/algorithm_table.h"
#include "transports/host/host_domain.h"
#include "transports/message.h"

namespace aiacc {

// Everything that a context needs to start, filled in by the provider.
struct BootstrapResult {
  int rank = 0;
  ViewPtr world;                      // shared by the contexts of a process
  std::unique_ptr<HostDomain> host;   // the ranks of this host, this one included; null if it is alone
  std::unique_ptr<MessagePort> port;  // to the ranks of the world; null if all share this host
  std::string job_name;               // for messages
  std::string host_name;
  std::vector<std::string> host_names;  // by Member::host, for messages; may be empty if there is one host
  std::string transport;                // of the port: "tcp"; "" without one
  std::string network;                  // what the port uses, for the log: "tcp"; "" without one
  // The same on all ranks of the job; none: it has none, or one that does not fit it.
  std::optional<inter::AlgorithmTable> algorithm_table;
  std::vector<std::string> remarks;  // sentences for the log, as warnings
};

// Events from outside that a context receives while it lives.
class BootstrapObserver {
 public:
  // A rank died or its host was lost; `error` is kPeerFailed and names it.
  virtual void on_rank_lost(int rank, std::exception_ptr error) noexcept = 0;
  // An elastic job: the next world has other ranks than this one. `what`: wire::kRanksRemoved, kRanksAdded or both.
  virtual void on_hosts_updated(std::uint8_t what) noexcept { static_cast<void>(what); }
  // Whether a rank of this host has recorded in shared memory that it leaves in order.
  virtual bool leaving(int rank) const noexcept {
    static_cast<void>(rank);
    return false;
  }

 protected:
  ~BootstrapObserver() = default;
};

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  // Joins the job; ends early when `stop` is requested. Called once.
  virtual Task<BootstrapResult> join(Stop& stop) = 0;
  // From now on `observer` is told of lost ranks. Called once, after join().
  virtual void observe(BootstrapObserver& observer) noexcept = 0;
  // A group of this rank ended because that rank of the world is lost. The provider reports it to the process that
  // started the job, which determines the first failure; one report is enough.
  virtual void lost_peer(int rank) noexcept { static_cast<void>(rank); }
  // A group of this rank ended because the network between two ranks was broken for too long; no rank is known to have
  // failed.
  virtual void lost_path(const std::string& sentence) noexcept { static_cast<void>(sentence); }
  // After join(): whether a rank may leave while others go on, as nobody needs it any more: those do not need it for messages, nor to
  // learn which ranks are lost. The same on all ranks.
  virtual bool leaves_alone() const noexcept { return false; }
  // Announces that this rank leaves in order, so that its exit is not a failure. Waits for ranks of other hosts, at
  // most until `end`.
  virtual Task<void> leave(Instant end, Stop& stop) = 0;
};

}  // namespace aiacc
