#include "base/wire/handshake.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>

#include "base/wire/raw.h"

namespace aiacc::wire {
namespace {

constexpr std::string_view kAgreementLabel = "aiacc agreement";
constexpr std::string_view kListenerLabel = "aiacc listener";
constexpr std::string_view kDialerLabel = "aiacc dialer";
constexpr std::string_view kVerdictLabel = "aiacc verdict";
constexpr std::string_view kUpLabel = "aiacc key up";
constexpr std::string_view kDownLabel = "aiacc key down";
constexpr std::size_t kLabelBytes = 16;  // padded with zeros

struct Parsed {
  std::uint16_t type = 0;
  std::span<const std::byte> body;
};

Parsed parse(std::span<const std::byte> frame) {
  Parsed parsed;
  std::uint32_t length = 0;
  Reader reader(frame, "a handshake");
  reader.get(length);
  reader.get(parsed.type);
  if (frame.size() > kMaxHandshakeBytes || length != frame.size() - sizeof length) {
    throw Error(Code::kProtocol,
                fmt::format("a handshake frame announces {} bytes and has {}", length, frame.size() - sizeof length));
  }
  parsed.body = frame.subspan(kFrameHeaderBytes);
  return parsed;
}

template <Message T>
T message_in(const Parsed& parsed) {
  if (parsed.type != T::kType) {
    throw Error(Code::kProtocol,
                fmt::format("a handshake goes on with a message of type {} where one of type {} is due", parsed.type,
                            T::kType));
  }
  return decode<T>(parsed.body, "a handshake");
}

// Every frame but the first ends with a proof of all bytes before it.
std::span<const std::byte> before_proof(std::span<const std::byte> frame) noexcept {
  return frame.first(frame.size() - sizeof(Proof));
}

void put_proof(Bytes& frame, const Proof& proof) noexcept {
  std::copy(proof.begin(), proof.end(), frame.end() - static_cast<std::ptrdiff_t>(sizeof proof));
}

void expect_proof(const Proof& mine, const Proof& theirs, std::string_view who) {
  if (sodium_memcmp(mine.data(), theirs.data(), mine.size()) == 0) return;
  throw Error(Code::kProtocol, fmt::format("{} does not know the secret of this job", who));
}

void expect_terms(const std::string& terms) {
  if (terms.size() <= kMaxTermsBytes) return;
  throw Error(Code::kProtocol,
              fmt::format("a handshake has {} bytes of terms; {} are possible", terms.size(), kMaxTermsBytes));
}

// Makes an unauthenticated peer's sentence safe to print: without control characters.
std::string printable(const std::string& text) {
  std::string clean = text.substr(0, 256);
  std::replace_if(
      clean.begin(), clean.end(), [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  return clean;
}

std::string span_of(Versions versions) {
  return versions.oldest == versions.newest ? fmt::format("version {}", versions.newest)
                                            : fmt::format("versions {} to {}", versions.oldest, versions.newest);
}

[[noreturn]] void throw_refusal(const Parsed& parsed) {
  throw Error(Code::kPeerFailed, printable(message_in<ConnectRefused>(parsed).sentence));
}

Share share_of(const Secret& ephemeral) {
  Share share;
  crypto_scalarmult_base(reinterpret_cast<unsigned char*>(share.data()), raw(ephemeral.bytes()));
  return share;
}

// The key for everything after the two shares, which are the last part of the transcript.
Secret agree(const Secret& secret, const Secret& ephemeral, const Share& theirs, const Transcript& transcript) {
  std::array<std::byte, crypto_scalarmult_BYTES> agreed;
  if (crypto_scalarmult(reinterpret_cast<unsigned char*>(agreed.data()), raw(ephemeral.bytes()), raw(theirs)) != 0) {
    throw Error(Code::kProtocol, "a handshake has a share with which nothing can be agreed on");
  }
  Proof key = transcript.prove(secret, kAgreementLabel, agreed);
  Secret result(key);
  sodium_memzero(agreed.data(), agreed.size());
  sodium_memzero(key.data(), key.size());
  return result;
}

// Includes the share, if there is one.
Bytes encode_hello(const ConnectHello& hello) {
  Bytes frame = encode_frame(hello);
  if (hello.newest >= kFirstWithShares) return frame;
  frame.resize(frame.size() - sizeof(Share));
  finish_frame(frame, ConnectHello::kType);
  return frame;
}

SessionKeys session_keys(const Secret& secret, const Transcript& transcript) {
  Proof to_listener = transcript.prove(secret, kUpLabel);
  Proof to_dialer = transcript.prove(secret, kDownLabel);
  SessionKeys keys{Secret(to_listener), Secret(to_dialer)};
  sodium_memzero(to_listener.data(), to_listener.size());
  sodium_memzero(to_dialer.data(), to_dialer.size());
  return keys;
}

}  // namespace

// --- Transcript -----------------------------------------------------------------------------------------------------------

struct Transcript::State {
  crypto_generichash_state hash;
};

Transcript::Transcript() : state_(std::make_unique<State>()) {
  static const int ready = sodium_init();  // chooses the fastest code for the processor; once per process
  AIACC_INVARIANT(ready >= 0, "libsodium cannot be initialised");
  crypto_generichash_init(&state_->hash, nullptr, 0, sizeof(Proof));
}

Transcript::~Transcript() = default;

void Transcript::add(std::span<const std::byte> bytes) {
  crypto_generichash_update(&state_->hash, raw(bytes), bytes.size());
}

Proof Transcript::prove(const Secret& secret, std::string_view label, std::span<const std::byte> last) const {
  std::array<unsigned char, kLabelBytes + sizeof(Proof)> said{};
  std::copy(label.begin(), label.end(), said.begin());
  crypto_generichash_state ended = state_->hash;
  crypto_generichash_update(&ended, raw(last), last.size());
  crypto_generichash_final(&ended, said.data() + kLabelBytes, sizeof(Proof));
  Proof proof;
  crypto_generichash(reinterpret_cast<unsigned char*>(proof.data()), proof.size(), said.data(), said.size(),
                     raw(secret.bytes()), Secret::kBytes);
  return proof;
}

// --- the dialer -----------------------------------------------------------------------------------------------------------

DialerHandshake::DialerHandshake(const Secret& secret, const Introduction& who, io::Entropy& entropy, Versions versions)
    : secret_(secret), versions_(versions) {
  ConnectHello hello;
  hello.oldest = versions.oldest;
  hello.newest = versions.newest;
  hello.who = who;
  entropy.fill(hello.nonce);
  if (versions.newest >= kFirstWithShares) {
    ephemeral_ = Secret::fresh(entropy);
    hello.share = share_of(ephemeral_);
  }
  hello_ = encode_hello(hello);
  transcript_.add(hello_);
}

Bytes DialerHandshake::prove(std::span<const std::byte> challenge, std::string_view terms) {
  const Parsed parsed = parse(challenge);
  if (parsed.type == ConnectRefused::kType) throw_refusal(parsed);
  if (parsed.type == ConnectShare::kType) {
    const auto said = message_in<ConnectShare>(parsed);
    expect_version(said.version, true);
    transcript_.add(challenge);
    secret_ = agree(secret_, ephemeral_, said.share, transcript_);
    version_ = said.version;
  } else {
    const auto said = message_in<ConnectChallenge>(parsed);
    expect_version(said.version, false);
    expect_proof(transcript_.prove(secret_, kListenerLabel, before_proof(challenge)), said.proof, "the other end");
    transcript_.add(challenge);
    version_ = said.version;
  }
  ephemeral_ = Secret();

  ConnectProof proof;
  proof.terms = terms;
  Bytes frame = encode_frame(proof);
  put_proof(frame, transcript_.prove(secret_, kDialerLabel, before_proof(frame)));
  transcript_.add(frame);
  return frame;
}

void DialerHandshake::expect_version(std::uint16_t chosen, bool with_share) const {
  const bool spoken = chosen >= versions_.oldest && chosen <= versions_.newest;
  if (spoken && (chosen >= kFirstWithShares) == with_share) return;
  throw Error(Code::kProtocol, fmt::format("the other end chose version {} of the protocol; this end speaks {}", chosen,
                                           span_of(versions_)));
}

DialerHandshake::Conclusion DialerHandshake::conclude(std::span<const std::byte> verdict) {
  const Parsed parsed = parse(verdict);
  if (parsed.type == ConnectRefused::kType) throw_refusal(parsed);
  auto said = message_in<ConnectVerdict>(parsed);
  expect_proof(transcript_.prove(secret_, kVerdictLabel, before_proof(verdict)), said.proof, "the other end");
  expect_terms(said.terms);
  if (said.verdict > Verdict::kUnlike) {
    throw Error(Code::kProtocol,
                fmt::format("a handshake ends with the unknown verdict {}", static_cast<int>(said.verdict)));
  }
  transcript_.add(verdict);
  return {said.verdict, std::move(said.terms)};
}

SessionKeys DialerHandshake::keys() const { return session_keys(secret_, transcript_); }

// --- the listener ---------------------------------------------------------------------------------------------------------

ListenerHandshake::ListenerHandshake(const Secret& secret, const Expected& expected, io::Entropy& entropy,
                                     Versions versions)
    : secret_(secret), expected_(expected), entropy_(entropy), versions_(versions) {}

ListenerHandshake::Answer ListenerHandshake::refuse(const std::string& sentence) const {
  ConnectRefused refused;
  refused.sentence = sentence;
  return {encode_frame(refused), true};
}

ListenerHandshake::Answer ListenerHandshake::answer(std::span<const std::byte> hello) {
  const Parsed parsed = parse(hello);
  if (parsed.type != ConnectHello::kType) {
    throw Error(Code::kProtocol, fmt::format("a connection begins with a message of type {}, no hello", parsed.type));
  }
  ConnectHello said;
  Reader reader(parsed.body, "a hello");
  reader.get(said.magic);
  reader.get(said.oldest);
  reader.get(said.newest);
  if (said.magic != kHandshakeMagic || said.oldest > said.newest) {
    throw Error(Code::kProtocol, "the connecting process does not use this protocol");
  }
  if (said.newest < versions_.oldest || said.oldest > versions_.newest) {
    return refuse(
        fmt::format("this end speaks {} of the aiacc protocol and the other end {}: run the same aiacc on all "
                    "hosts",
                    span_of(versions_), span_of({said.oldest, said.newest})));
  }
  reader.get(said.who);
  reader.get(said.nonce);
  if (std::min(said.newest, versions_.newest) >= kFirstWithShares) reader.get(said.share);
  if (said.newest <= versions_.newest) reader.expect_end();
  if (said.who.purpose != expected_.purpose || said.who.job != expected_.job || said.who.to != expected_.rank ||
      said.who.from < 0 || said.who.from >= expected_.size || said.who.from == expected_.rank) {
    return refuse("this is not the rank or not the job that was called");
  }
  who_ = said.who;
  version_ = std::min(said.newest, versions_.newest);
  transcript_.add(hello);
  return version_ >= kFirstWithShares ? share(said.share) : challenge();
}

ListenerHandshake::Answer ListenerHandshake::share(const Share& theirs) {
  ConnectShare mine;
  mine.version = version_;
  entropy_.fill(mine.nonce);
  const Secret ephemeral = Secret::fresh(entropy_);
  mine.share = share_of(ephemeral);
  Answer answer{encode_frame(mine), false};
  transcript_.add(answer.frame);
  secret_ = agree(secret_, ephemeral, theirs, transcript_);
  return answer;
}

ListenerHandshake::Answer ListenerHandshake::challenge() {
  ConnectChallenge challenge;
  challenge.version = version_;
  entropy_.fill(challenge.nonce);
  Answer answer{encode_frame(challenge), false};
  put_proof(answer.frame, transcript_.prove(secret_, kListenerLabel, before_proof(answer.frame)));
  transcript_.add(answer.frame);
  return answer;
}

std::string ListenerHandshake::check(std::span<const std::byte> proof) {
  AIACC_INVARIANT(version_ != 0, "a proof is checked after the hello was answered");
  auto said = message_in<ConnectProof>(parse(proof));
  expect_proof(transcript_.prove(secret_, kDialerLabel, before_proof(proof)), said.proof, "what connects here");
  expect_terms(said.terms);
  transcript_.add(proof);
  return std::move(said.terms);
}

Bytes ListenerHandshake::refusal() const {
  return refuse("the secret of the job that listens here is another one").frame;
}

Bytes ListenerHandshake::decide(Verdict verdict, std::string_view terms) {
  ConnectVerdict said;
  said.verdict = verdict;
  said.terms = terms;
  Bytes frame = encode_frame(said);
  put_proof(frame, transcript_.prove(secret_, kVerdictLabel, before_proof(frame)));
  transcript_.add(frame);
  return frame;
}

SessionKeys ListenerHandshake::keys() const { return session_keys(secret_, transcript_); }

// --- over a stream --------------------------------------------------------------------------------------------------------

Task<std::span<const std::byte>> read_handshake(io::Stream& stream, HandshakeStorage& storage, Stop& stop) {
  const std::span<std::byte> whole(storage);
  const std::span<std::byte> head = whole.first(kFrameHeaderBytes);
  const bool any = co_await io::read_exactly(stream, head, stop);
  if (!any) {
    throw Error(Code::kPeerFailed, fmt::format("{} closed the connection during the handshake", stream.describe()));
  }
  std::uint32_t length = 0;
  Reader(head, "a handshake").get(length);
  if (length < sizeof(std::uint16_t) || length > kMaxHandshakeBytes - sizeof length) {
    throw Error(Code::kProtocol, fmt::format("{} announces {} bytes of handshake; {} are possible", stream.describe(),
                                             length, kMaxHandshakeBytes - sizeof length));
  }
  const std::size_t bytes = sizeof length + length;
  const std::span<std::byte> body = whole.subspan(kFrameHeaderBytes, bytes - kFrameHeaderBytes);
  if (!body.empty()) {
    const bool more = co_await io::read_exactly(stream, body, stop);
    if (!more) {
      throw Error(Code::kProtocol, fmt::format("{} closed the connection during the handshake", stream.describe()));
    }
  }
  co_return whole.first(bytes);
}

Task<std::optional<std::string>> accept_terms(ListenerHandshake& handshake, io::Stream& stream, Stop& stop,
                                              HandshakeProgress& heard) {
  const auto storage = std::make_unique<HandshakeStorage>();
  const std::span<const std::byte> hello = co_await read_handshake(stream, *storage, stop);
  const ListenerHandshake::Answer answer = handshake.answer(hello);
  heard.hello = !answer.refused;
  co_await io::write_all(stream, answer.frame, stop);
  if (answer.refused) co_return std::nullopt;
  const std::span<const std::byte> proof = co_await read_handshake(stream, *storage, stop);
  heard.proof = true;
  std::exception_ptr wrong;
  try {
    co_return handshake.check(proof);
  } catch (...) {
    wrong = std::current_exception();
  }
  if (handshake.version() >= kFirstWithShares) {
    const Bytes refusal = handshake.refusal();
    co_await io::write_all(stream, refusal, stop);
  }
  std::rethrow_exception(wrong);
}

Task<bool> accept_proof(ListenerHandshake& handshake, io::Stream& stream, Stop& stop, HandshakeProgress& heard) {
  const std::optional<std::string> terms = co_await accept_terms(handshake, stream, stop, heard);
  co_return terms.has_value();
}

std::string old_version_remark(std::string_view who) {
  return std::string(who) + " speaks version 1 of the protocol between ranks: run the same aiacc on all hosts";
}

}  // namespace aiacc::wire
