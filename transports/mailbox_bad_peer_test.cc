// What a mailbox makes of headers that a member in good order does not send, and of one that uses its credit up. The port is
// played by the test.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/sim/sim_loop.h"
#include "base/sim/world.h"
#include "transports/exchange.h"
#include "transports/messenger.h"

namespace aiacc {
namespace {

using Placement = MessageReceiver::Placement;
using Action = Placement::Action;

class PlayedPort final : public MessagePort {
 public:
  void set_receiver(MessageReceiver& its) noexcept override { receiver = &its; }
  void post(int, const MessageHeader& header, std::span<const Buffer>, SendCompletion& completion) noexcept override {
    posted.push_back(header);
    completions.push_back(&completion);
  }
  void release(int) noexcept override { ++released; }
  void withdraw(SendCompletion&) noexcept override {}
  void revoke(int, const MessageHeader&) noexcept override {}
  void lose(int, std::exception_ptr) noexcept override {}
  Task<void> leave(Duration, Stop&) override { co_return; }
  void close() noexcept override {}

  std::size_t count(MessageKind kind) const {
    return static_cast<std::size_t>(
        std::count_if(posted.begin(), posted.end(), [kind](const MessageHeader& one) { return one.kind == kind; }));
  }
  MessageReceiver* receiver = nullptr;
  std::vector<MessageHeader> posted;
  std::vector<SendCompletion*> completions;
  int released = 0;
};

struct Note {
  std::string describe() const { return "a call"; }
};

constexpr std::uint64_t kFingerprint = 7;

Task<void> receive(Mailbox* mailbox, ViewPtr view, std::uint32_t tag, std::span<std::byte> into, Stop* stop) {
  Exchange exchange(*mailbox, view, 0, 1, kFingerprint, CallNote(Note{}));
  co_await exchange.recv(1, tag, Buffer{into.data(), into.size()}, *stop);
}

Task<void> send(Mailbox* mailbox, ViewPtr view, std::uint64_t sequence, std::span<std::byte> from, Stop* stop) {
  Exchange exchange(*mailbox, view, 0, sequence, kFingerprint, CallNote(Note{}));
  co_await exchange.send(1, 1, Buffer{from.data(), from.size()}, *stop);
}

Task<void> swap_with(Mailbox* mailbox, ViewPtr view, int peer, std::span<std::byte> bytes, Stop* stop) {
  Exchange exchange(*mailbox, view, 0, static_cast<std::uint64_t>(peer), kFingerprint, CallNote(Note{}));
  exchange.swap_long();
  const Buffer buffer{bytes.data(), bytes.size()};
  co_await exchange.send_recv({peer, 1, buffer}, {peer, 1, buffer}, *stop);
}

// Rank 0 of two; rank 1 is the test's.
class BadPeer : public testing::Test {
 protected:
  BadPeer() { mailbox_.join(view_, 0); }
  ~BadPeer() override {
    // Whoever still waits gets its error, as after the loss of rank 1, and what it had posted is told.
    const auto gone = std::make_exception_ptr(Error(Code::kPeerFailed, "the test is over", 1));
    port_.receiver->on_peer_lost(1, gone);
    for (SendCompletion* completion : port_.completions) completion->sent(gone);
    world_.run();
  }

  static ViewPtr view_of(std::uint32_t epoch) {
    return std::make_shared<const View>(1, 0, epoch, 0, std::vector<Member>{{0, 3, 0}, {1, 3, 1}});
  }
  MessageHeader header(MessageKind kind, std::uint64_t length, std::uint32_t tag = 1) const {
    MessageHeader header;
    header.kind = kind;
    header.step = tag;
    header.member = 1;
    header.incarnation = 3;
    header.group = view_->id();
    header.sequence = 1;
    header.fingerprint = kFingerprint;
    header.length = header.total = length;
    return header;
  }
  Placement placement_of(const MessageHeader& header, int from = 1) { return port_.receiver->on_header(from, header); }
  Action judged(const MessageHeader& header, int from = 1) { return placement_of(header, from).action; }
  void placed(const MessageHeader& header) { port_.receiver->on_placed(1, header); }
  // How far rank 1 may send, as it is told next: with a message of a group of its own, so that no operation is needed.
  std::uint64_t credit_told() {
    std::byte byte{};
    Task<void> sending = send(&mailbox_, other_view_, ++sent_, std::span(&byte, 1), &stop_);
    sending.start();
    const std::uint64_t limit = port_.posted.back().credit_limit;
    port_.completions.back()->sent(nullptr);
    port_.completions.pop_back();
    world_.run();
    return limit;
  }

  sim::World world_{42};
  sim::SimLoop loop_{world_, "rank 0"};
  PlayedPort port_;
  ViewPtr view_ = view_of(0), other_view_ = view_of(1);
  Stop stop_;
  Messenger messenger_{loop_, port_, view_, 0};
  Mailbox& mailbox_ = messenger_.mailbox();
  std::uint64_t sent_ = 0;
};

TEST_F(BadPeer, OnlyAMemberInTheSameVersionIsBelieved) {
  const MessageHeader good = header(MessageKind::kEager, 10);
  MessageHeader version = good, flags = good, member = good, incarnation = good;
  version.version = 1;
  flags.flags = 1;
  member.member = 0;
  incarnation.incarnation = 2;
  for (const MessageHeader& bad : {version, flags, member, incarnation}) EXPECT_EQ(judged(bad), Action::kDrop);
  for (const int from : {-1, 0, 2}) EXPECT_EQ(judged(good, from), Action::kDrop) << from;
  EXPECT_EQ(judged(good), Action::kInto);
}

TEST_F(BadPeer, EagerMessagesAreWholeAndShort) {
  MessageHeader fragment = header(MessageKind::kEager, 10), later = fragment;
  fragment.total = 20;
  later.offset = 1;
  EXPECT_EQ(judged(fragment), Action::kDrop);
  EXPECT_EQ(judged(later), Action::kDrop);
  EXPECT_EQ(judged(header(MessageKind::kEager, Mailbox::kLongSwapBytes + 1)), Action::kDrop);
  EXPECT_EQ(judged(header(MessageKind::kRts, 1)), Action::kDrop) << "an RTS has no payload";
  EXPECT_EQ(judged(header(MessageKind::kService, 10)), Action::kDrop);
  EXPECT_EQ(judged(header(MessageKind::kEager, Mailbox::kLongSwapBytes)), Action::kInto);
}

// Who reads something else than it was sent has another version of the library, or a broken one: the group goes on.
TEST_F(BadPeer, ControlMessagesThatAreNoneAreIgnored) {
  wire::Bytes aborted;
  wire::Writer(aborted).put(wire::GroupAborted::kType);
  wire::Writer(aborted).put(wire::GroupAborted{static_cast<std::int32_t>(Code::kInternal), 1, -1, {}, "enough"});
  const auto come = [&](const wire::Bytes& bytes, std::int64_t when) {
    MessageHeader control = header(MessageKind::kControl, bytes.size());
    control.sent_ns = when;
    const Placement place = placement_of(control);
    ASSERT_EQ(place.action, Action::kInto);
    std::copy(bytes.begin(), bytes.end(), place.into.data);
    placed(control);
  };
  EXPECT_EQ(judged(header(MessageKind::kControl, wire::kMaxControlBytes + 1)), Action::kDrop);
  for (std::size_t length = 0; length < aborted.size(); ++length) {
    come(wire::Bytes(aborted.begin(), aborted.begin() + static_cast<std::ptrdiff_t>(length)), 1);
  }
  wire::Bytes longer = aborted, unknown = aborted, no_code = aborted;
  longer.push_back(std::byte{0});
  unknown[0] = std::byte{0xff};
  no_code[2] = std::byte{99};
  for (const wire::Bytes& bytes : {longer, unknown, no_code}) come(bytes, 2);
  EXPECT_EQ(mailbox_.error_of(view_->id()), nullptr);
  come(aborted, 3);
  ASSERT_NE(mailbox_.error_of(view_->id()), nullptr);
  EXPECT_EQ(as_error(mailbox_.error_of(view_->id())).message(), "enough");
}

TEST_F(BadPeer, WhatIsBeyondItsCreditWaitsUntilThereIsRoom) {
  constexpr std::uint32_t kFit = Mailbox::kCreditBytes / Mailbox::kEagerBytes;
  for (std::uint32_t tag = 1; tag <= kFit; ++tag) {
    const MessageHeader eager = header(MessageKind::kEager, Mailbox::kEagerBytes, tag);
    ASSERT_EQ(judged(eager), Action::kInto) << tag;
    placed(eager);
  }
  const MessageHeader next = header(MessageKind::kEager, Mailbox::kEagerBytes, kFit + 1);
  EXPECT_EQ(judged(next), Action::kHold);
  EXPECT_EQ(port_.released, 0);
  std::vector<std::byte> into(Mailbox::kEagerBytes);
  Task<void> receiving = receive(&mailbox_, view_, 1, into, &stop_);
  receiving.start();
  world_.run();
  ASSERT_TRUE(receiving.done());
  EXPECT_EQ(port_.released, 1) << "what is held is to be asked for again";
  EXPECT_EQ(judged(next), Action::kInto);
}

// Rank 0 of 65 in as many groups of two, in each of which it swaps with another rank that sends as much as it may, and too early.
TEST(ManyPeers, StoreNoMoreThanSixteenLongSwapsCredit) {
  constexpr int kPeers = 64;
  sim::World world(42);
  sim::SimLoop loop(world, "rank 0");
  PlayedPort port;
  std::vector<Member> members;
  for (int rank = 0; rank <= kPeers; ++rank)
    members.push_back({static_cast<std::uint32_t>(rank), 3, static_cast<std::uint32_t>(rank)});
  const auto all = std::make_shared<const View>(1, 0, 0, 0, members);
  Stop stop;
  Messenger messenger(loop, port, all, 0);
  Mailbox& mailbox = messenger.mailbox();
  std::vector<std::byte> bytes(Mailbox::kLongSwapBytes);
  std::vector<Task<void>> swaps;
  for (int rank = 1; rank <= kPeers; ++rank) {
    swaps.push_back(swap_with(&mailbox, all, rank, bytes, &stop));
    swaps.back().start();
  }
  std::uint64_t stored = 0, granted = 0;
  for (int rank = 1; rank <= kPeers; ++rank) {
    const auto told = std::find_if(port.posted.rbegin(), port.posted.rend(), [&](const MessageHeader& one) {
      return one.sequence == static_cast<std::uint64_t>(rank);
    });
    ASSERT_NE(told, port.posted.rend());
    granted += told->credit_limit;
    EXPECT_EQ(told->kind, MessageKind::kEager);
    EXPECT_EQ(told->traffic, OperationTraffic{}.data) << "long payloads are not of the class of latency";
    for (std::uint32_t tag = 100; tag < 108; ++tag) {
      MessageHeader early;
      early.kind = MessageKind::kEager;
      early.step = tag;
      early.member = static_cast<std::uint32_t>(rank);
      early.incarnation = 3;
      early.group = all->id();
      early.sequence = static_cast<std::uint64_t>(rank);
      early.fingerprint = kFingerprint;
      early.length = early.total = Mailbox::kLongSwapBytes;
      const Placement place = port.receiver->on_header(rank, early);
      if (place.action == Action::kInto) stored += place.into.bytes;
      if (place.action == Action::kInto) port.receiver->on_placed(rank, early);
    }
  }
  constexpr std::uint64_t kMost =
      kPeers * Peer::kCreditBytes + Peer::kMostSwapPeers * (Peer::kSwapCreditBytes - Peer::kCreditBytes);
  EXPECT_EQ(stored, kMost);
  EXPECT_EQ(granted, kMost) << "each knows what it may send";
  const auto over = std::make_exception_ptr(Error(Code::kPeerFailed, "the test is over"));
  for (int rank = 1; rank <= kPeers; ++rank) port.receiver->on_peer_lost(rank, over);
  for (SendCompletion* completion : std::exchange(port.completions, {})) completion->sent(over);
  world.run();
}

TEST_F(BadPeer, CreditComesBackHoweverAMessageEnds) {
  std::uint64_t told = credit_told();
  EXPECT_EQ(told, Mailbox::kCreditBytes);
  const auto comes_back = [&](const char* how) {
    EXPECT_EQ(credit_told(), told + 10) << how;
    told += 10;
  };
  const MessageHeader eager = header(MessageKind::kEager, 10);
  std::vector<std::byte> into(10);
  {
    Task<void> receiving = receive(&mailbox_, view_, 1, into, &stop_);
    receiving.start();
    ASSERT_EQ(judged(eager), Action::kInto);
    EXPECT_EQ(credit_told(), told) << "it is still on its way";
    placed(eager);
    world_.run();
    ASSERT_TRUE(receiving.done());
    comes_back("it went to who waited for it");
  }
  {
    ASSERT_EQ(judged(header(MessageKind::kEager, 10, 2)), Action::kInto);
    placed(header(MessageKind::kEager, 10, 2));
    Task<void> receiving = receive(&mailbox_, view_, 2, into, &stop_);
    receiving.start();
    world_.run();
    ASSERT_TRUE(receiving.done());
    comes_back("it was unexpected and its receive was posted");
  }
  const MessageHeader left = header(MessageKind::kEager, 10, 3);
  ASSERT_EQ(judged(left), Action::kInto);
  placed(left);
  messenger_.aborts().abort(view_, 0, std::make_exception_ptr(Error(Code::kTimeout, "too late")));
  comes_back("its group ended");
  EXPECT_EQ(judged(eager), Action::kDrop);
  comes_back("it came after the end of its group");
  messenger_.forget(view_->id());
  EXPECT_EQ(judged(eager), Action::kDrop);
  comes_back("this rank has left its group");
}

TEST_F(BadPeer, DataGoesOnlyWhereACtsWasSent) {
  constexpr std::size_t kLength = 100'000;
  std::vector<std::byte> into(kLength);
  Task<void> receiving = receive(&mailbox_, view_, 1, into, &stop_);
  receiving.start();
  MessageHeader data = header(MessageKind::kData, kLength);
  EXPECT_EQ(judged(data), Action::kDrop) << "no CTS was sent for it";
  MessageHeader rts = header(MessageKind::kRts, 0);
  rts.total = kLength;
  for (int time = 0; time < 2; ++time) {
    ASSERT_EQ(judged(rts), Action::kInto);
    placed(rts);
    EXPECT_EQ(port_.count(MessageKind::kCts), 1u) << "one CTS, however often the RTS comes";
  }
  for (const auto& [offset, length] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, kLength + 1}, {1, kLength}, {kLength + 1, 0}, {~std::uint64_t{0} - 9, 20}}) {
    data.offset = offset;
    data.length = length;
    EXPECT_EQ(judged(data), Action::kDrop) << offset << " + " << length;
  }
  data.offset = 1;
  data.length = kLength - 1;
  const Placement place = placement_of(data);
  ASSERT_EQ(place.action, Action::kInto);
  EXPECT_EQ(place.into.data, into.data() + 1);
  EXPECT_EQ(place.into.bytes, kLength - 1);
  placed(data);
  EXPECT_FALSE(receiving.done());
  data.offset = 0;
  data.length = 1;
  ASSERT_EQ(judged(data), Action::kInto);
  placed(data);
  world_.run();
  EXPECT_TRUE(receiving.done());
}

TEST_F(BadPeer, WhoeverHasNoCreditLeftSendsAnRts) {
  const std::uint64_t fits = Mailbox::kCreditBytes / Mailbox::kEagerBytes;
  MessageHeader gives_credit = header(MessageKind::kEager, 0, 99);
  gives_credit.credit_limit = Mailbox::kCreditBytes;
  ASSERT_EQ(judged(gives_credit), Action::kInto);
  placed(gives_credit);
  std::vector<std::byte> from(Mailbox::kEagerBytes);
  std::vector<Task<void>> sends;
  for (std::uint64_t i = 1; i <= fits + 1; ++i) {
    sends.push_back(send(&mailbox_, view_, i, from, &stop_));
    sends.back().start();
    EXPECT_EQ(port_.posted.back().kind, i <= fits ? MessageKind::kEager : MessageKind::kRts) << i;
  }
  for (SendCompletion* completion : std::exchange(port_.completions, {})) completion->sent(nullptr);
  MessageHeader cts = header(MessageKind::kCts, 0);
  cts.sequence = fits + 1;
  for (int time = 0; time < 2; ++time) {
    ASSERT_EQ(judged(cts), Action::kInto);
    placed(cts);
    EXPECT_EQ(port_.count(MessageKind::kData), 1u) << "it goes once";
  }
  for (SendCompletion* completion : std::exchange(port_.completions, {})) completion->sent(nullptr);
  world_.run();
  for (const Task<void>& each : sends) EXPECT_TRUE(each.done());
}

}  // namespace
}  // namespace aiacc
