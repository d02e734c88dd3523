#include "base/io/same_host.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace aiacc::io {

std::string random_local_name(Entropy& entropy) {
  std::array<std::uint64_t, 2> random = {};
  entropy.fill(std::as_writable_bytes(std::span(random)));
  return fmt::format("aiacc-{:016x}{:016x}", random[0], random[1]);
}

bool is_of_user(const Stream& stream, std::uint32_t user) noexcept {
  const std::optional<PeerIdentity> peer = stream.peer_identity();
  return peer && peer->uid == user;
}

Task<std::unique_ptr<Stream>> connect_on_this_host(Net& net, std::string name, std::uint32_t user, Stop& stop) {
  std::unique_ptr<Stream> stream;
  try {
    const Address address = Address::local(std::move(name));
    stream = co_await net.connect(address, stop);
  } catch (const Error&) {
    stop.throw_if_requested();
  }
  if (stream != nullptr && !is_of_user(*stream, user)) stream.reset();
  co_return stream;
}

}  // namespace aiacc::io
