#include "base/wire/acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace aiacc::wire {
namespace {

// The address of the other end, without its port.
std::string host_of(const std::string& description) {
  try {
    return io::Address::parse(description).name;
  } catch (const Error&) {  // no address of a connection: a simulated one says which host it is
    return description;
  }
}

// Connections are counted by source: the host without its port. An IPv6 host may use every address of its /64 prefix.
std::string source_of(const std::string& host) {
  in6_addr address;
  if (::inet_pton(AF_INET6, host.c_str(), &address) != 1) return host;
  return std::string(reinterpret_cast<const char*>(&address), 8);
}

// An address has several forms in IPv6.
std::string usual_form(const std::string& host) {
  in6_addr address;
  char text[INET6_ADDRSTRLEN];
  if (::inet_pton(AF_INET6, host.c_str(), &address) != 1) return host;
  return ::inet_ntop(AF_INET6, &address, text, sizeof text) == nullptr ? host : text;
}

constexpr Duration kAfterFailure =
    std::chrono::milliseconds(100);  // of accept(), for example because no descriptors are left

}  // namespace

Acceptor::Acceptor(Loop& loop, Owner& owner, std::unique_ptr<io::Listener> listener)
    : loop_(loop), owner_(owner), left_(loop), listener_(std::move(listener)) {}

Acceptor::~Acceptor() { close(); }

void Acceptor::reserve_for(std::span<const std::string> addresses) {
  for (const std::string& address : addresses) addresses_of_job_.insert(usual_form(address));
}

void Acceptor::open() {
  if (accept_loop_) return;
  accept_loop_.emplace(loop_, accept_all(), static_cast<Root::Owner&>(*this));
  accept_loop_->start();
}

void Acceptor::close() noexcept {
  closed_ = true;
  const auto why = std::make_exception_ptr(Error(Code::kAborted, "no connection is accepted any more"));
  stop_.request(why);
  for (Greeting& greeting : greetings_) greeting.stop.request(why);
}

void Acceptor::root_ended(Root& root, std::exception_ptr) noexcept {
  greetings_.remove_if([&](const Greeting& greeting) { return greeting.root && &*greeting.root == &root; });
  left_.set();
}

Task<void> Acceptor::accept_all() {
  for (;;) {
    std::unique_ptr<io::Stream> stream;
    try {
      stream = co_await listener_->accept(stop_);
    } catch (...) {
      if (stop_.requested()) throw;
    }
    if (stream == nullptr) {
      co_await sleep_for(loop_, kAfterFailure, stop_);
      continue;
    }
    admit(std::move(stream));
    while (greetings_.size() > kMostGreetings) {
      left_.reset();
      co_await left_.wait(stop_);
    }
  }
}

void Acceptor::admit(std::unique_ptr<io::Stream> stream) {
  if (greetings_.size() >= kMostGreetings) make_place();
  Greeting& greeting = greetings_.emplace_back();
  const std::string host = usual_form(host_of(stream->describe()));
  greeting.of_job = addresses_of_job_.contains(host);
  greeting.source = greeting.of_job ? host : source_of(host);  // its neighbours in the network are not of the job
  greeting.root.emplace(loop_, greet(&greeting, std::move(stream)), static_cast<Root::Owner&>(*this));
  greeting.root->start();
}

void Acceptor::make_place() {
  std::map<std::string_view, std::size_t> places;
  for (const Greeting& greeting : greetings_) places[greeting.source] += greeting.leaves ? 0 : 1;
  Greeting* chosen = nullptr;
  const auto rank = [&](const Greeting& one) {
    const std::size_t its = places[one.source];
    return std::tuple(!one.of_job || its > kReserved, its, !one.newcomer.heard.hello);
  };
  for (Greeting& greeting : greetings_) {  // the oldest of equals
    if (greeting.leaves) continue;
    if (chosen == nullptr || rank(greeting) > rank(*chosen)) chosen = &greeting;
  }
  if (chosen == nullptr) return;
  chosen->leaves = true;
  chosen->stop.request(
      std::make_exception_ptr(Error(Code::kAborted, "too many connections are waiting to prove themselves")));
}

Task<void> Acceptor::greet(Greeting* self, std::unique_ptr<io::Stream> stream) {
  bool& unauthenticated = self->newcomer.unauthenticated;
  try {
    Stop stop(self->stop);
    const Deadline deadline(loop_, after(loop_.now(), kHandshakeLimit), stop, "the handshake was not finished in time");
    co_await owner_.greet(std::move(stream), self->newcomer, stop);
  } catch (const Error& error) {
    // A late peer counts as unauthenticated. One that was dropped to make room may belong to the job; it connects
    // again. A rank may compute, be ended, or leave its world before it has said all: nobody has refused it.
    const HandshakeProgress& heard = self->newcomer.heard;
    if (error.code() == Code::kTimeout) unauthenticated = !self->of_job || heard.proof;
    if (error.code() == Code::kPeerFailed && self->of_job && !heard.hello) unauthenticated = false;
  } catch (...) {
  }
  if (unauthenticated && !closed_) owner_.peer_refused();
}

}  // namespace aiacc::wire
