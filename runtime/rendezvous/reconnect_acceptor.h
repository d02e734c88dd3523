// ReconnectAcceptor: rank 0's listener for ranks that lost their connection. It lives as long as the job, so that the
// rendezvous endpoint is free for the next job.
#pragma once

#include <memory>

#include "base/io/clock.h"
#include "base/wire/acceptor.h"
#include "base/wire/rendezvous_messages.h"

namespace aiacc {

class ReconnectAcceptor final : private wire::Acceptor::Owner {
 public:
  class Owner {
   public:
    virtual bool may_reconnect(int rank) const noexcept = 0;
    // The rank has authenticated, and its reconnection was accepted.
    virtual void reconnected(int rank, std::unique_ptr<io::Stream> stream, const wire::SessionKeys& keys) = 0;

   protected:
    ~Owner() = default;
  };

  // Owner and entropy outlive the acceptor.
  ReconnectAcceptor(Loop& loop, Owner& owner, std::unique_ptr<io::Listener> listener, io::Entropy& entropy)
      : owner_(owner),
        entropy_(entropy),
        port_(listener->address().port),
        acceptor_(loop, static_cast<wire::Acceptor::Owner&>(*this), std::move(listener)) {}

  std::uint16_t port() const noexcept { return port_; }
  void open(const wire::Roster& roster);

 private:
  Task<void> greet(std::unique_ptr<io::Stream> stream, wire::Acceptor::Newcomer& newcomer, Stop& stop) override;
  void peer_refused() noexcept override {}  // unauthenticated peers are reported only for the rendezvous itself

  Owner& owner_;
  io::Entropy& entropy_;
  std::uint16_t port_;
  wire::Secret secret_;
  wire::ListenerHandshake::Expected expected_;
  wire::Acceptor acceptor_;
};

}  // namespace aiacc
