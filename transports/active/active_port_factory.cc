#include "transports/active/active_port_factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "transports/active/active_port.h"
#include "transports/active/frame.h"
#include "transports/active/module_loader.h"

namespace aiacc {
namespace {

constexpr std::size_t kMostAddressBytes = 16 << 10;  // of a worker
constexpr Duration kGapLimit = std::chrono::seconds(2);

// An address: the transport's name, this byte, and a hash of the rest, because libraries read what they are given unchecked. Then the
// number of the worker of each class, and of each worker how many bytes its address has (16 bits), and these.
constexpr std::uint8_t kAddressVersion = 4;
static_assert(active::kFrameVersion == 5,
              "increase kAddressVersion, too: ranks with other frames have no such transport");

std::size_t prefix_bytes(std::string_view transport) { return transport.size() + 1 + sizeof(std::uint64_t); }

std::uint64_t hash_of(std::span<const std::uint8_t> bytes) {
  Hash64 hash;
  for (const std::uint8_t byte : bytes) hash.add(byte);
  return hash.value();
}

bool is_urgent(std::size_t traffic) { return traffic <= static_cast<std::size_t>(TrafficClass::kLatency); }

}  // namespace

ActivePortFactory::ActivePortFactory(io::RealLoop& loop, const active::Library& library,
                                     std::span<const std::string> settings, const Marks& marks)
    : loop_(loop), library_(library), module_(active::load(library, settings)), marks_(marks) {
  try {
    open_workers(settings);
  } catch (...) {
    for (active::Worker* each : workers_) module_.close(each);
    throw;
  }
}

ActivePortFactory::~ActivePortFactory() {
  for (active::Worker* each : workers_) module_.close(each);
}

void ActivePortFactory::open_workers(std::span<const std::string> settings) {
  std::vector<std::pair<bool, std::vector<std::string>>> opened;
  for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
    const io::TrafficMarks& its = marks_[traffic];
    std::vector<std::string> its_settings(settings.begin(), settings.end());
    // What follows the DSCP in the octet is for congestion control, and the device's to set.
    if (its.dscp && !library_.traffic_class.empty()) {
      its_settings.push_back(fmt::format("{}={}", library_.traffic_class, *its.dscp << 2));
    }
    if (its.priority && !library_.service_level.empty()) {
      its_settings.push_back(fmt::format("{}={}", library_.service_level, *its.priority));
    }
    std::pair wanted(library_.separates_bulk && is_urgent(traffic), std::move(its_settings));
    const auto same = std::find(opened.begin(), opened.end(), wanted);
    worker_of_[traffic] = static_cast<std::uint8_t>(same - opened.begin());
    if (same != opened.end()) continue;
    workers_.push_back(active::open_worker(library_, module_, wanted.second));
    opened.push_back(std::move(wanted));
  }
}

std::vector<std::uint8_t> ActivePortFactory::address() const {
  const std::string_view name = library_.transport;
  std::vector<std::uint8_t> bytes(name.begin(), name.end());
  bytes.push_back(kAddressVersion);
  const std::size_t prefix = prefix_bytes(name);
  bytes.resize(prefix);
  bytes.insert(bytes.end(), worker_of_.begin(), worker_of_.end());
  for (active::Worker* each : workers_) {
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof(std::uint16_t) + kMostAddressBytes);
    const auto length =
        static_cast<std::uint16_t>(module_.address(each, &bytes[at + sizeof(std::uint16_t)], kMostAddressBytes));
    if (length == 0) {
      throw Error(Code::kUnsupported,
                  fmt::format("{} gives no address of at most 16 KiB for its worker", library_.name));
    }
    std::memcpy(&bytes[at], &length, sizeof length);
    bytes.resize(at + sizeof length + length);
  }
  const std::uint64_t hash = hash_of(std::span(bytes).subspan(prefix));
  std::memcpy(&bytes[name.size() + 1], &hash, sizeof hash);
  return bytes;
}

// A peer without its name; none if the address makes no sense.
std::optional<ActivePort::Peer> ActivePortFactory::read(std::span<const std::uint8_t> address) const {
  const std::string_view name = library_.transport;
  const std::size_t prefix = prefix_bytes(name);
  if (address.size() <= prefix || !std::equal(name.begin(), name.end(), address.begin())) return std::nullopt;
  const std::uint64_t hash = hash_of(address.subspan(prefix));
  if (address[name.size()] != kAddressVersion || std::memcmp(&address[name.size() + 1], &hash, sizeof hash) != 0) {
    return std::nullopt;
  }
  std::span<const std::uint8_t> rest = address.subspan(prefix);
  ActivePort::Peer peer;
  if (rest.size() < peer.worker_of.size()) return std::nullopt;
  std::copy_n(rest.begin(), peer.worker_of.size(), peer.worker_of.begin());
  rest = rest.subspan(peer.worker_of.size());
  while (rest.size() >= sizeof(std::uint16_t)) {
    std::uint16_t length = 0;
    std::memcpy(&length, rest.data(), sizeof length);
    rest = rest.subspan(sizeof length);
    if (length == 0 || length > rest.size()) return std::nullopt;
    peer.addresses.emplace_back(rest.begin(), rest.begin() + length);
    rest = rest.subspan(length);
  }
  const std::uint8_t last = *std::max_element(peer.worker_of.begin(), peer.worker_of.end());
  return rest.empty() && last < peer.addresses.size() ? std::optional(std::move(peer)) : std::nullopt;
}

std::unique_ptr<MessagePort> ActivePortFactory::open(PortWorld world) {
  ActivePort::Settings settings;
  settings.library = library_.name;
  settings.rank = world.rank;
  settings.job = world.job;
  settings.secret = world.secret;
  settings.broken_limit = world.refused_limit;
  if (!library_.ordered_over.empty() && description().find(library_.ordered_over) != std::string::npos)
    settings.gap_limit = kGapLimit;
  settings.marks = marks_;
  for (PortWorld::Peer& each : world.peers) {
    std::optional<ActivePort::Peer> peer = read(each.address);
    if (!peer) {
      throw Error(Code::kProtocol, fmt::format("the address of {} is no address of {}", each.name, library_.name));
    }
    peer->name = std::move(each.name);
    settings.peers.push_back(std::move(*peer));
  }
  return std::make_unique<ActivePort>(loop_, module_, std::exchange(workers_, {}), std::move(settings));
}

std::string ActivePortFactory::description() const {
  char resources[1024] = "";
  module_.describe(workers_.front(), resources, sizeof resources);
  return fmt::format("{} {}: {}", library_.name, module_.version(), resources);
}

}  // namespace aiacc
