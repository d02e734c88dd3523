#include "transports/tcp/tcp_port_factory.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "transports/tcp/tcp_port.h"

namespace aiacc {

std::vector<std::uint8_t> TcpPortFactory::address() const { return wire::tcp_address(listener_->address().port).bytes; }

std::unique_ptr<MessagePort> TcpPortFactory::open(PortWorld world) {
  TcpPort::Settings settings;
  settings.rank = world.rank;
  settings.job = world.job;
  settings.secret = world.secret;
  settings.entropy = &entropy_;
  settings.refused_limit = world.refused_limit;
  settings.streams = streams_;
  settings.marks = marks_;
  for (PortWorld::Peer& peer : world.peers) {
    const std::optional<std::uint16_t> port = wire::tcp_port_of(peer.address);
    if (!port) throw Error(Code::kProtocol, fmt::format("the address of {} is no TCP port", peer.name));
    TcpPort::Peer& entry = settings.peers.emplace_back();
    entry.name = std::move(peer.name);
    for (const std::string& host : peer.host_addresses) entry.addresses.push_back(io::Address::tcp(host, *port));
  }
  return std::make_unique<TcpPort>(loop_, net_, std::move(listener_), std::move(settings));
}

}  // namespace aiacc
