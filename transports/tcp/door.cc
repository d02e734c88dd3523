#include "transports/tcp/door.h"

#include <utility>

#include "base/wire/sealed_stream.h"

namespace aiacc::tcp {

Door::Door(Shared& shared, DoorOwner& owner, std::unique_ptr<io::Listener> listener)
    : shared_(shared), owner_(owner), reception_(shared.loop, *this, std::move(listener)) {}

// `stranger` is false where a rank of this job ends the conversation itself: its dial met ours.
Task<void> Door::greet(std::unique_ptr<io::Stream> stream, bool* stranger, Stop& stop) {
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  const wire::ListenerHandshake::Expected expected{wire::Purpose::kData, shared_.settings.job, shared_.settings.rank,
                                                   shared_.size()};
  wire::ListenerHandshake handshake(shared_.settings.secret, expected, *shared_.settings.entropy);

  const std::span<const std::byte> hello = co_await wire::read_handshake(*stream, *storage, stop);
  const wire::ListenerHandshake::Answer answer = handshake.answer(hello);
  *stranger = answer.refused;
  co_await io::write_all(*stream, answer.frame, stop);
  if (answer.refused) co_return;

  const std::span<const std::byte> proof = co_await wire::read_handshake(*stream, *storage, stop);
  *stranger = true;
  const Terms theirs = Terms::from(handshake.check(proof));
  *stranger = false;

  const int rank = handshake.who().from;
  const bool unlike = theirs.encrypts != shared_.encrypts;
  const wire::Verdict verdict = unlike ? wire::Verdict::kUnlike : owner_.judge(rank, theirs);
  wire::Bytes frame = handshake.decide(verdict, owner_.terms_for(rank).text());
  if (verdict != wire::Verdict::kAccepted) {
    co_await io::write_all(*stream, frame, stop);
    if (unlike) owner_.turn_away(rank, unlike_ends(shared_, rank, theirs.encrypts));
    co_return;
  }
  if (shared_.encrypts) {
    const wire::SessionKeys keys = handshake.keys();
    stream = std::make_unique<wire::SealedStream>(shared_.loop, std::move(stream), keys.to_dialer, keys.to_listener,
                                                  std::exchange(frame, {}));
  }
  owner_.let_in(rank, std::move(stream), theirs, std::move(frame));
}

}  // namespace aiacc::tcp
