#include "runtime/rendezvous/reconnect_acceptor.h"

#include <utility>

namespace aiacc {

void ReconnectAcceptor::open(const wire::Roster& roster) {
  secret_ = wire::Secret::from(roster.secret);
  expected_ = {wire::Purpose::kControl, roster.job, 0, static_cast<std::int32_t>(roster.ranks.size())};
  for (const wire::RosterEntry& entry : roster.ranks) acceptor_.reserve_for(entry.addresses);
  acceptor_.open();
}

// The protocol version is not checked: the process is the one that arrived at the rendezvous, where its version was checked.
Task<void> ReconnectAcceptor::greet(std::unique_ptr<io::Stream> stream, wire::Acceptor::Newcomer& newcomer,
                                    Stop& stop) {
  wire::ListenerHandshake handshake(secret_, expected_, entropy_);
  const bool proved = co_await wire::accept_proof(handshake, *stream, stop, newcomer.heard);
  if (!proved) co_return;
  newcomer.unauthenticated = false;
  const int rank = handshake.who().from;
  const bool welcome = owner_.may_reconnect(rank);
  const wire::Bytes verdict = handshake.decide(welcome ? wire::Verdict::kAccepted : wire::Verdict::kGone, "");
  co_await io::write_all(*stream, verdict, stop);
  if (welcome) owner_.reconnected(rank, std::move(stream), handshake.keys());
}

}  // namespace aiacc
