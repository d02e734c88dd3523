#include "transports/port_factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace aiacc {
namespace {

std::string list_of(const wire::RankPorts& rank) {
  std::string text;
  for (const wire::PortAddress& port : rank.ports) text += (text.empty() ? "" : ", ") + port.transport;
  return text.empty() ? "none" : text;
}

}  // namespace

wire::RankPorts NetworkPorts::addresses() const {
  wire::RankPorts mine;
  for (const auto& factory : factories_) mine.ports.push_back({std::string(factory->transport()), factory->address()});
  return mine;
}

const std::string& choose_transport(std::span<const wire::RankPorts> ranks, std::span<const PortWorld::Peer> names) {
  std::size_t lacks = 0;  // the rank without rank 0's first transport
  for (const wire::PortAddress& wanted : ranks.front().ports) {
    const auto without = std::find_if(ranks.begin(), ranks.end(), [&](const wire::RankPorts& rank) {
      return rank.find(wanted.transport) == nullptr;
    });
    if (without == ranks.end()) return wanted.transport;
    if (lacks == 0) lacks = static_cast<std::size_t>(without - ranks.begin());
  }
  throw Error(Code::kUnsupported,
              fmt::format("the ranks have no network transport in common: {} has {}, and {} has {}", names[0].name,
                          list_of(ranks[0]), names[lacks].name, list_of(ranks[lacks])));
}

std::unique_ptr<MessagePort> NetworkPorts::open(PortWorld world, std::span<const wire::RankPorts> ranks) {
  const std::string& transport = choose_transport(ranks, world.peers);
  const auto factory = std::find_if(factories_.begin(), factories_.end(),
                                    [&](const auto& one) { return one->transport() == transport; });
  if (factory == factories_.end()) {
    throw Error(Code::kProtocol, fmt::format("this rank was told that it has an address of transport '{}', which it "
                                             "has not opened",
                                             transport));
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    world.peers[rank].address = ranks[rank].find(transport)->bytes;
  }
  return (*factory)->open(std::move(world));
}

}  // namespace aiacc
