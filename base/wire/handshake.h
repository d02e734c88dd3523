// The handshake of every TCP connection: both ends prove that they know the job's secret before anything else is said.
//
//   dialer                                     listener
//     ConnectHello     versions, who, nonce ──▶
//                      ◀── ConnectChallenge    version, nonce, proof      (or ConnectRefused: one sentence)
//     ConnectProof     terms, proof ──────────▶
//                      ◀── ConnectVerdict      verdict, terms, proof
//
// A proof is a hash keyed with the secret over a label, which differs for each of the three, and the hash of everything that
// was said before it in this handshake: versions, purpose, job, both ranks, both nonces. So nothing of one handshake is worth
// anything in another, and nothing comes back to its speaker as true. `terms` are bytes of the caller that the proofs cover.
//
// The two classes are the ends without a connection: frames in, frames out. Bytes come from strangers; what is wrong throws
// kProtocol, and the memory used does not depend on them. docs/wire-protocol.md has test vectors.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
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
inline constexpr std::size_t kMaxHandshakeBytes = 4096;       // of a frame
inline constexpr std::size_t kMaxTermsBytes = 256;
inline constexpr Duration kHandshakeLimit = std::chrono::seconds(3);

struct Versions {  // that an end speaks
  std::uint16_t oldest = 1;
  std::uint16_t newest = 1;
};

enum class Purpose : std::uint16_t {
  kData = 1,       // messages between two ranks (transports/tcp)
  kControl = 2,    // rendezvous (base/wire/rendezvous_messages.h)
  kNeighbour = 3,  // between ranks of one host, over a local socket
};

enum class Verdict : std::uint8_t {
  kAccepted = 0,
  kBusy = 1,    // another connection of this pair is being made or stands: come back if it does not last
  kGone = 2,    // this end has given the other one up for lost
  kUnlike = 3,  // what the two ends were told to do does not fit together: the terms say what
};

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

struct Introduction {
  Purpose purpose = Purpose::kData;
  std::uint64_t job = 0;
  std::int32_t from = 0;  // the dialer's rank
  std::int32_t to = 0;    // the rank it wants to speak with
  auto fields() { return std::tie(purpose, job, from, to); }
};

// Its first three fields are the same in every version. Later versions append fields; who does not know them skips them.
struct ConnectHello {
  static constexpr std::uint16_t kType = 201;
  std::uint32_t magic = kHandshakeMagic;
  std::uint16_t oldest = 1;
  std::uint16_t newest = 1;
  Introduction who;
  Nonce nonce{};
  auto fields() { return std::tie(magic, oldest, newest, who, nonce); }
};

struct ConnectChallenge {
  static constexpr std::uint16_t kType = 202;
  std::uint16_t version = 1;  // the newest that both speak
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

// Instead of a challenge. Not proved: it explains, and decides nothing but this attempt.
struct ConnectRefused {
  static constexpr std::uint16_t kType = 205;
  std::string sentence;
  auto fields() { return std::tie(sentence); }
};

struct SessionKeys {
  Secret to_listener;
  Secret to_dialer;
};

// What was said so far, as a hash.
class Transcript {
 public:
  Transcript();
  ~Transcript();
  void add(std::span<const std::byte> bytes);
  // Keyed with `secret`, over the label and the transcript followed by `last`.
  Proof prove(const Secret& secret, std::string_view label, std::span<const std::byte> last = {}) const;

 private:
  struct State;  // of libsodium; aligned more than a coroutine's frame
  std::unique_ptr<State> state_;
};

class DialerHandshake {
 public:
  DialerHandshake(const Secret& secret, const Introduction& who, io::Entropy& entropy, Versions versions = {});

  const Bytes& hello() const noexcept { return hello_; }  // the first frame
  // The answer to the listener's challenge, which proves itself first. Throws kPeerFailed with the listener's sentence if it
  // refuses.
  Bytes prove(std::span<const std::byte> challenge, std::string_view terms);
  struct Conclusion {
    Verdict verdict = Verdict::kGone;
    std::string terms;
  };
  Conclusion conclude(std::span<const std::byte> verdict);

  std::uint16_t version() const noexcept { return version_; }  // after prove()
  SessionKeys keys() const;                                    // after conclude()

 private:
  Secret secret_;
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
    std::int32_t rank = 0;  // mine
    std::int32_t size = 0;  // ranks of the job
  };
  ListenerHandshake(const Secret& secret, const Expected& expected, io::Entropy& entropy, Versions versions = {});

  struct Answer {
    Bytes frame;
    bool refused = false;  // say it, then close
  };
  // To the first frame.
  Answer answer(std::span<const std::byte> hello);
  // The terms of a dialer that has proved itself.
  std::string check(std::span<const std::byte> proof);
  Bytes decide(Verdict verdict, std::string_view terms);

  const Introduction& who() const noexcept { return who_; }  // proved after check()
  std::uint16_t version() const noexcept { return version_; }
  SessionKeys keys() const;  // after decide()

 private:
  Answer refuse(const std::string& sentence) const;

  Secret secret_;
  Expected expected_;
  io::Entropy& entropy_;
  Versions versions_;
  std::uint16_t version_ = 0;
  Introduction who_;
  Transcript transcript_;
};

// The next frame of a handshake, in `storage`. Throws kProtocol for what is none, also where the stream ends in the middle, and
// kPeerFailed where it ends before the first byte.
using HandshakeStorage = std::array<std::byte, kMaxHandshakeBytes>;
Task<std::span<const std::byte>> read_handshake(io::Stream& stream, HandshakeStorage& storage, Stop& stop);

// The listener's half up to the dialer's proof, which holds; false if the dialer was refused, and has been told so.
Task<bool> hear_proof(ListenerHandshake& handshake, io::Stream& stream, Stop& stop);

}  // namespace aiacc::wire
