// Connections that break: at every byte, again and again, with messages held, withdrawn and revoked meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/view.h"
#include "transports/exchange.h"
#include "transports/messenger.h"
#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Action;
using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;

struct Post {
  int from;
  std::uint32_t tag;
  std::size_t bytes;
  TrafficClass traffic;
};

// Everything posted arrives once, whole and in the order of its class, and every completion is told once.
void expect_all(const std::vector<Post>& posts, Recorder (&receiver)[2]) {
  for (int from = 0; from < 2; ++from) {
    const Recorder& other = receiver[1 - from];
    std::map<TrafficClass, std::vector<std::uint32_t>> sent, got;
    for (const Post& post : posts) {
      if (post.from == from) sent[post.traffic].push_back(post.tag);
    }
    for (const Recorder::Message& message : other.messages) {
      got[message.header.traffic].push_back(message.header.step);
      EXPECT_TRUE(message.bytes == pattern(message.header.length, message.header.step)) << message.header.step;
    }
    EXPECT_EQ(sent, got);
    EXPECT_EQ(other.asked.size(), other.placed) << "the receiver was asked twice";
    EXPECT_TRUE(other.lost.empty()) << other.lost[0].second.message();
  }
}

// Runs the posts; `breaks` is asked for the next break whenever none is pending. False: they did not all arrive.
bool run(SimTcp& net, Recorder (&receiver)[2], const std::vector<Post>& posts,
         const std::function<void(SimTcp&)>& breaks) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Completion> told(posts.size());
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  breaks(net);
  for (std::size_t i = 0; i < posts.size(); ++i) {
    bytes.push_back(pattern(posts[i].bytes, posts[i].tag));
    const Buffer piece{bytes.back().data(), bytes.back().size()};
    net.port(posts[i].from)
        .post(1 - posts[i].from, header_of(posts[i].tag, piece.bytes, posts[i].traffic), std::span(&piece, 1), told[i]);
  }
  const bool done = net.run_until([&] {
    if (!net.network.break_pending()) breaks(net);
    return receiver[0].placed + receiver[1].placed == posts.size() &&
           std::all_of(told.begin(), told.end(), [](const Completion& each) { return each.told > 0; });
  });
  for (const Completion& each : told) {
    EXPECT_EQ(each.told, 1);
    EXPECT_EQ(each.error, nullptr);
  }
  for (int rank = 0; rank < 2; ++rank) net.port(rank).close();
  return done;
}

const std::vector<Post>& small_posts() {
  static const std::vector<Post> posts = {{0, 0, 30, TrafficClass::kBulk},   {0, 1, 0, TrafficClass::kLatency},
                                          {1, 2, 5, TrafficClass::kControl}, {0, 3, 100, TrafficClass::kBulk},
                                          {1, 4, 200, TrafficClass::kBulk},  {1, 5, 1, TrafficClass::kLatency},
                                          {0, 6, 50, TrafficClass::kControl}};
  return posts;
}

// How many of the positions were reached by the small posts. Each break is followed by a connection with keys of its own.
std::uint64_t break_at_every_byte(Encryption protection, std::uint64_t positions) {
  std::uint64_t breaks = 0;
  for (std::uint64_t position = 0; position <= positions; ++position) {
    SimTcp net(2, position + 1, protection);
    Recorder receiver[2];
    int planned = 0;  // the first two: of two dials that cross, one is given up
    EXPECT_TRUE(run(net, receiver, small_posts(), [&](SimTcp& its) {
      if (planned++ < 2) its.network.break_next(position);
    })) << position;
    expect_all(small_posts(), receiver);
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "break after " << position << " bytes";
      break;
    }
    breaks += net.network.broken() > 0 ? 1 : 0;
  }
  return breaks;
}

TEST(TcpBreaks, AtEveryByteOfSmallMessages) {
  const std::uint64_t breaks = break_at_every_byte(Encryption::kNone, 2000);
  // The handshake has more than 200 bytes, seven headers and their payloads more than 1,000: all positions were hit.
  EXPECT_GT(breaks, 1200u);
  EXPECT_LT(breaks, 2000u);
}

TEST(TcpBreaks, AtEveryByteOfSmallEncryptedMessages) {
  const std::uint64_t breaks = break_at_every_byte(Encryption::kData, 2700);
  EXPECT_GT(breaks, 1300u);
  EXPECT_LT(breaks, 2700u);
}

TEST(TcpBreaks, AtEveryByteOfSmallAuthenticatedMessages) {
  const std::uint64_t breaks = break_at_every_byte(Encryption::kIntegrity, 2700);
  EXPECT_GT(breaks, 1300u);
  EXPECT_LT(breaks, 2700u);
}

// It sent them an answer, say. What is sent again after a break is not taken for them.
TEST(TcpBreaks, BytesThatThePeerHasMayChangeBeforeTheyAreAcknowledged) {
  constexpr std::size_t kLong = TcpPort::kKeptBytes + 1;
  for (const Encryption protection : {Encryption::kNone, Encryption::kIntegrity}) {
    int broke_meanwhile = 0;
    for (std::uint64_t position = kLong; position < kLong + 1500; ++position) {
      SimTcp net(2, position + 1, protection);
      Recorder receiver[2];
      for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
      std::vector<std::byte> bytes = pattern(kLong, 1);
      Completion told;
      net.network.break_next(position);
      post(net.port(0), 1, header_of(1, kLong), bytes, told);
      bool changed = false;
      ASSERT_TRUE(net.run_until([&] {
        const bool had = receiver[1].placed > 0 && told.told == 0;
        if (had && !std::exchange(changed, true)) std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
        return told.told > 0 && receiver[1].placed > 0;
      })) << position;
      EXPECT_EQ(told.error, nullptr);
      ASSERT_EQ(receiver[1].messages.size(), 1u) << position;
      EXPECT_TRUE(receiver[1].messages[0].bytes == pattern(kLong, 1)) << position;
      broke_meanwhile += changed && net.network.broken() > 0 ? 1 : 0;
      for (int rank = 0; rank < 2; ++rank) net.port(rank).close();
    }
    EXPECT_GT(broke_meanwhile, 0);
  }
}

// Somebody on the path turns a bit of what goes over a protected connection: it is made anew and nobody is lost. The limit has
// room for a handshake that waits for bytes which an altered length announces.
std::uint64_t alter_at_many_bytes(Encryption protection, std::uint64_t positions) {
  std::uint64_t altered = 0;
  // Each byte of the handshake, and every third of the rest, whose records have each of their parts at many places.
  for (std::uint64_t position = 0; position <= positions; position += position < 350 ? 1 : 3) {
    SimTcp net(2, position + 1, protection, std::chrono::seconds(8));
    Recorder receiver[2];
    int planned = 0;
    EXPECT_TRUE(run(net, receiver, small_posts(), [&](SimTcp& its) {
      if (!its.network.alter_pending() && planned++ < 2) its.network.alter_next(position);
    })) << position;
    expect_all(small_posts(), receiver);
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "byte " << position << " was altered";
      break;
    }
    altered += net.network.altered() > 0 ? 1 : 0;
  }
  return altered;
}

TEST(TcpBreaks, AnAlteredByteOfAnEncryptedConnectionCostsTheConnectionOnly) {
  EXPECT_GT(alter_at_many_bytes(Encryption::kData, 2700), 650u);
}

TEST(TcpBreaks, AnAlteredByteOfAnAuthenticatedConnectionCostsTheConnectionOnly) {
  EXPECT_GT(alter_at_many_bytes(Encryption::kIntegrity, 2700), 650u);
}

TEST(TcpBreaks, AlteredBytesOfLargeMessagesAreGivenToNobody) {
  const std::vector<Post> posts = {{0, 0, 400'000, TrafficClass::kBulk},
                                   {1, 1, 500'000, TrafficClass::kBulk},
                                   {0, 2, 20'000, TrafficClass::kLatency},
                                   {0, 3, 100'000, TrafficClass::kBulk}};
  for (const Encryption protection : {Encryption::kData, Encryption::kIntegrity}) {
    for (std::uint64_t position = 300; position < 1'000'000; position += 9973) {
      SimTcp net(2, position, protection);
      Recorder receiver[2];
      int planned = 0;
      ASSERT_TRUE(run(net, receiver, posts, [&](SimTcp& its) {
        if (!its.network.alter_pending() && planned++ < 5) its.network.alter_next(position);
      })) << position;
      expect_all(posts, receiver);
      EXPECT_GT(net.network.altered(), 0u);
      if (::testing::Test::HasFailure()) FAIL() << "byte " << position << " was altered";
    }
  }
}

// On every connection: both ends give up soon, and say why.
TEST(TcpBreaks, WhoAltersEveryConnectionIsNamed) {
  for (const Encryption protection : {Encryption::kData, Encryption::kIntegrity}) {
    SimTcp net(2, 1, protection);
    Recorder receiver[2];
    Completion told;
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
    std::vector<std::byte> bytes = pattern(100'000, 1);
    const Buffer piece{bytes.data(), bytes.size()};
    net.port(0).post(1, header_of(1, piece.bytes), std::span(&piece, 1), told);
    ASSERT_TRUE(net.run_until([&] {
      if (!net.network.alter_pending()) net.network.alter_next(50'000);
      return receiver[0].lost.size() == 1 && receiver[1].lost.size() == 1;
    }));
    EXPECT_EQ(receiver[1].lost[0].second.code(), Code::kProtocol);
    const std::string& said = receiver[1].lost[0].second.message();
    EXPECT_EQ(said.rfind("rank 0 on host 0: 8 connections within 0.", 0), 0u) << said;
    EXPECT_NE(said.find("Somebody on the path between the hosts alters what they say"), std::string::npos) << said;
    EXPECT_EQ(net.network.altered(), 8u);
    EXPECT_NE(receiver[0].lost[0].second.message().find("given this rank up for lost"), std::string::npos);
  }
}

TEST(TcpBreaks, InTheMiddleOfLargeMessages) {
  const std::vector<Post> posts = {{0, 0, 40'000, TrafficClass::kBulk},
                                   {1, 1, 50'000, TrafficClass::kBulk},
                                   {0, 2, 20'000, TrafficClass::kLatency},
                                   {0, 3, 100'000, TrafficClass::kBulk}};
  for (std::uint64_t position = 100; position < 212'000; position += 997) {
    SimTcp net(2, position);
    Recorder receiver[2];
    bool planned = false;
    ASSERT_TRUE(run(net, receiver, posts, [&](SimTcp& its) {
      if (!std::exchange(planned, true)) its.network.break_next(position);
    })) << position;
    expect_all(posts, receiver);
    if (::testing::Test::HasFailure()) FAIL() << "break after " << position << " bytes";
  }
}

void break_again_and_again(Encryption protection, std::uint64_t seeds, int streams = 1) {
  const std::size_t longest = streams > 1 ? 700'000 : 30'000;
  std::vector<Post> posts;
  for (std::uint32_t tag = 0; tag < 60; ++tag) {
    posts.push_back({static_cast<int>(tag % 3 == 0), tag, tag * 791'900 % longest, static_cast<TrafficClass>(tag % 3)});
  }
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimTcp net(2, seed, protection, std::chrono::seconds(2), streams);
    sim::Random random(seed);
    Recorder receiver[2];
    ASSERT_TRUE(run(net, receiver, posts, [&](SimTcp& its) { its.network.break_next(random.below(2 * longest)); }))
        << seed;
    expect_all(posts, receiver);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(TcpBreaks, EveryConnectionAgainAndAgain) { break_again_and_again(Encryption::kNone, 100); }

TEST(TcpBreaks, EveryEncryptedConnectionAgainAndAgain) { break_again_and_again(Encryption::kData, 30); }

TEST(TcpBreaks, EveryAuthenticatedConnectionAgainAndAgain) { break_again_and_again(Encryption::kIntegrity, 30); }

TEST(TcpBreaks, EachOfFourConnectionsAgainAndAgain) { break_again_and_again(Encryption::kNone, 30, 4); }

TEST(TcpBreaks, EachOfFourEncryptedConnectionsAgainAndAgain) { break_again_and_again(Encryption::kData, 5, 4); }

// A receiver that holds, drops and takes back as its dice fall; what it takes, it checks.
class Moody final : public MessageReceiver {
 public:
  Moody(SimTcp& net, int rank, std::uint64_t seed) : net_(net), rank_(rank), random_(seed) {}

  Placement on_header(int from, const MessageHeader& header) noexcept override {
    const std::uint64_t dice = random_.below(10);
    if (dice == 0) {
      held = true;
      once_held_.insert(header.step);
      return {Action::kHold, {}};
    }
    if (dice == 1) {
      over.insert(header.step);
      return {Action::kDrop, {}};
    }
    std::uint32_t& last = last_[header.traffic];
    if (!once_held_.contains(header.step)) {  // those that were come later
      if (header.step < last) ADD_FAILURE() << "tag " << header.step << " came after " << last;
      last = header.step;
    }
    Place& place = places_[{from, header.step}];
    EXPECT_TRUE(place.bytes.empty()) << "asked twice for tag " << header.step;
    place.bytes.resize(header.length + 1);
    place.header = header;
    return {Action::kInto, Buffer{place.bytes.data(), header.length}};
  }
  void on_placed(int from, const MessageHeader& header) noexcept override {
    Place& place = places_[{from, header.step}];
    EXPECT_FALSE(place.told) << header.step;
    place.told = true;
    over.insert(header.step);
    place.bytes.pop_back();
    if (!place.revoked) {
      EXPECT_TRUE(place.bytes == pattern(header.length, header.step)) << header.step;
    }
    std::fill(place.bytes.begin(), place.bytes.end(), std::byte{0x55});  // nobody may write here any more
  }
  void on_peer_lost(int, std::exception_ptr error) noexcept override { ADD_FAILURE() << as_error(error).message(); }

  void act() {
    if (held && random_.below(100) == 0) {
      held = false;
      net_.port(rank_).release(1 - rank_);
    }
    if (random_.below(200) != 0) return;
    for (auto& [key, place] : places_) {
      if (place.told || place.revoked) continue;
      place.revoked = true;
      net_.port(rank_).revoke(key.first, place.header);
    }
  }
  void check() {
    for (auto& [key, place] : places_) {
      if (!place.told) continue;  // its sender withdrew it while it was arriving
      EXPECT_EQ(std::count(place.bytes.begin(), place.bytes.end(), std::byte{0x55}),
                static_cast<long>(place.bytes.size()));
    }
  }

  std::set<std::uint32_t> over;  // tags that are placed, revoked or dropped
  bool held = false;

 private:
  struct Place {
    MessageHeader header;
    std::vector<std::byte> bytes;  // and one more, so that it is never empty once asked for
    bool revoked = false;
    bool told = false;
  };
  SimTcp& net_;
  int rank_;
  sim::Random random_;
  std::map<TrafficClass, std::uint32_t> last_;
  std::set<std::uint32_t> once_held_;
  std::map<std::pair<int, std::uint32_t>, Place> places_;
};

void break_while_held_withdrawn_and_revoked(int streams) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SimTcp net(2, seed, Encryption::kNone, std::chrono::seconds(2), streams);
    sim::Random random(seed * 31);
    Moody receiver[2] = {{net, 0, seed * 2}, {net, 1, seed * 2 + 1}};
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
    constexpr std::uint32_t kCount = 80;
    std::vector<std::vector<std::byte>> bytes(kCount);
    std::vector<Completion> told(kCount);
    std::vector<bool> withdrawn(kCount);
    std::vector<int> sender(kCount);
    std::function<void()> tick = [&] { net.world.at(after(net.world.now(), std::chrono::microseconds(10)), tick); };
    tick();  // the dice fall also when nothing else happens
    std::uint32_t posted = 0;
    const bool done = net.run_until([&] {
      if (!net.network.break_pending()) net.network.break_next(random.below(1'500'000));
      for (Moody& each : receiver) each.act();
      if (posted < kCount && random.below(10) == 0) {
        constexpr std::uint64_t kLengths[] = {1000, 60'000, 600'000};  // the last fills the simulated network
        bytes[posted] = pattern(random.below(kLengths[random.below(3)]), posted);
        const int from = sender[posted] = static_cast<int>(random.below(2));
        const Buffer piece{bytes[posted].data(), bytes[posted].size()};
        const MessageHeader header = header_of(posted, piece.bytes, static_cast<TrafficClass>(random.below(3)));
        if (random.below(2) == 0) {
          net.port(from).post(1 - from, header, std::span(&piece, 1), told[posted]);
        } else {
          net.port(from).post_now(1 - from, header, std::span(&piece, 1), told[posted]);
        }
        ++posted;
      }
      if (posted > 0 && random.below(100) == 0) {
        const std::size_t one = random.below(posted);
        withdrawn[one] = withdrawn[one] || told[one].told == 0;
        net.port(sender[one]).withdraw(told[one]);
      }
      for (std::uint32_t i = 0; i < posted; ++i) {  // what was told may be overwritten
        if (told[i].told == 0 || bytes[i].empty() || bytes[i][0] == std::byte{0xee}) continue;
        std::fill(bytes[i].begin(), bytes[i].end(), std::byte{0xee});
      }
      for (std::uint32_t i = 0; i < kCount; ++i) {
        if (told[i].told == 0 || !(withdrawn[i] || receiver[1 - sender[i]].over.contains(i))) return false;
      }
      return true;
    });
    ASSERT_TRUE(done) << "seed " << seed;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(told[i].told, 1);
      EXPECT_TRUE(withdrawn[i] || told[i].error == nullptr);
    }
    for (Moody& each : receiver) each.check();
    for (int rank = 0; rank < 2; ++rank) net.port(rank).close();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(TcpBreaks, WhileMessagesAreHeldWithdrawnAndRevoked) { break_while_held_withdrawn_and_revoked(1); }

TEST(TcpBreaks, OneOfFourWhileMessagesAreHeldWithdrawnAndRevoked) { break_while_held_withdrawn_and_revoked(4); }

// --- under the mailbox ----------------------------------------------------------------------------------------------------

struct Note {
  std::string describe() const { return "a ring"; }
};

// Everybody sends to the next rank and receives from the one before, `rounds` times, in sizes that go eagerly and by
// rendezvous.
Task<void> ring(Mailbox* mailbox, ViewPtr view, int rank, std::uint64_t rounds) {
  Stop stop;
  const int size = view->size();
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    Exchange exchange(*mailbox, view, rank, round, 7, CallNote(Note{}));
    exchange.set_immediate(round % 2 == 0);
    const std::size_t length = round * 7919 % 70'000;
    std::vector<std::byte> out = pattern(length, static_cast<unsigned>(rank)), in(length);
    const Transfer::To to{(rank + 1) % size, 1, Buffer{out.data(), length}};
    const Transfer::From from{(rank + size - 1) % size, 1, Buffer{in.data(), length}};
    co_await exchange.send_recv(to, from, stop);
    if (in != pattern(length, static_cast<unsigned>(from.rank))) throw Error(Code::kInternal, "wrong bytes came");
  }
}

TEST(TcpBreaks, OperationsAboveDoNotNotice) {
  std::vector<Member> members;
  for (std::uint32_t rank = 0; rank < 3; ++rank) members.push_back(Member{rank, 0, rank});
  const auto view = std::make_shared<const View>(1, 0, 0, 0, members);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SimTcp net(3, seed);
    sim::Random random(seed);
    std::vector<std::unique_ptr<Messenger>> messengers;
    std::vector<Task<void>> rings;
    for (int rank = 0; rank < 3; ++rank) {
      messengers.push_back(
          std::make_unique<Messenger>(net.hosts[static_cast<std::size_t>(rank)]->loop, net.port(rank), view, rank));
    }
    for (int rank = 0; rank < 3; ++rank) {
      rings.push_back(ring(&messengers[static_cast<std::size_t>(rank)]->mailbox(), view, rank, 20));
      rings.back().start();
    }
    ASSERT_TRUE(net.run_until([&] {
      if (!net.network.break_pending()) net.network.break_next(random.below(100'000));
      return std::all_of(rings.begin(), rings.end(), [](const Task<void>& each) { return each.done(); });
    })) << "seed "
        << seed;
    for (Task<void>& each : rings) each.take();
    EXPECT_GT(net.network.broken(), 3u);
  }
}

}  // namespace
}  // namespace aiacc::tcp_test
