#include "transports/tcp/data_acceptor.h"

#include <utility>

#include "base/wire/sealed_stream.h"

namespace aiacc::tcp {

DataAcceptor::DataAcceptor(Shared& shared, DataAcceptorOwner& owner, std::unique_ptr<io::Listener> listener)
    : shared_(shared), owner_(owner), acceptor_(shared.loop, *this, std::move(listener)) {
  std::vector<std::string> addresses;
  for (const TcpPort::Peer& peer : shared.settings.peers) {
    for (const io::Address& address : peer.addresses) addresses.push_back(address.name);
  }
  acceptor_.reserve_for(addresses);
}

// A rank of this job may end the conversation itself before its proof, because its dial met ours: it is no unauthenticated
// peer.
Task<void> DataAcceptor::greet(std::unique_ptr<io::Stream> stream, wire::Acceptor::Newcomer& newcomer, Stop& stop) {
  const wire::ListenerHandshake::Expected expected{wire::Purpose::kData, shared_.settings.job, shared_.settings.rank,
                                                   shared_.size()};
  wire::ListenerHandshake handshake(shared_.settings.secret, expected, *shared_.settings.entropy, shared_.versions());
  std::optional<std::string> said;
  try {
    said = co_await wire::accept_terms(handshake, *stream, stop, newcomer.heard);
  } catch (...) {
    const bool lied = newcomer.heard.proof || as_error(std::current_exception()).code() == Code::kProtocol;
    newcomer.unauthenticated = !newcomer.heard.hello || lied;
    throw;
  }
  if (!said) co_return;
  // Rank 0 only looks whether this rank lives. Its version was reported when the two met at the rendezvous.
  if (said->empty()) {
    newcomer.unauthenticated = false;
    const wire::Bytes verdict = handshake.decide(wire::Verdict::kBusy, "");
    co_await io::write_all(*stream, verdict, stop);
    co_return;
  }
  const Terms theirs = Terms::from(*said);
  newcomer.unauthenticated = false;

  const int rank = handshake.who().from;
  const std::optional<wire::Protection> how = wire::common(shared_.protection, theirs.protection);
  const wire::Verdict verdict = !how ? wire::Verdict::kUnlike : owner_.judge(rank, theirs);
  if (how) shared_.note_version(rank, handshake.version());
  wire::Bytes frame = handshake.decide(verdict, owner_.terms_for(rank, theirs.stream).text());
  if (verdict != wire::Verdict::kAccepted) {
    co_await io::write_all(*stream, frame, stop);
    if (!how) owner_.turn_away(rank, unlike_ends(shared_, rank, theirs.protection));
    co_return;
  }
  owner_.mark(rank, theirs, *stream);
  if (*how != wire::Protection::kNone) {
    const wire::SessionKeys keys = handshake.keys();
    stream = std::make_unique<wire::SealedStream>(shared_.loop, std::move(stream), *how, keys.to_dialer,
                                                  keys.to_listener, std::exchange(frame, {}));
  }
  owner_.let_in(rank, std::move(stream), theirs, std::move(frame));
}

}  // namespace aiacc::tcp
