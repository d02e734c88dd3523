// How a rank of a job over several hosts takes messages of the others and reaches them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/io/net.h"
#include "base/view.h"
#include "base/wire/secret.h"
#include "transports/tcp/tcp_port.h"

namespace aiacc {

// What all ranks know of each other's places.
struct JobPlaces {
  struct Host {
    std::string name;
    std::vector<std::string> addresses;  // numeric, the likeliest first
  };
  std::vector<Host> hosts;           // by Member::host
  std::vector<std::uint16_t> ports;  // of each rank
  wire::Secret secret;               // of the job
};

// On a free TCP port of every address of this host, of IPv6 and IPv4 if the kernel has both.
std::unique_ptr<io::Listener> listen_for_peers(io::Net& net);

// How long a peer may be out of reach before it counts as lost. Where somebody else tells of deaths there is no such limit: a
// rank that computes for minutes before its first call answers nobody meanwhile, and is no failure.
inline constexpr Duration kReachLimit = std::chrono::seconds(30);
inline constexpr Duration kToldOfDeaths = std::chrono::hours(24 * 365);

// `net` and `entropy` outlive the port. Throws kProtocol if the places are not those of the world.
std::unique_ptr<TcpPort> open_data_port(Loop& loop, io::Net& net, std::unique_ptr<io::Listener> listener,
                                        io::Entropy& entropy, const View& world, int rank, const JobPlaces& places,
                                        Duration reach_limit);

}  // namespace aiacc
