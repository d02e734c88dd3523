#include "base/wire/handshake.h"

#include <gtest/gtest.h>

#include <map>

#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/wire/documented_vectors.h"

namespace aiacc::wire {
namespace {

// Entropy whose bytes count up from a given one.
class CountingEntropy final : public io::Entropy {
 public:
  explicit CountingEntropy(int first) noexcept : next_(first) {}
  void fill(std::span<std::byte> bytes) override {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(next_++);
  }

 private:
  int next_;
};

Secret handshake_secret(int salt) {
  CountingEntropy entropy(salt);
  return Secret::fresh(entropy);
}

constexpr Introduction kWho{Purpose::kData, 0x0123456789abcdef, 3, 1};
constexpr ListenerHandshake::Expected kExpected{Purpose::kData, 0x0123456789abcdef, 1, 4};

struct Ends {
  explicit Ends(Versions dialers = {}, Versions listeners = {}, const Secret& its = handshake_secret(0),
                const Secret& theirs = handshake_secret(0))
      : dialer(its, kWho, dialer_entropy, dialers), listener(theirs, kExpected, listener_entropy, listeners) {}
  CountingEntropy dialer_entropy{0x40}, listener_entropy{0x80};
  DialerHandshake dialer;
  ListenerHandshake listener;
};

std::string message_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

class HandshakeOf : public testing::TestWithParam<Versions> {};
INSTANTIATE_TEST_SUITE_P(Versions, HandshakeOf, testing::Values(Versions{1, 1}, Versions{1, 2}),
                         [](const auto& one) { return "Version" + std::to_string(one.param.newest); });

TEST_P(HandshakeOf, BothEndsAgreeOnTermsVersionAndKeys) {
  Ends ends(GetParam());
  const ListenerHandshake::Answer challenge = ends.listener.answer(ends.dialer.hello());
  ASSERT_FALSE(challenge.refused);
  const Bytes proof = ends.dialer.prove(challenge.frame, "my terms");
  EXPECT_EQ(ends.listener.check(proof), "my terms");
  EXPECT_EQ(ends.listener.who().from, 3);
  const Bytes verdict = ends.listener.decide(Verdict::kBusy, "yours");
  const DialerHandshake::Conclusion conclusion = ends.dialer.conclude(verdict);
  EXPECT_EQ(conclusion.verdict, Verdict::kBusy);
  EXPECT_EQ(conclusion.terms, "yours");
  EXPECT_EQ(ends.dialer.version(), GetParam().newest);
  EXPECT_EQ(ends.listener.version(), GetParam().newest);
  EXPECT_TRUE(ends.dialer.keys().to_listener == ends.listener.keys().to_listener);
  EXPECT_TRUE(ends.dialer.keys().to_dialer == ends.listener.keys().to_dialer);
  EXPECT_FALSE(ends.dialer.keys().to_listener == ends.dialer.keys().to_dialer);
}

TEST_P(HandshakeOf, EveryBitOfEveryFrameIsProved) {
  const auto try_with = [](int frame, std::size_t bit) {  // returns which end detected the error
    Ends ends(GetParam());
    const auto turn = [&](int number, Bytes bytes) {
      if (number == frame) bytes[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
      return bytes;
    };
    const ListenerHandshake::Answer answer = ends.listener.answer(turn(0, ends.dialer.hello()));
    if (answer.refused) return true;
    const Bytes proof = ends.dialer.prove(turn(1, answer.frame), "terms");
    ends.listener.check(turn(2, proof));
    ends.dialer.conclude(turn(3, ends.listener.decide(Verdict::kAccepted, "terms")));
    return false;
  };
  Ends ends(GetParam());
  const ListenerHandshake::Answer answer = ends.listener.answer(ends.dialer.hello());
  const Bytes proof = ends.dialer.prove(answer.frame, "terms");
  ends.listener.check(proof);
  const std::size_t sizes[] = {ends.dialer.hello().size(), answer.frame.size(), proof.size(),
                               ends.listener.decide(Verdict::kAccepted, "terms").size()};
  for (int frame = 0; frame < 4; ++frame) {
    for (std::size_t bit = 0; bit < sizes[frame] * 8; ++bit) {
      try {
        EXPECT_TRUE(try_with(frame, bit)) << "frame " << frame << ", bit " << bit;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kProtocol) << error.message();
      }
    }
  }
}

TEST(Handshake, WithoutTheSecretNeitherEndIsBelieved) {
  Ends ends({}, {}, handshake_secret(0), handshake_secret(1));
  const ListenerHandshake::Answer answer = ends.listener.answer(ends.dialer.hello());
  const Bytes proof = ends.dialer.prove(answer.frame, "");
  EXPECT_EQ(message_of([&] { ends.listener.check(proof); }), "what connects here does not know the secret of this job");
  EXPECT_EQ(message_of([&] { ends.dialer.conclude(ends.listener.decide(Verdict::kAccepted, "")); }),
            "the other end does not know the secret of this job");
  EXPECT_EQ(message_of([&] { ends.dialer.conclude(ends.listener.refusal()); }),
            "the secret of the job that listens here is another one");
}

TEST(Handshake, WithoutTheSecretAListenerOfVersionOneIsNotProvedTo) {
  Ends ends({1, 1}, {}, handshake_secret(0), handshake_secret(1));
  const ListenerHandshake::Answer answer = ends.listener.answer(ends.dialer.hello());
  EXPECT_EQ(message_of([&] { ends.dialer.prove(answer.frame, ""); }),
            "the other end does not know the secret of this job");
}

// A listener's bytes before a valid proof do not depend on its secret, so a dialer cannot test guesses with them.
TEST(Handshake, AListenerSaysNothingOfItsSecretToWhoHasProvedNothing) {
  Ends ends, others({}, {}, handshake_secret(0), handshake_secret(1));
  EXPECT_EQ(ends.listener.answer(ends.dialer.hello()).frame, others.listener.answer(others.dialer.hello()).frame);
}

// The session keys cannot be derived from the secret and the transcript: they need the ephemeral keys, which neither
// end keeps.
TEST(Handshake, WhoLearnsTheSecretLaterDoesNotLearnTheKeys) {
  Ends ends;
  const Bytes share = ends.listener.answer(ends.dialer.hello()).frame;
  const Bytes proof = ends.dialer.prove(share, "");
  ends.listener.check(proof);
  const Bytes verdict = ends.listener.decide(Verdict::kAccepted, "");
  ends.dialer.conclude(verdict);
  Transcript recorded;
  for (const Bytes& frame : {ends.dialer.hello(), share, proof, verdict}) recorded.add(frame);
  EXPECT_FALSE(Secret(recorded.prove(handshake_secret(0), "aiacc key up")) == ends.dialer.keys().to_listener);
  // In version 1 they could.
  Ends old({1, 1});
  const Bytes challenge = old.listener.answer(old.dialer.hello()).frame;
  const Bytes old_proof = old.dialer.prove(challenge, "");
  old.listener.check(old_proof);
  const Bytes old_verdict = old.listener.decide(Verdict::kAccepted, "");
  old.dialer.conclude(old_verdict);
  Transcript readable;
  for (const Bytes& frame : {old.dialer.hello(), challenge, old_proof, old_verdict}) readable.add(frame);
  EXPECT_TRUE(Secret(readable.prove(handshake_secret(0), "aiacc key up")) == old.dialer.keys().to_listener);
}

TEST(Handshake, NobodyBetweenTwoEndsMakesThemSpeakAnOldVersion) {
  Ends ends;
  Bytes older = ends.dialer.hello();
  older.resize(older.size() - sizeof(Share));
  older[12] = std::byte{1};  // the newest version that it speaks
  finish_frame(older, ConnectHello::kType);
  const Bytes challenge = ends.listener.answer(older).frame;
  EXPECT_EQ(ends.listener.version(), 1);
  EXPECT_EQ(message_of([&] { ends.dialer.prove(challenge, ""); }),
            "the other end does not know the secret of this job");
}

TEST(Handshake, WhoWantsSharesRefusesAnEndWithout) {
  Ends ends({1, 1}, {2, 2});
  EXPECT_TRUE(ends.listener.answer(ends.dialer.hello()).refused);
  Ends others({2, 2}, {1, 1});
  const ListenerHandshake::Answer answer = others.listener.answer(others.dialer.hello());
  EXPECT_EQ(message_of([&] { others.dialer.prove(answer.frame, ""); }),
            "this end speaks version 1 of the aiacc protocol and the other end version 2: run the same aiacc on all "
            "hosts");
}

TEST(Handshake, AShareThatForcesTheKeyIsRefused) {
  Ends ends;
  ConnectShare none;
  EXPECT_EQ(message_of([&] { ends.dialer.prove(encode_frame(none), ""); }),
            "a handshake has a share with which nothing can be agreed on");
}

TEST(Handshake, TheNewestCommonVersionIsSpoken) {
  for (const auto& [dialers, listeners] : {std::pair(Versions{1, 7}, Versions{2, 5}), {{2, 5}, {1, 7}}}) {
    Ends ends(dialers, listeners);
    const ListenerHandshake::Answer answer = ends.listener.answer(ends.dialer.hello());
    ends.dialer.prove(answer.frame, "");
    EXPECT_EQ(ends.dialer.version(), 5);
    EXPECT_EQ(ends.listener.version(), 5);
  }
}

TEST(Handshake, AnOldAndANewEndBothSaySoInOneSentence) {
  for (const auto& [dialers, listeners, sentence] :
       {std::tuple(Versions{1, 1}, Versions{2, 3},
                   "this end speaks versions 2 to 3 of the aiacc protocol and the other end version 1: run the same "
                   "aiacc on all hosts"),
        std::tuple(Versions{4, 4}, Versions{2, 3},
                   "this end speaks versions 2 to 3 of the aiacc protocol and the other end version 4: run the same "
                   "aiacc on all hosts")}) {
    Ends ends(dialers, listeners);
    const ListenerHandshake::Answer answer = ends.listener.answer(ends.dialer.hello());
    EXPECT_TRUE(answer.refused);
    EXPECT_EQ(message_of([&] { ends.dialer.prove(answer.frame, ""); }), sentence);
  }
}

TEST(Handshake, WhatALaterVersionAppendsToItsHelloIsSkipped) {
  Ends ends({1, 2}, {1, 1});
  Bytes longer = ends.dialer.hello();
  longer.resize(longer.size() + 10);
  finish_frame(longer, ConnectHello::kType);
  EXPECT_FALSE(ends.listener.answer(longer).refused);
  Bytes same = Ends().dialer.hello();
  same.resize(same.size() + 10);
  finish_frame(same, ConnectHello::kType);
  EXPECT_EQ(message_of([&] { Ends().listener.answer(same); }), "a hello has 10 bytes too many");
}

TEST(Handshake, AFrameHasFourKibibytesAtMost) {
  const auto hello_of = [](std::size_t bytes) {
    Bytes hello = Ends({1, 2}, {1, 1}).dialer.hello();
    hello.resize(bytes);
    finish_frame(hello, ConnectHello::kType);
    return hello;
  };
  const auto answer_to = [](const Bytes& hello) { return Ends({1, 2}, {1, 1}).listener.answer(hello); };
  EXPECT_FALSE(answer_to(hello_of(kMaxHandshakeBytes)).refused);
  EXPECT_THROW(answer_to(hello_of(kMaxHandshakeBytes + 1)), Error);

  io::RealLoop loop;
  Stop stop;
  const auto heard = [&](Bytes hello, std::size_t sent) {
    auto [near, far] = io::stream_pair(loop, "the pair");
    hello.resize(sent);
    loop.run(io::write_all(*near, hello, stop));
    near.reset();
    HandshakeStorage storage;
    return loop.run(read_handshake(*far, storage, stop)).size();
  };
  EXPECT_EQ(heard(hello_of(kMaxHandshakeBytes), kMaxHandshakeBytes), kMaxHandshakeBytes);
  EXPECT_EQ(message_of([&] { heard(hello_of(kMaxHandshakeBytes + 1), kFrameHeaderBytes); }),
            "the pair announces 4093 bytes of handshake; 4092 are possible");
}

TEST(Handshake, TermsHaveALimitAndVerdictsAMeaning) {
  const std::string most(kMaxTermsBytes, 't');
  for (const std::string& terms : {most, most + "t"}) {
    Ends ends;
    const Bytes proof = ends.dialer.prove(ends.listener.answer(ends.dialer.hello()).frame, terms);
    const std::string sentence = message_of([&] { ends.listener.check(proof); });
    EXPECT_EQ(sentence, terms == most ? "nothing was thrown" : "a handshake has 257 bytes of terms; 256 are possible");
    if (terms != most) continue;
    const Bytes verdict = ends.listener.decide(static_cast<Verdict>(4), "");
    EXPECT_EQ(message_of([&] { ends.dialer.conclude(verdict); }), "a handshake ends with the unknown verdict 4");
  }
}

TEST(Handshake, ANewerVersionThanBothSpeakIsNotBelieved) {
  Ends ends({1, 2}, {1, 3});
  Ends newer({1, 3}, {1, 3});  // its hello announces version 3
  const Bytes challenge = newer.listener.answer(newer.dialer.hello()).frame;
  EXPECT_EQ(message_of([&] { ends.dialer.prove(challenge, ""); }),
            "the other end chose version 3 of the protocol; this end speaks versions 1 to 2");
}

TEST(Handshake, AnUnauthenticatedPeersSentenceCannotWriteOnTheTerminal) {
  Ends ends;
  ConnectRefused refused;
  refused.sentence = "\x1b[2Jgone\n";
  EXPECT_EQ(message_of([&] { ends.dialer.prove(encode_frame(refused), ""); }), "?[2Jgone?");
}

TEST(Handshake, ASecretIsThirtyTwoBytes) {
  EXPECT_EQ(message_of([] { Secret::from("short"); }), "a secret of 5 bytes was given; it has 32");
  EXPECT_TRUE(Secret().none());
  EXPECT_FALSE(handshake_secret(0).none());
  EXPECT_FALSE(handshake_secret(0) == handshake_secret(1));
}

// --- the vectors of docs/wire-protocol.md ---------------------------------------------------------------------------------

TEST_P(HandshakeOf, TheVectorsOfTheSpecificationHold) {
  const bool old = GetParam().newest == 1;
  auto documented = documented_vectors(old ? "Version 1 of the handshake" : "The handshake");
  if (!documented) GTEST_SKIP() << "AIACC_SOURCE does not say where the sources are";
  documented->erase("key of the proofs");
  Ends ends(GetParam());
  std::map<std::string, std::string> computed;
  computed["secret"] = hex(handshake_secret(0).bytes());
  computed["hello"] = hex(ends.dialer.hello());
  const Bytes challenge = ends.listener.answer(ends.dialer.hello()).frame;
  computed[old ? "challenge" : "share"] = hex(challenge);
  const Bytes proof = ends.dialer.prove(challenge, "terms");
  computed["proof"] = hex(proof);
  ends.listener.check(proof);
  const Bytes verdict = ends.listener.decide(Verdict::kAccepted, "agreed");
  computed["verdict"] = hex(verdict);
  ends.dialer.conclude(verdict);
  computed["key to the listener"] = hex(ends.dialer.keys().to_listener.bytes());
  computed["key to the dialer"] = hex(ends.dialer.keys().to_dialer.bytes());
  EXPECT_EQ(*documented, computed);
}

}  // namespace
}  // namespace aiacc::wire
