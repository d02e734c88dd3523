// runtime/rendezvous: ranks without an agent: server on rank 0, clients on the others, endpoints, arrivals, reconnecting. Not
// here: who is still alive (runtime/watch), which ranks share memory (runtime/bootstrap/shm_discovery.h).
//
// Rendezvous: the two ends of base/wire/rendezvous_messages.h, for jobs without an agent. Rank 0 is the server
// (rendezvous_server.h), every other rank a client (rendezvous_client.h). For the rest of the job rank 0 reports lost ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/io/net.h"
#include "base/io/processes.h"
#include "base/task/task.h"
#include "base/time.h"
#include "base/wire/rendezvous_messages.h"
#include "base/wire/secret.h"
#include "runtime/bootstrap/bootstrap.h"

namespace aiacc {

// The job number in connections to rank 0, when the job does not have one yet.
inline constexpr std::uint64_t kRendezvousJob = 0;

// How long the last messages of a rendezvous may take to reach the others.
inline constexpr Duration kFinalMessagesLimit = std::chrono::seconds(1);

// The error sentence at the deadline; `arrivals` says which ranks have arrived.
std::string too_late(Duration limit, const std::string& arrivals);

// Each rank has reported the lowest rank of its host. Throws kProtocol if the reports of the `size` ranks contradict
// each other.
void check_firsts(const std::vector<std::int32_t>& firsts, int size);

// Whether a rank may leave while others go on, also rank 0: all share the memory of one host, and each learns from the kernel when the
// process of another one ends, so that nobody waits for what rank 0 says. Every rank gets the same answer.
bool can_leave_alone(const wire::Roster& roster, const std::vector<std::int32_t>& firsts);

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Returns when all ranks of the job have arrived. If `stop` ends it at the deadline, the error says which ranks
  // arrived and which did not.
  virtual Task<wire::Roster> gather(Stop& stop) = 0;
  // During gather(): which ranks have arrived and which have not, or why this one does not reach rank 0. "" if it did: rank 0
  // says the rest.
  virtual std::string awaited() const = 0;
  // Exchanges the lowest rank of each host: `first` is this host's; returns the checked values of all ranks.
  virtual Task<std::vector<std::int32_t>> agree_on_hosts(std::int32_t first, Stop& stop) = 0;

  // Call after agree_on_hosts(), with the results of both: watches the processes of local peers through the kernel. `processes`
  // outlives the rendezvous.
  virtual void watch_local_peers(io::Processes& processes, const wire::Roster& roster,
                                 const std::vector<std::int32_t>& firsts) = 0;

  // From now on `observer` is told of lost ranks.
  virtual void observe(BootstrapObserver& observer) noexcept = 0;
  // Where ranks can leave alone, this waits for no other rank.
  virtual Task<void> leave(Instant end, Stop& stop) = 0;

  // Remarks for the user about a rendezvous that succeeded; whole sentences.
  virtual std::vector<std::string> remarks() const = 0;
};

// gather(), which tells the user what it waits for, after 20 s and then once a minute: until the deadline of minutes nobody
// would know. A framework's import may take longer than a few seconds.
using TellUser = std::function<void(const std::string& sentence)>;
Task<wire::Roster> gather_and_tell(Loop& loop, Rendezvous& rendezvous, const TellUser& tell, Stop& stop);

// Where the ranks of a job find rank 0: an address, or a key of the caller's store.
class RendezvousEndpoint {
 public:
  struct Found {
    std::vector<io::Address> addresses;
    wire::Secret secret;
  };

  virtual ~RendezvousEndpoint() = default;
  // Rank 0: starts to listen there. Throws with the sentence.
  virtual std::unique_ptr<io::Listener> open(io::Net& net) = 0;
  // Rank 0, after open().
  virtual wire::Secret secret() const = 0;
  // Other ranks: where rank 0 may be; called before each attempt. May block the thread for up to `limit`. Throws
  // kPeerFailed if the address is not known yet.
  virtual Found find(Duration limit) = 0;
  // Rank 0: why the others may not find it, as a sentence; "" if nothing is known. May block the thread for a second.
  virtual std::string obstacle() const { return {}; }
  // For sentences: "AIACC_RENDEZVOUS=node-7:4242".
  virtual std::string name() const = 0;
};

}  // namespace aiacc
