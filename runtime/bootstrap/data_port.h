// Opens the port over which a rank of a job over several hosts exchanges messages with ranks of other hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/io/net.h"
#include "base/io/real_net.h"
#include "base/view.h"
#include "base/wire/port_address.h"
#include "base/wire/secret.h"
#include "transports/port_factory.h"

namespace aiacc {

// The addresses of all ranks, known to every rank.
struct JobPlaces {
  struct Host {
    std::string name;
    std::vector<std::string> addresses;  // numeric, the most likely to be reachable first
  };
  std::vector<Host> hosts;             // by Member::host
  std::vector<wire::RankPorts> ports;  // of each rank
  wire::Secret secret;                 // the job's
};

// Listens on a free TCP port on every address of this host, IPv6 and IPv4 if the kernel has both.
std::unique_ptr<io::Listener> listen_for_peers(io::Net& net);

// The same for reconnecting ranks of a rendezvous that listens at `place`: if `place` is a loopback address, the new
// listener is reachable only from this host too.
std::unique_ptr<io::Listener> listen_beside(io::Net& net, const io::Address& place);

// PortWorld::refused_limit. There is no such limit where another party reports deaths.
inline constexpr Duration kRefusedLimit = std::chrono::seconds(30);
inline constexpr Duration kNotifiedOfFailures = std::chrono::hours(24 * 365);

// The networks of a rank that listens for others over TCP. All but the listener outlive the port.
NetworkPorts network_ports(Loop& loop, io::Net& net, io::Entropy& entropy, std::unique_ptr<io::Listener> listener,
                           const io::TcpSettings& tcp = {});

// Throws kProtocol if the places do not match the world, kUnsupported if its ranks have no transport in common.
std::unique_ptr<MessagePort> open_data_port(NetworkPorts& networks, const View& world, int rank,
                                            const JobPlaces& places, Duration refused_limit);

}  // namespace aiacc
