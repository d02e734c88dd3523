#include "launcher/agent/same_host_socket.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "base/io/same_host.h"

namespace aiacc::launcher {

namespace {

constexpr std::size_t kTokenLetters = 32;
// Other agents do nothing else at that time, so they answer soon.
constexpr Duration kTokenLimit = std::chrono::seconds(3);

std::string random_letters(io::Entropy& entropy) {
  std::array<std::uint64_t, 2> random = {};
  entropy.fill(std::as_writable_bytes(std::span(random)));
  return fmt::format("{:016x}{:016x}", random[0], random[1]);
}

}  // namespace

SameHostSocket::SameHostSocket(io::Net& net, io::Entropy& entropy, std::uint32_t user)
    : user_(user),
      name_(io::random_local_name(entropy)),
      token_(random_letters(entropy)),
      listener_(net.listen(io::Address::local(name_))) {}

Task<void> SameHostSocket::serve(Stop& stop) {
  if (closed_) co_return;
  Stop serving(stop);
  serving_ = &serving;
  try {
    co_await answer_all(serving);
  } catch (const Error&) {
    serving_ = nullptr;
    listener_.reset();
    if (!closed_ || stop.requested()) throw;
  }
}

void SameHostSocket::close() noexcept {
  closed_ = true;
  if (serving_ == nullptr) return listener_.reset();
  serving_->request(std::make_exception_ptr(Error(Code::kAborted, "the job begins")));
}

// A token always fits into the socket's buffer, so a peer that does not read delays no other.
Task<void> SameHostSocket::answer_all(Stop& stop) {
  for (;;) {
    const std::unique_ptr<io::Stream> caller = co_await listener_->accept(stop);
    if (!io::is_of_user(*caller, user_)) continue;
    try {
      co_await io::write_all(*caller, std::as_bytes(std::span(token_)), stop);
    } catch (const Error&) {
      if (stop.requested()) throw;  // otherwise the peer has disconnected
    }
  }
}

Task<std::string> token_at(Loop& loop, io::Net& net, std::string name, std::uint32_t user, Stop& stop) {
  Stop patience(stop);
  Deadline deadline(loop, after(loop.now(), kTokenLimit), patience, "it tells no token");
  std::string token(kTokenLetters, ' ');
  try {
    const std::unique_ptr<io::Stream> there = co_await io::connect_on_this_host(net, std::move(name), user, patience);
    if (there == nullptr) co_return std::string();
    const bool told = co_await io::read_exactly(*there, std::as_writable_bytes(std::span(token)), patience);
    if (!told) token.clear();
  } catch (const Error&) {
    stop.throw_if_requested();
    token.clear();
  }
  co_return token;
}

}  // namespace aiacc::launcher
