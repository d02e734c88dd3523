#include "runtime/bootstrap/data_port.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/io/resolve.h"

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

std::unique_ptr<TcpPort> open_data_port(Loop& loop, io::Net& net, std::unique_ptr<io::Listener> listener,
                                        io::Entropy& entropy, const View& world, int rank, const JobPlaces& places,
                                        Duration refused_limit) {
  const auto ranks = static_cast<std::size_t>(world.size());
  if (places.ports.size() != ranks || places.secret.none()) {
    throw Error(Code::kProtocol, fmt::format("rank {} was told {} ports of {} ranks on several hosts, and {} secret",
                                             rank, places.ports.size(), ranks, places.secret.none() ? "no" : "a"));
  }
  TcpPort::Settings settings;
  settings.rank = rank;
  settings.job = world.job();
  settings.secret = places.secret;
  settings.entropy = &entropy;
  settings.refused_limit = refused_limit;
  for (int peer = 0; peer < world.size(); ++peer) {
    const std::uint32_t host = world.member(peer).host;
    if (host >= places.hosts.size()) {
      throw Error(Code::kProtocol, fmt::format("rank {} was told that rank {} is on host {} of {}", rank, peer, host,
                                               places.hosts.size()));
    }
    const JobPlaces::Host& where = places.hosts[host];
    TcpPort::Peer& entry = settings.peers.emplace_back();
    entry.name = fmt::format("rank {} on host {}", peer, where.name);
    for (const std::string& address : where.addresses) {
      entry.addresses.push_back(io::Address::tcp(address, places.ports[static_cast<std::size_t>(peer)]));
    }
  }
  return std::make_unique<TcpPort>(loop, net, std::move(listener), std::move(settings));
}

}  // namespace aiacc
