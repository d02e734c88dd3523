#include "transports/active/active_port_factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "transports/active/active_port.h"
#include "transports/active/module_loader.h"

namespace aiacc {
namespace {

constexpr std::size_t kMostAddressBytes = 16 << 10;

// Before the worker's address: the transport's name, this byte, and a hash, because libraries read what they are given
// unchecked.
constexpr std::uint8_t kAddressVersion = 1;

std::size_t prefix_bytes(std::string_view transport) { return transport.size() + 1 + sizeof(std::uint64_t); }

std::uint64_t hash_of(std::span<const std::uint8_t> bytes) {
  Hash64 hash;
  for (const std::uint8_t byte : bytes) hash.add(byte);
  return hash.value();
}

}  // namespace

ActivePortFactory::ActivePortFactory(io::RealLoop& loop, const active::Library& library,
                                     std::span<const std::string> settings)
    : loop_(loop),
      library_(library),
      module_(active::load(library, settings)),
      worker_(active::open_worker(library, module_, settings)) {}

ActivePortFactory::~ActivePortFactory() {
  if (worker_ != nullptr) module_.close(worker_);
}

std::vector<std::uint8_t> ActivePortFactory::address() const {
  const std::string_view name = library_.transport;
  std::vector<std::uint8_t> bytes(name.begin(), name.end());
  bytes.push_back(kAddressVersion);
  const std::size_t prefix = prefix_bytes(name);
  bytes.resize(prefix + kMostAddressBytes);
  const std::size_t length = module_.address(worker_, bytes.data() + prefix, kMostAddressBytes);
  if (length == 0) {
    throw Error(Code::kUnsupported, fmt::format("{} gives no address of at most 16 KiB for its worker", library_.name));
  }
  bytes.resize(prefix + length);
  const std::uint64_t hash = hash_of(std::span(bytes).subspan(prefix));
  std::memcpy(bytes.data() + name.size() + 1, &hash, sizeof hash);
  return bytes;
}

bool ActivePortFactory::makes_sense(std::span<const std::uint8_t> address) const {
  const std::string_view name = library_.transport;
  const std::size_t prefix = prefix_bytes(name);
  if (address.size() <= prefix || !std::equal(name.begin(), name.end(), address.begin())) return false;
  const std::uint64_t hash = hash_of(address.subspan(prefix));
  return address[name.size()] == kAddressVersion &&
         std::memcmp(address.data() + name.size() + 1, &hash, sizeof hash) == 0;
}

std::unique_ptr<MessagePort> ActivePortFactory::open(PortWorld world) {
  ActivePort::Settings settings;
  settings.library = library_.name;
  settings.rank = world.rank;
  settings.job = world.job;
  settings.secret = world.secret;
  settings.broken_limit = world.refused_limit;
  const auto prefix = static_cast<std::ptrdiff_t>(prefix_bytes(library_.transport));
  for (PortWorld::Peer& peer : world.peers) {
    if (!makes_sense(peer.address)) {
      throw Error(Code::kProtocol, fmt::format("the address of {} is no address of {}", peer.name, library_.name));
    }
    peer.address.erase(peer.address.begin(), peer.address.begin() + prefix);
    settings.peers.push_back({std::move(peer.name), std::move(peer.address)});
  }
  return std::make_unique<ActivePort>(loop_, module_, std::exchange(worker_, nullptr), std::move(settings));
}

std::string ActivePortFactory::description() const {
  char resources[1024] = "";
  module_.describe(worker_, resources, sizeof resources);
  return fmt::format("{} {}: {}", library_.name, module_.version(), resources);
}

}  // namespace aiacc
