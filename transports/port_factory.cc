#include "transports/port_factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "transports/failover/failover_port.h"

namespace aiacc {
namespace {

// A setting that all ranks must have alike, or that rank 0 gives to all, stands in a rank's list as an address does, with the
// value as its bytes.
bool is_setting(const wire::PortAddress& port) noexcept { return port.transport.starts_with("AIACC_"); }

std::string value_of(const wire::RankPorts& rank, std::string_view setting) {
  const wire::PortAddress* const found = rank.find(setting);
  return found == nullptr ? std::string() : std::string(found->bytes.begin(), found->bytes.end());
}

std::string list_of(const wire::RankPorts& rank) {
  std::string text;
  for (const wire::PortAddress& port : rank.ports) {
    if (is_setting(port)) continue;
    text += (text.empty() ? "" : ", ") + port.transport;
  }
  return text.empty() ? "none" : text;
}

}  // namespace

wire::RankPorts NetworkPorts::addresses() const {
  wire::RankPorts mine;
  for (const auto& factory : factories_) mine.ports.push_back({std::string(factory->transport()), factory->address()});
  if (!value_.empty()) mine.ports.push_back({setting_, {value_.begin(), value_.end()}});
  if (!given_value_.empty()) mine.ports.push_back({given_setting_, {given_value_.begin(), given_value_.end()}});
  return mine;
}

void NetworkPorts::require_alike(std::string_view setting, std::string_view value) {
  setting_ = setting;
  value_ = value;
}

void NetworkPorts::take_from_rank_0(std::string_view setting, std::string_view value) {
  given_setting_ = setting;
  given_value_ = value;
}

void NetworkPorts::fall_back_to(std::string_view transport, Loop& loop, Duration failback) {
  fallback_ = transport;
  loop_ = &loop;
  failback_ = failback;
}

// Every rank compares all with rank 0, so that all give the same sentence.
void NetworkPorts::compare_settings(std::span<const wire::RankPorts> ranks,
                                    std::span<const PortWorld::Peer> names) const {
  if (setting_.empty()) return;
  const auto text_of = [&](const std::string& value) {
    return value.empty() ? fmt::format("no {}", setting_) : fmt::format("{}={}", setting_, printable(value));
  };
  const std::string first = value_of(ranks[0], setting_);
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const std::string value = value_of(ranks[rank], setting_);
    if (value == first) continue;
    throw Error(Code::kInvalidArgument, fmt::format("{} has {}, and {} has {}; give all ranks the same", names[0].name,
                                                    text_of(first), names[rank].name, text_of(value)));
  }
}

const std::string& choose_transport(std::span<const wire::RankPorts> ranks, std::span<const PortWorld::Peer> names) {
  std::size_t lacks = 0;  // the rank without rank 0's first transport
  for (const wire::PortAddress& wanted : ranks.front().ports) {
    if (is_setting(wanted)) continue;
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
  compare_settings(ranks, world.peers);
  const std::string& transport = choose_transport(ranks, world.peers);
  if (!required_.empty() && transport != required_) {
    const auto without = std::find_if(ranks.begin(), ranks.end(),
                                      [&](const wire::RankPorts& rank) { return rank.find(required_) == nullptr; });
    const std::size_t lacks = without == ranks.end() ? 0 : static_cast<std::size_t>(without - ranks.begin());
    throw Error(
        Code::kUnsupported,
        fmt::format("AIACC_TRANSPORT={} is not possible: {} has {} and prefers {}; all ranks need the same value",
                    required_, world.peers[lacks].name, list_of(ranks[lacks]), ranks[lacks].ports.front().transport));
  }
  const std::string uses = factory_of(transport).description();
  opened_transport_ = transport;
  from_rank_0_ = value_of(ranks[0], given_setting_);
  opened_ = uses.empty() ? transport : fmt::format("{} ({})", transport, uses);
  const bool falls_back = !fallback_.empty() && transport != fallback_ &&
                          std::all_of(ranks.begin(), ranks.end(),
                                      [&](const wire::RankPorts& rank) { return rank.find(fallback_) != nullptr; });
  if (!falls_back) return open_one(std::move(world), ranks, transport);
  std::vector<std::string> names;
  for (const PortWorld::Peer& peer : world.peers) names.push_back(peer.name);
  const int rank = world.rank;
  FailoverPort::Networks networks;
  networks.first_name = transport;
  networks.second_name = fallback_;
  networks.failback = failback_;
  networks.first = open_one(world, ranks, transport);
  networks.second = open_one(std::move(world), ranks, fallback_);
  return std::make_unique<FailoverPort>(*loop_, std::move(networks), rank, std::move(names));
}

PortFactory& NetworkPorts::factory_of(std::string_view transport) const {
  const auto factory = std::find_if(factories_.begin(), factories_.end(),
                                    [&](const auto& one) { return one->transport() == transport; });
  if (factory != factories_.end()) return **factory;
  throw Error(Code::kProtocol, fmt::format("this rank was told that it has an address of transport '{}', which it "
                                           "has not opened",
                                           transport));
}

std::unique_ptr<MessagePort> NetworkPorts::open_one(PortWorld world, std::span<const wire::RankPorts> ranks,
                                                    std::string_view transport) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    world.peers[rank].address = ranks[rank].find(transport)->bytes;
  return factory_of(transport).open(std::move(world));
}

}  // namespace aiacc
