// The handshake of every TCP connection: both ends prove that they know the job's secret before any other message.
//
//   dialer                                     listener
//     ConnectHello     versions, who, nonce, share ──▶
//                      ◀── ConnectShare               version, nonce, share      (or ConnectRefused: one sentence)
//     ConnectProof     terms, proof ─────────────────▶                           (or the same)
//                      ◀── ConnectVerdict             verdict, terms, proof
//
// The shares are ephemeral X25519 public keys. All proofs and session keys are derived from the job's secret and the
// shared X25519 key. This gives forward secrecy (somebody who learns the secret later cannot decrypt recorded traffic)
// and prevents off-line guessing of the secret by an eavesdropper. The dialer proves itself first: a listener sends
// nothing that depends on the secret to a dialer that has not proved itself.
//
// If one end speaks only version 1, there are no shares, and the listener's first frame is a ConnectChallenge with a
// proof. An attacker in between cannot downgrade two ends of version 2 to version 1: the proof of a ConnectChallenge
// covers the hello.
//
// A proof is a keyed hash over a label, which differs for each of the three proofs, and the transcript hash: all bytes
// sent before it in this handshake (versions, purpose, job, both ranks, both nonces). Replay in another handshake and
// reflection to the sender therefore fail. `terms` are bytes of the caller that the proofs cover.
//
// The two classes are the ends without a connection: frames in, frames out. Their input comes from unauthenticated
// peers; invalid bytes throw kProtocol, and the memory used does not depend on them. docs/wire-protocol.md has test
// vectors.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "base/io/net.h"
#include "base/time.h"
#include "base/wire/frame.h"
#include "base/wire/secret.h"

namespace aiacc::wire {

inline constexpr std::uint32_t kHandshakeMagic = 0x63616961;  // "aiac"
inline constexpr std::size_t kMaxHandshakeBytes = 4096;       // the longest frame
inline constexpr std::size_t kMaxTermsBytes = 256;
inline constexpr Duration kHandshakeLimit = std::chrono::seconds(3);

inline constexpr std::uint16_t kFirstWithShares = 2;  // the first version with shares
struct Versions {                                     // the range of versions that an end speaks
  std::uint16_t oldest = 1;
  std::uint16_t newest = 2;
};

// A log line about an end that speaks an older version: "rank 3 on host b speaks …".
std::string old_version_remark(std::string_view who);

enum class Purpose : std::uint16_t {
  kData = 1,       // messages between two ranks (transports/tcp)
  kControl = 2,    // rendezvous (base/wire/rendezvous_messages.h)
  kLocalPeer = 3,  // between ranks of one host, over a local socket
};

enum class Verdict : std::uint8_t {
  kAccepted = 0,
  kBusy = 1,    // this pair has, or is making, another connection: try again if that one breaks
  kGone = 2,    // the listener has declared the dialer lost
  kUnlike = 3,  // the configurations of the two ends contradict each other; the terms say where
};

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;
using Share = std::array<std::byte, 32>;

struct Introduction {
  Purpose purpose = Purpose::kData;
  std::uint64_t job = 0;
  std::int32_t from = 0;  // the dialer's rank
  std::int32_t to = 0;    // the rank that it dials
  auto fields() { return std::tie(purpose, job, from, to); }
};

// The first three fields are the same in every version. Later versions append fields; older versions skip these.
struct ConnectHello {
  static constexpr std::uint16_t kType = 201;
  std::uint32_t magic = kHandshakeMagic;
  std::uint16_t oldest = 1;
  std::uint16_t newest = 2;
  Introduction who;
  Nonce nonce{};
  Share share{};  // absent if newest is 1
  auto fields() { return std::tie(magic, oldest, newest, who, nonce, share); }
};

// Since version 2.
struct ConnectShare {
  static constexpr std::uint16_t kType = 206;
  std::uint16_t version = 2;  // the newest that both speak
  Nonce nonce{};
  Share share{};
  auto fields() { return std::tie(version, nonce, share); }
};

// Version 1, in place of ConnectShare.
struct ConnectChallenge {
  static constexpr std::uint16_t kType = 202;
  std::uint16_t version = 1;
  Nonce nonce{};
  Proof proof{};
  auto fields() { return std::tie(version, nonce, proof); }
};

struct ConnectProof {
  static constexpr std::uint16_t kType = 203;
  std::string terms;
  Proof proof{};
  auto fields() { return std::tie(terms, proof); }
};

struct ConnectVerdict {
  static constexpr std::uint16_t kType = 204;
  Verdict verdict = Verdict::kAccepted;
  std::string terms;
  Proof proof{};
  auto fields() { return std::tie(verdict, terms, proof); }
};

// In place of a share, a challenge or a verdict. It has no proof, so it ends only this attempt and has no other effect.
struct ConnectRefused {
  static constexpr std::uint16_t kType = 205;
  std::string sentence;
  auto fields() { return std::tie(sentence); }
};

struct SessionKeys {
  Secret to_listener;
  Secret to_dialer;
};

// The running hash of all bytes of a handshake.
class Transcript {
 public:
  Transcript();
  ~Transcript();
  void add(std::span<const std::byte> bytes);
  // The hash, keyed with `secret`, of the label, the transcript and `last`.
  Proof prove(const Secret& secret, std::string_view label, std::span<const std::byte> last = {}) const;

 private:
  struct State;  // libsodium's state, whose alignment exceeds that of coroutine frames
  std::unique_ptr<State> state_;
};

class DialerHandshake {
 public:
  DialerHandshake(const Secret& secret, const Introduction& who, io::Entropy& entropy, Versions versions = {});

  const Bytes& hello() const noexcept { return hello_; }  // the first frame
  // The answer to the listener's share or challenge. Throws kPeerFailed with the listener's sentence if it refused.
  Bytes prove(std::span<const std::byte> challenge, std::string_view terms);
  // After prove(): whether the listener has proved itself already. Since version 2 only its verdict does that.
  bool listener_authenticated() const noexcept { return version_ < kFirstWithShares; }
  struct Conclusion {
    Verdict verdict = Verdict::kGone;
    std::string terms;
  };
  Conclusion conclude(std::span<const std::byte> verdict);

  std::uint16_t version() const noexcept { return version_; }  // after prove()
  SessionKeys keys() const;                                    // after conclude()

 private:
  void expect_version(std::uint16_t chosen, bool with_share) const;

  Secret secret_;     // the key of the proofs: the job's secret, or the one derived from it and the shares
  Secret ephemeral_;  // the private key of the share, until it is used
  Versions versions_;
  std::uint16_t version_ = 0;
  Bytes hello_;
  Transcript transcript_;
};

class ListenerHandshake {
 public:
  struct Expected {
    Purpose purpose = Purpose::kData;
    std::uint64_t job = 0;
    std::int32_t rank = 0;  // the listener's own
    std::int32_t size = 0;  // ranks of the job
  };
  ListenerHandshake(const Secret& secret, const Expected& expected, io::Entropy& entropy, Versions versions = {});

  struct Answer {
    Bytes frame;
    bool refused = false;  // send the frame, then close
  };
  // Answers the first frame.
  Answer answer(std::span<const std::byte> hello);
  // Verifies the dialer's proof and returns its terms.
  std::string check(std::span<const std::byte> proof);
  // In place of a verdict, for a dialer whose proof is wrong: its user may have given it another secret.
  Bytes refusal() const;
  Bytes decide(Verdict verdict, std::string_view terms);

  const Introduction& who() const noexcept { return who_; }  // authenticated after check()
  std::uint16_t version() const noexcept { return version_; }
  SessionKeys keys() const;  // after decide()

 private:
  Answer refuse(const std::string& sentence) const;

  Answer challenge();
  Answer share(const Share& theirs);

  Secret secret_;  // the key of the proofs, as in DialerHandshake
  Expected expected_;
  io::Entropy& entropy_;
  Versions versions_;
  std::uint16_t version_ = 0;
  Introduction who_;
  Transcript transcript_;
};

// Reads the next frame of a handshake into `storage`. Throws kProtocol for an invalid frame or an end of stream inside
// one, and kPeerFailed for an end of stream before the first byte.
using HandshakeStorage = std::array<std::byte, kMaxHandshakeBytes>;
Task<std::span<const std::byte>> read_handshake(io::Stream& stream, HandshakeStorage& storage, Stop& stop);

// Runs the listener's half up to the dialer's valid proof and returns its terms; nullopt if the dialer was refused and
// told so.
struct HandshakeProgress {
  bool hello = false;  // a hello was received that was not refused
  bool proof = false;  // a proof was received, valid or not
};
Task<std::optional<std::string>> accept_terms(ListenerHandshake& handshake, io::Stream& stream, Stop& stop,
                                              HandshakeProgress& heard);
// The same for callers without terms: returns whether the dialer proved itself.
Task<bool> accept_proof(ListenerHandshake& handshake, io::Stream& stream, Stop& stop, HandshakeProgress& heard);

}  // namespace aiacc::wire
