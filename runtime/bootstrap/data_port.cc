#include "runtime/bootstrap/data_port.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/io/resolve.h"
#include "transports/tcp/tcp_port_factory.h"

namespace aiacc {

std::unique_ptr<io::Listener> listen_for_peers(io::Net& net) {
  try {
    return net.listen(io::Address::tcp("::", 0));
  } catch (const Error&) {
    return net.listen(io::Address::tcp("0.0.0.0", 0));  // a kernel without IPv6
  }
}

std::unique_ptr<io::Listener> listen_beside(io::Net& net, const io::Address& place) {
  return io::is_loopback(place.name) ? net.listen(io::Address::tcp(place.name, 0)) : listen_for_peers(net);
}

NetworkPorts network_ports(Loop& loop, io::Net& net, io::Entropy& entropy, std::unique_ptr<io::Listener> listener,
                           const io::TcpSettings& tcp) {
  NetworkPorts networks;
  networks.add(std::make_unique<TcpPortFactory>(loop, net, entropy, std::move(listener), tcp.streams, tcp.marks));
  return networks;
}

std::unique_ptr<MessagePort> open_data_port(NetworkPorts& networks, const View& world, int rank,
                                            const JobPlaces& places, Duration refused_limit) {
  const auto ranks = static_cast<std::size_t>(world.size());
  if (places.ports.size() != ranks || places.secret.none()) {
    throw Error(Code::kProtocol, fmt::format("rank {} was told the ports of {} of {} ranks on several hosts, and {} "
                                             "secret",
                                             rank, places.ports.size(), ranks, places.secret.none() ? "no" : "a"));
  }
  PortWorld told;
  told.rank = rank;
  told.job = world.job();
  told.secret = places.secret;
  told.refused_limit = refused_limit;
  for (int peer = 0; peer < world.size(); ++peer) {
    const std::uint32_t host = world.member(peer).host;
    if (host >= places.hosts.size()) {
      throw Error(Code::kProtocol, fmt::format("rank {} was told that rank {} is on host {} of {}", rank, peer, host,
                                               places.hosts.size()));
    }
    const JobPlaces::Host& where = places.hosts[host];
    told.peers.push_back({fmt::format("rank {} on host {}", peer, where.name), where.addresses, {}});
  }
  return networks.open(std::move(told), places.ports);
}

}  // namespace aiacc
