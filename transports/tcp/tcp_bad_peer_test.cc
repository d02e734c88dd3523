// A peer that knows the secret and does not keep to the protocol, or comes at a strange time: the test is its end of the
// connection.
#include <gtest/gtest.h>

#include "base/wire/handshake.h"
#include "transports/tcp/data_header.h"
#include "transports/tcp/dial.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/tcp_fixture_test.h"
#include "transports/tcp/tcp_port.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Action;
using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;

constexpr std::size_t kPrefix = tcp::kFrameBytes + tcp::kHeaderBytes;

// The frame and the header of a message, as rank 1 sends them.
void write_message(std::span<std::byte> into, const MessageHeader& header, std::uint64_t number) {
  tcp::encode_frame({.traffic = header.traffic, .number = number, .offset = 0, .length = header.length},
                    into.first<tcp::kFrameBytes>());
  tcp::encode_header(header, into.subspan<tcp::kFrameBytes, tcp::kHeaderBytes>());
}

std::vector<std::byte> frame_bytes(const tcp::Frame& frame) {
  std::vector<std::byte> bytes(tcp::kFrameBytes);
  tcp::encode_frame(frame, std::span(bytes).first<tcp::kFrameBytes>());
  return bytes;
}

tcp::Terms terms_of(std::uint64_t received, std::uint64_t connections) {
  tcp::Terms terms;
  terms.received = {0, 0, received};
  terms.connections = connections;
  return terms;
}

// As rank 1, with the secret: says `bytes` after the handshake, and stays until rank 0 has enough, or not.
Task<void> misbehave(SimTcp* net, std::vector<std::byte> bytes, tcp::Terms terms = {}, bool stays = true,
                     wire::Versions versions = {}) {
  Stop stop;
  SimTcp::HostOf host(*net, 9);
  const std::unique_ptr<io::Stream> stream = co_await host.net.connect(net->addresses[0], stop);
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  wire::DialerHandshake handshake(secret_of(1), {wire::Purpose::kData, 4711, 1, 0}, host.entropy, versions);
  co_await io::write_all(*stream, handshake.hello(), stop);
  const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, stop);
  const wire::Bytes proof = handshake.prove(challenge, terms.text());
  co_await io::write_all(*stream, proof, stop);
  co_await wire::read_handshake(*stream, *storage, stop);
  co_await io::write_all(*stream, bytes, stop);
  if (!stays) co_return;
  std::byte one;
  co_await stream->read_some(std::span(&one, 1), stop);
}

// Each time on a new connection, `times` times.
void misbehave_again(SimTcp& net, const std::vector<std::byte>& bytes, std::size_t times) {
  for (std::size_t i = 0; i < times; ++i) {
    Task<void> talk = misbehave(&net, bytes, terms_of(0, i));
    talk.start();
    ASSERT_TRUE(net.run_until([&] { return talk.done(); }));
  }
}

// It may come from somebody on the path: the connection is broken, and not the peer, unless it goes on so.
TEST(TcpBadPeer, NonsenseIsABrokenConnectionAndAgainAndAgainALostPeer) {
  using enum tcp::FrameKind;
  const std::vector<std::byte> nonsense(96, std::byte{0x77});
  std::vector<std::byte> gap(kPrefix), header(kPrefix), unlike(kPrefix), again(kPrefix + 100 + tcp::kFrameBytes);
  write_message(gap, header_of(1, 0), 2);
  write_message(header, header_of(1, 0), 1);
  header[tcp::kFrameBytes] = std::byte{9};
  write_message(unlike, header_of(1, 0), 1);
  tcp::encode_frame({.traffic = TrafficClass::kControl, .number = 1}, std::span(unlike).first<tcp::kFrameBytes>());
  write_message(again, header_of(1, 1000), 1);
  tcp::encode_frame({.traffic = TrafficClass::kBulk, .number = 1, .length = 100},
                    std::span(again).first<tcp::kFrameBytes>());
  std::vector<std::byte> outside = again;
  tcp::encode_frame({.kind = kChunk, .traffic = TrafficClass::kBulk, .number = 1, .offset = 50, .length = 100},
                    std::span(again).last<tcp::kFrameBytes>());
  tcp::encode_frame({.kind = kChunk, .traffic = TrafficClass::kBulk, .number = 1, .offset = 950, .length = 100},
                    std::span(outside).last<tcp::kFrameBytes>());
  for (const auto& [bytes, sentence] :
       {std::pair(nonsense, "a frame came with version 30583"),
        std::pair(frame_bytes({.kind = static_cast<tcp::FrameKind>(7)}), "a frame came with kind 7"),
        std::pair(frame_bytes({.kind = kAsk, .number = 1}), "something in the unused fields of kind 5"),
        std::pair(frame_bytes({.kind = kArrived, .number = 5, .offset = 5}),
                  "acknowledges message 5 of a traffic class"),
        std::pair(frame_bytes({.kind = kArrived, .number = 0, .offset = 5}),
                  "acknowledges message 5 of a traffic class"),
        std::pair(frame_bytes({.kind = kArrived, .number = 5, .offset = 0}),
                  "acknowledges message 5 of a traffic class"),
        std::pair(frame_bytes({.kind = kChunkArrived, .number = 5, .length = 1}),
                  "acknowledges message 5 of a traffic class, which cannot be"),
        std::pair(frame_bytes({.kind = kChunk, .number = 1, .length = 1}),
                  "sent a part of message 1 before its header"),
        std::pair(header, "a message header came with version 9"),
        std::pair(gap, "sent message 2 after message 0 of a traffic class"),
        std::pair(unlike, "sent a message and a frame that do not agree"),
        std::pair(again, "sent bytes 50 to 150 of a message again, with others"),
        std::pair(outside, "sent bytes 950 to 1050 of a message of 1000")}) {
    SimTcp net(2);
    Recorder receiver;
    net.port(0).set_receiver(receiver);
    misbehave_again(net, bytes, 7);
    EXPECT_TRUE(receiver.lost.empty()) << receiver.lost[0].second.message();
    misbehave_again(net, bytes, 1);
    ASSERT_EQ(receiver.lost.size(), 1u) << sentence;
    const std::string& said = receiver.lost[0].second.message();
    EXPECT_NE(said.find(sentence), std::string::npos) << said;
    EXPECT_EQ(said.rfind("rank 1 on host 1: 8 connections within 0.0 s brought what it cannot have sent", 0), 0u)
        << said;
    EXPECT_NE(said.find("AIACC_ENCRYPT=integrity"), std::string::npos) << said;
    EXPECT_EQ(receiver.lost[0].second.code(), Code::kProtocol);
  }
}

TEST(TcpBadPeer, NonsenseNowAndThenLosesNobody) {
  SimTcp net(2);
  Recorder receiver;
  net.port(0).set_receiver(receiver);
  for (int minute = 1; minute <= 3; ++minute) {
    misbehave_again(net, std::vector<std::byte>(96, std::byte{0x77}), 7);
    net.world.run_until(Instant(std::chrono::seconds(61 * minute)));
  }
  EXPECT_TRUE(receiver.lost.empty()) << receiver.lost[0].second.message();
}

TEST(TcpBadPeer, NobodyHearsWhatComesAfterAFarewell) {
  std::vector<std::byte> chatter = frame_bytes({.kind = tcp::FrameKind::kFarewell});
  chatter.resize(tcp::kFrameBytes + kPrefix);
  write_message(std::span(chatter).last<kPrefix>(), header_of(1, 0), 1);
  SimTcp net(2);
  Recorder receiver;
  net.port(0).set_receiver(receiver);
  misbehave_again(net, chatter, 1);
  EXPECT_TRUE(receiver.asked.empty());
  EXPECT_TRUE(receiver.lost.empty());
}

// As rank 1 too: dials rank 0 with these terms, and ends when it has the verdict.
Task<void> knock(SimTcp* net, tcp::Terms terms, wire::DialerHandshake::Conclusion* conclusion) {
  Stop stop;
  SimTcp::HostOf host(*net, 9);
  const std::unique_ptr<io::Stream> stream = co_await host.net.connect(net->addresses[0], stop);
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  wire::DialerHandshake handshake(secret_of(1), {wire::Purpose::kData, 4711, 1, 0}, host.entropy);
  co_await io::write_all(*stream, handshake.hello(), stop);
  const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, stop);
  const wire::Bytes proof = handshake.prove(challenge, terms.text());
  co_await io::write_all(*stream, proof, stop);
  const std::span<const std::byte> verdict = co_await wire::read_handshake(*stream, *storage, stop);
  *conclusion = handshake.conclude(verdict);
}

Task<void> look(SimTcp* net, wire::DialerHandshake::Conclusion* conclusion) {
  Stop stop;
  SimTcp::HostOf host(*net, 9);
  const std::unique_ptr<io::Stream> stream = co_await host.net.connect(net->addresses[0], stop);
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  wire::DialerHandshake handshake(secret_of(1), {wire::Purpose::kData, 4711, 1, 0}, host.entropy);
  co_await io::write_all(*stream, handshake.hello(), stop);
  const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, stop);
  const wire::Bytes proof = handshake.prove(challenge, "");
  co_await io::write_all(*stream, proof, stop);
  const std::span<const std::byte> verdict = co_await wire::read_handshake(*stream, *storage, stop);
  *conclusion = handshake.conclude(verdict);
}

wire::Verdict verdict_on(SimTcp& net, tcp::Terms terms, tcp::Terms* answer = nullptr) {
  wire::DialerHandshake::Conclusion conclusion;
  Task<void> knocking = knock(&net, terms, &conclusion);
  knocking.start();
  EXPECT_TRUE(net.run_until([&] { return knocking.done(); }));
  knocking.take();
  if (answer != nullptr) *answer = tcp::Terms::from(conclusion.terms);
  return conclusion.verdict;
}

// A dial from before the connection that stands was on its way for long: it must not end that one.
TEST(TcpBadPeer, ADialThatIsOlderThanTheConnectionIsNotTaken) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> bytes = pattern(100, 1);
  post(net.port(1), 0, header_of(1, bytes.size()), bytes, told);
  ASSERT_TRUE(net.run_until([&] { return receiver[0].placed == 1; }));
  EXPECT_EQ(verdict_on(net, terms_of(0, 0)), wire::Verdict::kBusy);
  post(net.port(1), 0, header_of(2, bytes.size()), bytes, told);
  ASSERT_TRUE(net.run_until([&] { return receiver[0].placed == 2; }));
  EXPECT_EQ(verdict_on(net, terms_of(0, 1)), wire::Verdict::kAccepted) << "its end has seen that one break";
}

// Rank 0 looks whether this one lives: that begins nothing, and ends no connection.
TEST(TcpBadPeer, WhoHasNoTermsOnlyLooks) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> bytes = pattern(100, 1);
  for (std::uint32_t tag = 1; tag <= 2; ++tag) {
    post(net.port(1), 0, header_of(tag, bytes.size()), bytes, told);
    ASSERT_TRUE(net.run_until([&] { return receiver[0].placed == tag; }));
    wire::DialerHandshake::Conclusion conclusion;
    Task<void> looking = look(&net, &conclusion);
    looking.start();
    ASSERT_TRUE(net.run_until([&] { return looking.done(); }));
    looking.take();
    EXPECT_EQ(conclusion.verdict, wire::Verdict::kBusy);
  }
  EXPECT_EQ(net.port(0).refused(), 0u);
}

TEST(TcpBadPeer, AnOldVersionIsSpokenAndSaidOnceUnlessMessagesAreProtected) {
  for (const Encryption protection : {Encryption::kNone, Encryption::kIntegrity, Encryption::kData}) {
    SimTcp net(2, 42, protection);
    Recorder receiver;
    std::vector<std::string> remarks;
    net.port(0).tell_remarks_to([&](const std::string& remark) { remarks.push_back(remark); });
    net.port(0).set_receiver(receiver);
    std::vector<std::byte> message(kPrefix);
    for (std::uint64_t i = 0; i < 2; ++i) {
      write_message(message, header_of(1, 0), i + 1);
      Task<void> talk = misbehave(&net, message, terms_of(0, i), false, {1, 1});
      talk.start();
      ASSERT_TRUE(net.run_until([&] { return talk.done(); }));
      if (protection == Encryption::kNone) continue;
      try {
        talk.take();
        ADD_FAILURE() << "it was taken";
      } catch (const Error& error) {
        EXPECT_NE(error.message().find("this end speaks version 2 of the aiacc protocol and the other end version 1"),
                  std::string::npos)
            << error.message();
      }
    }
    if (protection != Encryption::kNone) continue;
    ASSERT_TRUE(net.run_until([&] { return receiver.placed == 2; }));
    EXPECT_EQ(remarks, std::vector<std::string>{"rank 1 on host 1 speaks version 1 of the protocol between ranks: run "
                                                "the same aiacc on all hosts"});
    net.port(0).close();
  }
}

TEST(TcpBadPeer, ConnectionsAreCountedAsTheEndThatKnowsMoreDoes) {
  SimTcp net(2);
  Recorder receiver;
  net.port(0).set_receiver(receiver);
  tcp::Terms answer;
  EXPECT_EQ(verdict_on(net, terms_of(0, 5)), wire::Verdict::kAccepted);
  EXPECT_EQ(verdict_on(net, terms_of(0, 6), &answer), wire::Verdict::kAccepted);
  EXPECT_EQ(answer.connections, 6u);
  net.port(0).close();
}

TEST(TcpBadPeer, APeerThatHasWhatWasNeverSentIsLostWithASentence) {
  SimTcp net(2);
  Recorder receiver;
  net.port(0).set_receiver(receiver);
  Task<void> talk = misbehave(&net, {}, terms_of(3, 0));
  talk.start();
  ASSERT_TRUE(net.run_until([&] { return receiver.lost.size() == 1; }));
  EXPECT_EQ(receiver.lost[0].second.message(),
            "rank 1 on host 1 says that it has 3 messages of a traffic class, which cannot be");
  net.run_until([&] { return talk.done(); });
}

TEST(TcpBadPeer, AMessageInPlaceOfOneThatWasCutIsAnErrorAndTheSameOneIsNot) {
  for (const bool same : {true, false}) {
    SimTcp net(2);
    Recorder receiver;
    net.port(0).set_receiver(receiver);
    std::vector<std::byte> cut(kPrefix + 40), whole(kPrefix + 100);
    write_message(cut, header_of(1, 100), 1);
    write_message(whole, header_of(same ? 1 : 2, 100), 1);
    Task<void> first = misbehave(&net, cut, {}, false);
    first.start();
    ASSERT_TRUE(net.run_until([&] { return first.done(); }));
    Task<void> second = misbehave(&net, whole, terms_of(0, 1));
    second.start();
    ASSERT_TRUE(net.run_until([&] { return receiver.placed == 1 || second.done(); })) << same;
    EXPECT_EQ(receiver.placed, same ? 1u : 0u);
    if (!same) {
      for (std::uint64_t i = 2; i < 9; ++i) {
        EXPECT_TRUE(receiver.lost.empty());
        Task<void> again = misbehave(&net, whole, terms_of(0, i));
        again.start();
        ASSERT_TRUE(net.run_until([&] { return again.done(); }));
      }
      ASSERT_EQ(receiver.lost.size(), 1u);
      EXPECT_NE(
          receiver.lost[0].second.message().find("sent another message in place of one that a broken connection cut"),
          std::string::npos)
          << receiver.lost[0].second.message();
    }
    net.port(0).close();
    net.run_until([&] { return second.done(); });
  }
}

TEST(TcpBadPeer, WhatIsTooLongToBeHeldIsRefused) {
  SimTcp net(2);
  Recorder receiver;
  receiver.decide = [](int, const MessageHeader&) { return Action::kHold; };
  net.port(0).set_receiver(receiver);
  std::vector<std::byte> header(kPrefix);
  write_message(header, header_of(1, (64u << 20) + 1), 1);
  misbehave_again(net, header, 8);
  ASSERT_EQ(receiver.lost.size(), 1u);
  EXPECT_NE(receiver.lost[0].second.message().find(
                "rank 1 on host 1 sent 67108865 bytes where at most 67108864 can wait for a place"),
            std::string::npos)
      << receiver.lost[0].second.message();
}

// The sender keeps what is not acknowledged. misbehave() ends with the first byte of an acknowledgement.
TEST(TcpBadPeer, ManyBytesAreAcknowledgedBeforeManyMessages) {
  for (const std::size_t count : {15u, 16u}) {
    SimTcp net(2);
    Recorder receiver;
    net.port(0).set_receiver(receiver);
    std::vector<std::byte> bytes;
    for (std::uint32_t tag = 0; tag < count; ++tag) {
      bytes.resize(bytes.size() + kPrefix + TcpPort::kCopyBytes);
      write_message(std::span(bytes).last(kPrefix + TcpPort::kCopyBytes), header_of(tag, TcpPort::kCopyBytes), tag + 1);
    }
    Task<void> talk = misbehave(&net, bytes);
    talk.start();
    ASSERT_TRUE(net.run_until([&] { return receiver.placed == count; }));
    EXPECT_EQ(net.run_until([&] { return talk.done(); }), count == 16) << "256 KiB are acknowledged at once";
    net.port(0).close();
    net.run_until([&] { return talk.done(); });
  }
}

}  // namespace
}  // namespace aiacc::tcp_test
