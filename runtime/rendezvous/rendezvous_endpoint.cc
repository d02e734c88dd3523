#include "runtime/rendezvous/rendezvous_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/io/host_addresses.h"
#include "base/io/real_clock.h"
#include "base/wire/codec.h"
#include "runtime/bootstrap/data_port.h"

namespace aiacc {
namespace {

constexpr Duration kOwnNames = std::chrono::seconds(5);  // to resolve a name of this host

std::int64_t milliseconds(Duration span) {
  return std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::milliseconds>(span).count());
}

}  // namespace

// --- AddressEndpoint -------------------------------------------------------------------------------------------------

std::string AddressEndpoint::name() const {
  const bool six = endpoint_.host.find(':') != std::string::npos;
  return fmt::format("AIACC_RENDEZVOUS={}{}{}:{}", six ? "[" : "", endpoint_.host, six ? "]" : "", endpoint_.port);
}

// For a host name, rank 0 listens on all addresses, because the name may resolve to another address on its own host than on
// others (127.0.1.1, or an address behind a NAT). A numeric address is taken literally.
std::unique_ptr<io::Listener> AddressEndpoint::open(io::Net& net) {
  const auto refuse = [&](const Error& error) {
    return Error(error.code(),
                 fmt::format("rank 0 cannot listen at {}: {}; name an address of rank 0's host and a port "
                             "that nobody else uses, a job before this one included",
                             name(), error.message()));
  };
  try {
    if (endpoint_.host == "localhost") return net.listen(io::resolve(endpoint_, kOwnNames).front());
    if (io::is_numeric_address(endpoint_.host)) return net.listen(io::Address::tcp(endpoint_.host, endpoint_.port));
  } catch (const Error& error) {
    throw refuse(error);
  }
  std::unique_ptr<io::Listener> six;
  try {
    six = net.listen(io::Address::tcp("::", endpoint_.port));
  } catch (const Error&) {  // without IPv6, IPv4 serves; if the port is taken, it fails below with the sentence
  }
  if (six != nullptr) return six;
  try {
    return net.listen(io::Address::tcp("0.0.0.0", endpoint_.port));
  } catch (const Error& error) {
    throw refuse(error);
  }
}

RendezvousEndpoint::Found AddressEndpoint::find(Duration limit) { return {io::resolve(endpoint_, limit), secret_}; }

std::string AddressEndpoint::obstacle() const {
  constexpr Duration kLook = std::chrono::seconds(1);
  try {
    io::resolve(endpoint_, kLook);
  } catch (const Error& error) {
    return fmt::format("here {}, and the others need one", error.message());
  }
  return {};
}

// --- StoreEndpoint ---------------------------------------------------------------------------------------------------

StoreEndpoint::StoreEndpoint(Store store, const std::string& job)
    : store_(std::move(store)), key_(fmt::format("aiacc/{}/rendezvous", job)) {}

std::string StoreEndpoint::name() const { return fmt::format("the store's key '{}'", key_); }

std::unique_ptr<io::Listener> StoreEndpoint::open(io::Net& net) {
  std::unique_ptr<io::Listener> listener = listen_for_peers(net);
  io::RealEntropy entropy;
  secret_ = wire::Secret::fresh(entropy);
  wire::StoredRendezvous here;
  std::copy(secret_.bytes().begin(), secret_.bytes().end(), here.secret.begin());
  here.port = listener->address().port;
  here.addresses = io::host_addresses({});
  here.addresses.insert(here.addresses.end(), {"127.0.0.1", "::1"});  // on other hosts nobody authenticates there
  const wire::Bytes bytes = wire::encode(here);
  std::string value(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const int status = store_.put(key_, value);
  wire::wipe(value.data(), value.size());
  wire::wipe(here.secret.data(), here.secret.size());
  if (status != 0) {
    throw Error(Code::kSystem,
                fmt::format("the store's put of the key '{}' ({} bytes) returned {}", key_, value.size(), status));
  }
  return listener;
}

RendezvousEndpoint::Found StoreEndpoint::find(Duration limit) {
  if (const int status = waited_ ? 0 : store_.wait(key_, milliseconds(limit)); status != 0) {
    throw Error(Code::kTimeout,
                fmt::format("the store's wait for the key '{}' returned {}, after up to {:.6g} s: rank 0 "
                            "puts it there in aiacc_init",
                            key_, status, seconds(limit)));
  }
  waited_ = true;
  std::string value;
  if (const int status = store_.get(key_, value, milliseconds(limit)); status != 0) {
    throw Error(Code::kSystem, fmt::format("the store's get of the key '{}' returned {}", key_, status));
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(value));
  const std::string what = name();
  std::uint16_t protocol = 0;
  wire::Reader(bytes, what).get(protocol);
  if (protocol != wire::kRendezvousProtocol) {
    throw Error(Code::kMismatch,
                fmt::format("{} holds version {} of the protocol, and this aiacc speaks version {}: all "
                            "ranks of a job need the same aiacc",
                            what, protocol, wire::kRendezvousProtocol));
  }
  auto there = wire::decode<wire::StoredRendezvous>(bytes, what);
  wire::wipe(value.data(), value.size());
  Found found;
  found.secret = wire::Secret(there.secret);
  wire::wipe(there.secret.data(), there.secret.size());
  for (const std::string& address : there.addresses) found.addresses.push_back(io::Address::tcp(address, there.port));
  return found;
}

}  // namespace aiacc
