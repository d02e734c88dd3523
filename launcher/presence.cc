#include "launcher/presence.h"

#include <fmt/format.h>

#include <array>
#include <span>

namespace aiacc::launcher {

namespace {

constexpr std::size_t kTokenLetters = 32;
constexpr Duration kPatience = std::chrono::seconds(3);  // an agent has nothing else to do then

std::string random_letters(io::Entropy& entropy) {
  std::array<std::uint64_t, 2> random = {};
  entropy.fill(std::as_writable_bytes(std::span(random)));
  return fmt::format("{:016x}{:016x}", random[0], random[1]);
}

bool is_of(const io::Stream& stream, std::uint32_t user) {
  const std::optional<io::PeerIdentity> peer = stream.peer_identity();
  return peer && peer->uid == user;
}

}  // namespace

Presence::Presence(io::Net& net, io::Entropy& entropy, std::uint32_t user)
    : user_(user),
      name_("aiacc-" + random_letters(entropy)),
      token_(random_letters(entropy)),
      listener_(net.listen(io::Address::local(name_))) {}

// A token always fits into what the system takes at once, so that no caller keeps the next one waiting.
Task<void> Presence::serve(Stop& stop) {
  for (;;) {
    const std::unique_ptr<io::Stream> caller = co_await listener_->accept(stop);
    if (!is_of(*caller, user_)) continue;
    try {
      co_await io::write_all(*caller, std::as_bytes(std::span(token_)), stop);
    } catch (const Error&) {
      if (stop.requested()) throw;  // else it has gone again
    }
  }
}

Task<std::string> token_at(Loop& loop, io::Net& net, std::string name, std::uint32_t user, Stop& stop) {
  Stop patience(stop);
  Deadline deadline(loop, after(loop.now(), kPatience), patience, "it tells no token");
  std::string token(kTokenLetters, ' ');
  try {
    const io::Address address = io::Address::local(std::move(name));
    const std::unique_ptr<io::Stream> there = co_await net.connect(address, patience);
    if (!is_of(*there, user)) co_return std::string();
    const bool told = co_await io::read_exactly(*there, std::as_writable_bytes(std::span(token)), patience);
    if (!told) token.clear();
  } catch (const Error&) {
    stop.throw_if_requested();
    token.clear();
  }
  co_return token;
}

}  // namespace aiacc::launcher
