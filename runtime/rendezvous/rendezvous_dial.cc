#include "runtime/rendezvous/rendezvous_dial.h"

#include <utility>

#include "runtime/watch/liveness_probe.h"

namespace aiacc {
namespace {

constexpr std::uint32_t kRosterBytes = wire::kLargestFrameBytes - 64;  // leaves room for encryption's header and tag

}  // namespace

Task<void> RendezvousDial::connect(io::Address address, Stop& stop) {
  stream_ = co_await connect_soon(dialer_.loop, dialer_.net, std::move(address), stop);
  stage_ = Stage::kConnected;
}

// Sends the hello, receives the challenge, and returns this end's proof.
Task<wire::Bytes> RendezvousDial::exchange_hello(wire::DialerHandshake& handshake, wire::HandshakeStorage& storage,
                                                 Stop& stop) {
  co_await io::write_all(*stream_, handshake.hello(), stop);
  std::span<const std::byte> challenge;
  try {
    challenge = co_await wire::read_handshake(*stream_, storage, stop);
  } catch (const Error& error) {
    if (error.code() == Code::kProtocol) stage_ = Stage::kMalformed;
    throw;
  }
  stage_ = Stage::kAnswered;
  wire::Bytes proof = handshake.prove(challenge, "");
  // From version 2 on the listener authenticates with its verdict and not with its challenge. Until the verdict, an end of the
  // stream is no evidence: a process that computes may have exceeded the time limit of the handshake.
  stage_ = handshake.listener_authenticated() ? Stage::kAuthenticated : Stage::kConnected;
  co_return proof;
}

Task<wire::DialerHandshake::Conclusion> RendezvousDial::exchange_proof(wire::DialerHandshake& handshake,
                                                                       wire::HandshakeStorage& storage,
                                                                       wire::Bytes proof, Stop& stop) {
  co_await io::write_all(*stream_, proof, stop);
  const std::span<const std::byte> said = co_await wire::read_handshake(*stream_, storage, stop);
  if (stage_ == Stage::kConnected) stage_ = Stage::kAnswered;
  wire::DialerHandshake::Conclusion conclusion = handshake.conclude(said);
  stage_ = Stage::kAuthenticated;
  co_return conclusion;
}

Task<void> RendezvousDial::await_proof_of(int rank, Stop& stop) {
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  const wire::Introduction introduction{wire::Purpose::kData, dialer_.job, dialer_.rank, rank};
  wire::DialerHandshake handshake(dialer_.secret, introduction, dialer_.entropy, dialer_.versions);
  wire::Bytes proof = co_await exchange_hello(handshake, *storage, stop);
  if (!handshake.listener_authenticated()) co_await exchange_proof(handshake, *storage, std::move(proof), stop);
}

Task<std::unique_ptr<wire::SecureChannel>> RendezvousDial::prove(Stop& stop) {
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  const wire::Introduction introduction{wire::Purpose::kControl, dialer_.job, dialer_.rank, 0};
  wire::DialerHandshake handshake(dialer_.secret, introduction, dialer_.entropy, dialer_.versions);
  wire::Bytes proof = co_await exchange_hello(handshake, *storage, stop);
  const wire::DialerHandshake::Conclusion conclusion =
      co_await exchange_proof(handshake, *storage, std::move(proof), stop);
  stage_ = Stage::kProved;
  version_ = handshake.version();
  given_up_ = conclusion.verdict == wire::Verdict::kGone;
  if (given_up_) throw Error(Code::kPeerFailed, "rank 0 has given this rank up for lost");
  if (conclusion.verdict != wire::Verdict::kAccepted) throw Error(Code::kPeerFailed, "rank 0 did not take the call");
  const wire::SessionKeys keys = handshake.keys();
  co_return std::make_unique<wire::SecureChannel>(dialer_.loop, std::move(stream_), keys.to_listener, keys.to_dialer,
                                                  kRosterBytes);
}

}  // namespace aiacc
