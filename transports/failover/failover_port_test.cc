#include "transports/failover/failover_port.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "base/wire/codec.h"
#include "base/wire/path_messages.h"
#include "transports/failover/receipts.h"
#include "transports/forwarding_port_test.h"
#include "transports/message_conformance.h"
#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using message_conformance::Action;
using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::kRanks;
using message_conformance::MessageConformance;
using message_conformance::pattern;
using message_conformance::Recorder;

// A port that says nothing of broken paths until the test has broken one: TcpPort does while it connects first.
class Quiet final : public ForwardingPort, private MessageReceiver {
 public:
  using ForwardingPort::ForwardingPort;
  void set_receiver(MessageReceiver& receiver) noexcept override {
    receiver_ = &receiver;
    ForwardingPort::set_receiver(*this);
  }
  void end_quiet() noexcept { quiet_ = false; }
  void say_broken(int rank) noexcept { receiver_->on_path_broken(rank); }

 private:
  Placement on_header(int from, const MessageHeader& header) noexcept override {
    return receiver_->on_header(from, header);
  }
  void on_placed(int from, const MessageHeader& header) noexcept override { receiver_->on_placed(from, header); }
  // A TcpPort hears of a peer that has given up this rank; UCX and libfabric only see a path that breaks.
  void on_peer_lost(int rank, std::exception_ptr error) noexcept override {
    if (as_error(error).message().ends_with("it has given this rank up for lost")) receiver_->on_path_broken(rank);
    receiver_->on_peer_lost(rank, std::move(error));
  }
  void on_path_broken(int rank) noexcept override {
    if (!quiet_) receiver_->on_path_broken(rank);
  }
  MessageReceiver* receiver_ = nullptr;
  bool quiet_ = true;
};

// Each rank on a host of its own, with two networks between them.
class SimFailover {
 public:
  explicit SimFailover(std::uint64_t seed = 42, int ranks = kRanks) : world(seed) {
    std::vector<std::unique_ptr<io::Listener>> listeners[2];
    for (int rank = 0; rank < ranks; ++rank) {
      hosts.push_back(std::make_unique<HostOf>(*this, rank));
      for (int of = 0; of < 2; ++of) {
        io::Net& net = of == 0 ? hosts.back()->first : hosts.back()->second;
        listeners[of].push_back(net.listen(io::Address::tcp(fmt::format("192.0.{}.{}", of + 2, rank + 1), 0)));
        addresses[of].push_back(listeners[of].back()->address());
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      HostOf& host = *hosts[static_cast<std::size_t>(rank)];
      const auto port = [&](int of, io::Net& net) {
        return std::make_unique<TcpPort>(host.loop, net, std::move(listeners[of][static_cast<std::size_t>(rank)]),
                                         tcp_test::settings_of(rank, addresses[of], host.entropy, 2s));
      };
      std::vector<std::string> names;
      for (int peer = 0; peer < ranks; ++peer) names.push_back(fmt::format("rank {} on host {}", peer, peer));
      auto first = std::make_unique<Quiet>(port(0, host.first));
      host.quiet = first.get();
      FailoverPort::Networks both{std::move(first), port(1, host.second), "a", "b"};
      host.port = std::make_unique<FailoverPort>(host.loop, std::move(both), rank, std::move(names));
      host.port->tell_remarks_to([&host](const std::string& sentence) { host.remarks.push_back(sentence); });
    }
  }
  FailoverPort& port(int rank) { return *hosts[static_cast<std::size_t>(rank)]->port; }
  bool run_until(const std::function<bool()>& done) {
    const Instant end = after(world.now(), 10s);
    return world.run_while_not([&] { return done() || world.now() > end; }) && done();
  }
  void run(Duration time) { world.run_until(after(world.now(), time)); }
  // The first network loses what is on its way between two ranks.
  void break_first() {
    for (const auto& host : hosts) host->quiet->end_quiet();
    networks[0].break_streams(0, 1);
  }
  // The same, and only one of the ranks hears of it.
  void cut_first(int hears) {
    networks[0].cut(0, 1);
    hosts[static_cast<std::size_t>(hears)]->quiet->say_broken(1 - hears);
  }
  void lose(int rank) { world.kill(hosts[static_cast<std::size_t>(rank)]->loop.node()); }

  struct HostOf {
    HostOf(SimFailover& owner, int rank)
        : loop(owner.world, "rank " + std::to_string(rank)),
          first(owner.networks[0], loop, rank, {1000, 1}),
          second(owner.networks[1], loop, rank, {1000, 1}),
          entropy(owner.world, loop.node()) {}
    sim::SimLoop loop;
    sim::SimNet first, second;
    sim::SimEntropy entropy;
    std::vector<std::string> remarks;
    Quiet* quiet = nullptr;  // its first port
    std::unique_ptr<FailoverPort> port;
  };
  sim::World world;
  sim::SimNetwork networks[2] = {sim::SimNetwork(world), sim::SimNetwork(world)};
  std::vector<io::Address> addresses[2];
  std::vector<std::unique_ptr<HostOf>> hosts;
};

INSTANTIATE_TEST_SUITE_P(Failover, MessageConformance,
                         testing::Values(&message_conformance::make<SimFailover>,
                                         &message_conformance::make<tcp_test::Immediate<SimFailover>>));

// Keeps what comes by class and step, and takes a replay as MessageReceiver asks for it.
class Inbox final : public MessageReceiver {
 public:
  struct Entry {
    std::vector<std::byte> bytes;
    int placed = 0;
    bool asked = false;
    bool revoked = false;
  };
  Placement on_header(int from, const MessageHeader& header) noexcept override {
    Entry& entry = entries[{header.traffic, header.step}];
    EXPECT_TRUE(entry.placed == 0 || entry.revoked)
        << "message " << header.step << " of rank " << from << " came again";
    if (!std::exchange(entry.asked, true)) order[header.traffic].push_back(header.step);
    if (holds && holds(header)) return {Action::kHold, {}};
    if (entry.revoked) return {Action::kDrop, {}};
    entry.bytes.resize(header.length);
    if (placing) placing(header);
    return {Action::kInto, Buffer{entry.bytes.data(), entry.bytes.size()}};
  }
  void on_placed(int, const MessageHeader& header) noexcept override {
    ++entries[{header.traffic, header.step}].placed;
    ++placed;
  }
  void on_peer_lost(int rank, std::exception_ptr error) noexcept override { lost.emplace_back(rank, as_error(error)); }

  void on_path_broken(int) noexcept override { ++broken; }

  std::function<bool(const MessageHeader&)> holds;
  std::function<void(const MessageHeader&)> placing;
  std::map<std::pair<TrafficClass, std::uint32_t>, Entry> entries;
  std::map<TrafficClass, std::vector<std::uint32_t>> order;
  std::vector<std::pair<int, Error>> lost;
  int broken = 0;
  int placed = 0;
};

// Its sender uses the memory for something else as soon as it may.
struct Sent {
  struct Overwrites final : SendCompletion {
    explicit Overwrites(Sent& its) : owner(its) {}
    void sent(std::exception_ptr failure) noexcept override {
      ++told;
      error = std::move(failure);
      std::fill(owner.bytes.begin(), owner.bytes.end(), std::byte{0xee});
    }
    Sent& owner;
    int told = 0;
    std::exception_ptr error;
  };
  MessageHeader header;
  std::vector<std::byte> bytes;
  Overwrites completion{*this};
  bool withdrawn = false;
};

class TwoRanks : public SimFailover {
 public:
  explicit TwoRanks(std::uint64_t seed = 42) : SimFailover(seed, 2) {
    for (int rank = 0; rank < 2; ++rank) port(rank).set_receiver(inbox[rank]);
  }
  ~TwoRanks() {
    for (int rank = 0; rank < 2; ++rank) port(rank).close();
  }
  Sent& post(int from, std::size_t bytes, TrafficClass traffic = TrafficClass::kBulk) {
    Sent& one = sent[from].emplace_back();
    const auto step = static_cast<std::uint32_t>(sent[from].size());
    one.header = header_of(step, bytes, traffic);
    one.bytes = pattern(bytes, step);
    const Buffer piece{one.bytes.data(), one.bytes.size()};
    port(from).post(1 - from, one.header, std::span(&piece, 1), one.completion);
    return one;
  }
  // Takes back a place of a message that is on its way.
  void revoke_one(int rank) {
    for (const Sent& one : sent[1 - rank]) {
      const auto found = inbox[rank].entries.find({one.header.traffic, one.header.step});
      if (found == inbox[rank].entries.end() || found->second.placed > 0 || found->second.bytes.empty() ||
          found->second.revoked) {
        continue;
      }
      found->second.revoked = true;
      return port(rank).revoke(1 - rank, one.header);
    }
  }
  bool all_told() const {
    for (const auto& each : sent) {
      if (!std::all_of(each.begin(), each.end(), [](const Sent& one) { return one.completion.told == 1; }))
        return false;
    }
    return true;
  }
  bool all_came() const {
    for (int from = 0; from < 2; ++from) {
      for (const Sent& one : sent[from]) {
        const auto found = inbox[1 - from].entries.find({one.header.traffic, one.header.step});
        if (!one.withdrawn && (found == inbox[1 - from].entries.end() || found->second.placed == 0)) return false;
      }
    }
    return true;
  }
  // Each message came once, whole and in its turn.
  void expect_delivered(int from) {
    Inbox& to = inbox[1 - from];
    for (const Sent& one : sent[from]) {
      EXPECT_EQ(one.completion.told, 1) << one.header.step;
      const auto found = to.entries.find({one.header.traffic, one.header.step});
      if (one.withdrawn) continue;
      EXPECT_EQ(one.completion.error, nullptr)
          << one.header.step << (one.completion.error ? as_error(one.completion.error).message() : "");
      ASSERT_NE(found, to.entries.end()) << one.header.step << " did not come";
      if (found->second.revoked && !found->second.bytes.empty()) continue;
      EXPECT_EQ(found->second.placed, 1) << one.header.step;
      EXPECT_TRUE(found->second.bytes == pattern(one.bytes.size(), one.header.step)) << one.header.step;
    }
    for (const auto& [traffic, steps] : to.order) EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  }

  Inbox inbox[2];
  std::deque<Sent> sent[2];
};

TEST(Failover, NothingIsLostAndNothingComesTwiceWhateverBreaksWhen) {
  int went_over = 0, revoked = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    TwoRanks ranks(seed);
    sim::Random random(seed * 7919);
    bool open = false;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.inbox[rank].holds = [&](const MessageHeader& header) { return !open && header.step % 7 == seed % 7; };
    }
    const int messages = 10 + static_cast<int>(random.below(60));
    const int breaks_at = static_cast<int>(random.below(static_cast<std::uint64_t>(messages)));
    for (int message = 0; message < messages; ++message) {
      const std::size_t bytes = random.below(4) == 0 ? random.below(300'000) : random.below(3000);
      const int from = static_cast<int>(random.below(2));
      Sent& one = ranks.post(from, bytes, static_cast<TrafficClass>(random.below(kTrafficClasses)));
      if (message == breaks_at) {
        if (random.below(4) == 0) {
          ranks.cut_first(static_cast<int>(random.below(2)));
        } else {
          ranks.break_first();
        }
      }
      if (random.below(10) == 0 && one.completion.told == 0) {
        one.withdrawn = true;
        ranks.port(from).withdraw(one.completion);
      }
      ranks.run(Duration(random.below(3) == 0 ? random.below(2'000'000) : 0));
      if (random.below(3) == 0) ranks.revoke_one(1 - from);
    }
    ranks.run(Duration(random.below(5'000'000)));
    open = true;
    for (int turn = 0; turn < 100 && !(ranks.all_told() && ranks.all_came()); ++turn) {
      for (int rank = 0; rank < 2; ++rank) ranks.port(rank).release(1 - rank);
      ranks.run(100ms);
    }
    ranks.run(1s);
    for (int rank = 0; rank < 2; ++rank) {
      for (const auto& [which, entry] : ranks.inbox[rank].entries) {
        EXPECT_TRUE(!entry.revoked || entry.placed == 1) << "its place has come back";
        revoked += entry.revoked;
      }
      ranks.expect_delivered(rank);
      EXPECT_TRUE(ranks.inbox[rank].lost.empty()) << seed;
      went_over += !ranks.hosts[static_cast<std::size_t>(rank)]->remarks.empty();
    }
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(went_over, 400);
  EXPECT_GT(revoked, 30);
}

TEST(Failover, BothEndsTellTheUserOnce) {
  TwoRanks ranks;
  ranks.post(0, 10);
  ASSERT_TRUE(ranks.run_until([&] { return ranks.inbox[1].entries.size() == 1; }));
  ranks.break_first();
  ranks.post(1, 10);
  ranks.run(1s);
  ranks.expect_delivered(1);
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<std::string>& remarks = ranks.hosts[static_cast<std::size_t>(rank)]->remarks;
    ASSERT_EQ(remarks.size(), 1u);
    EXPECT_TRUE(remarks[0].starts_with("the path over a between rank 0 on host 0 and rank 1 on host 1 broke ("))
        << remarks[0];
    EXPECT_TRUE(remarks[0].ends_with("); their messages go over b from now on")) << remarks[0];
  }
}

TEST(Failover, WhenTheSecondNetworkBreaksTooThePathIsBrokenUntilItIsBack) {
  TwoRanks ranks;
  ranks.post(0, 10);
  ASSERT_TRUE(ranks.run_until([&] { return ranks.inbox[1].entries.size() == 1; }));
  ranks.networks[1].cut(0, 1);
  ranks.break_first();
  ranks.post(0, 200'000);
  ranks.run(30s);
  EXPECT_FALSE(ranks.all_told());
  EXPECT_TRUE(ranks.port(0).broken_path(1).has_value());
  ranks.networks[1].heal(0, 1);
  EXPECT_TRUE(ranks.run_until([&] { return ranks.all_told(); }));
  ranks.expect_delivered(0);
}

TEST(Failover, ARankThatIsGoneIsLostOverBoth) {
  TwoRanks ranks;
  ranks.post(0, 10);
  ASSERT_TRUE(ranks.run_until([&] { return ranks.inbox[1].entries.size() == 1; }));
  ranks.lose(1);
  Sent& late = ranks.post(0, 200'000);
  ASSERT_TRUE(ranks.run_until([&] { return late.completion.told == 1; }));
  EXPECT_EQ(as_error(late.completion.error).code(), Code::kPeerFailed);
  ranks.run(5s);
  ASSERT_EQ(ranks.inbox[0].lost.size(), 1u);
  EXPECT_EQ(ranks.inbox[0].lost[0].first, 1);
  EXPECT_TRUE(ranks.hosts[0]->remarks.empty()) << "nothing goes over the other network";
}

Task<void> leave(MessagePort* port, bool* left) {
  Stop stop;
  co_await port->leave(5s, stop);
  *left = true;
}

TEST(Failover, RanksLeaveInOrderThoughAPathBreaksMeanwhile) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    TwoRanks ranks(seed);
    sim::Random random(seed * 7919);
    for (int message = 0; message < 20; ++message) ranks.post(message % 2, random.below(100'000));
    if (seed % 2 == 0) ranks.run(Duration(random.below(1'000'000)));
    if (seed % 2 == 0) ranks.break_first();
    ASSERT_TRUE(
        ranks.run_until([&] { return ranks.all_told() && ranks.inbox[0].placed + ranks.inbox[1].placed == 20; }));
    bool left[2] = {};
    Task<void> leaving[2] = {leave(&ranks.port(0), &left[0]), leave(&ranks.port(1), &left[1])};
    for (Task<void>& each : leaving) each.start();
    ranks.run(Duration(random.below(1'000'000)));
    ranks.break_first();
    EXPECT_TRUE(ranks.run_until([&] { return left[0] && left[1]; })) << seed;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.expect_delivered(rank);
      for (const auto& [other, error] : ranks.inbox[rank].lost)
        EXPECT_TRUE(error.message().ends_with(" has left the job"));
    }
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(Failover, ReceiptsWithoutSenseEndThePair) {
  wire::Receipts fine, of_nothing;
  fine.complete = {0, 0, 0, 0};
  of_nothing.complete = {0, 0, 1, 0};  // nothing was sent
  const auto end = [](const wire::Bytes& bytes, TrafficClass traffic) {
    TwoRanks ranks;
    MessageHeader header = header_of(1, bytes.size(), traffic);
    header.kind = MessageKind::kPath;
    Completion told;
    wire::Bytes copy = bytes;
    const Buffer piece{copy.data(), copy.size()};
    ranks.port(0).post(1, header, std::span(&piece, 1), told);
    ranks.run(1s);
    EXPECT_TRUE(ranks.inbox[1].entries.empty());
    if (ranks.inbox[1].lost.empty()) return std::string();
    EXPECT_EQ(ranks.inbox[1].lost[0].second.code(), Code::kProtocol);
    return ranks.inbox[1].lost[0].second.message();
  };
  EXPECT_EQ(end(wire::encode(fine), TrafficClass::kControl), "");
  EXPECT_EQ(end(wire::encode(of_nothing), TrafficClass::kControl),
            "rank 0 on host 0: it has received messages that were not sent");
  EXPECT_EQ(end(wire::encode(fine), TrafficClass::kBulk), "rank 0 on host 0: it sent receipts that make no sense");
  EXPECT_NE(end(wire::Bytes(10), TrafficClass::kControl), "");
  EXPECT_NE(end(wire::Bytes(2 << 20), TrafficClass::kControl), "");
}

TEST(ReceivedNumbers, AreCompleteUpToTheFirstThatIsMissing) {
  failover::ReceivedNumbers numbers;
  for (const std::uint64_t number : {1, 0, 4, 3, 0}) numbers.add(number);
  EXPECT_EQ(numbers.complete(), 2u);
  numbers.add(8);
  EXPECT_EQ(numbers.beyond(), (failover::ReceivedNumbers::Ranges{{3, 5}, {8, 9}}));
  numbers.add(2);
  EXPECT_EQ(numbers.complete(), 5u);
  EXPECT_EQ(numbers.beyond(), (failover::ReceivedNumbers::Ranges{{8, 9}}));
}

}  // namespace
}  // namespace aiacc
