// Ranks with two networks between them, in virtual time. For tests only.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transports/failover/failover_port.h"
#include "transports/message_conformance.h"
#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::failover_test {

using namespace std::chrono_literals;
using message_conformance::Action;
using message_conformance::header_of;
using message_conformance::kRanks;
using message_conformance::pattern;

// The first network of a rank: a TcpPort for each epoch. It says nothing of broken paths until the test has broken one: TcpPort does while it
// connects first.
class Renewable final : public MessagePort {
 public:
  Renewable(Loop& loop, std::vector<std::unique_ptr<MessagePort>> epochs, std::size_t ranks)
      : loop_(loop), ports_(std::move(epochs)), peers_(ranks) {
    for (std::uint32_t epoch = 0; epoch < ports_.size(); ++epoch)
      sides_.push_back(std::make_unique<Side>(*this, epoch));
  }
  void set_receiver(MessageReceiver& receiver) noexcept override {
    receiver_ = &receiver;
    for (std::size_t epoch = 0; epoch < ports_.size(); ++epoch) ports_[epoch]->set_receiver(*sides_[epoch]);
  }
  void post(int to, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override {
    ++posted;
    if (header.traffic == mute) return;
    has_[&completion] = &now(to);
    now(to).post(to, header, pieces, completion);
  }
  void release(int from) noexcept override { now(from).release(from); }
  void withdraw(SendCompletion& completion) noexcept override {
    if (const auto at = has_.find(&completion); at != has_.end()) at->second->withdraw(completion);
  }
  void revoke(int from, const MessageHeader& header) noexcept override { now(from).revoke(from, header); }
  void lose(int rank, std::exception_ptr why) noexcept override { now(rank).lose(rank, std::move(why)); }
  bool renew(int rank, std::uint32_t epoch) noexcept override {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(peer.lost) << "epoch " << epoch;
    EXPECT_GT(epoch, peer.epoch);
    renewed.push_back(loop_.now());
    if (epoch >= ports_.size()) return false;
    peer = Peer{epoch};
    return true;
  }
  Task<void> leave(Duration limit, Stop& stop) override {
    for (const auto& each : ports_) co_await each->leave(limit, stop);
  }
  void close() noexcept override {
    for (const auto& each : ports_) each->close();
  }

  void end_quiet(int rank) noexcept { peers_[static_cast<std::size_t>(rank)].quiet = false; }
  void say_broken(int rank) noexcept {
    if (peers_[static_cast<std::size_t>(rank)].lost) return;
    receiver_->on_path_broken(rank);
  }
  std::uint32_t epoch(int rank) const { return peers_[static_cast<std::size_t>(rank)].epoch; }

  std::vector<Instant> renewed;
  int posted = 0;
  std::optional<TrafficClass> mute;  // whose messages are lost

 private:
  struct Peer {
    std::uint32_t epoch = 0;
    bool lost = false;
    bool quiet = true;
  };
  struct Side final : MessageReceiver {
    Side(Renewable& its_owner, std::uint32_t its_epoch) : owner(its_owner), epoch(its_epoch) {}
    Placement on_header(int from, const MessageHeader& header) noexcept override {
      return is_of(from) ? owner.receiver_->on_header(from, header) : Placement{};
    }
    void on_placed(int from, const MessageHeader& header) noexcept override {
      if (is_of(from)) owner.receiver_->on_placed(from, header);
    }
    // A TcpPort hears of a peer that has given up this rank; UCX and libfabric only see a path that breaks.
    void on_peer_lost(int rank, std::exception_ptr error) noexcept override {
      if (!is_of(rank)) return;
      if (as_error(error).message().ends_with("it has given this rank up for lost")) owner.say_broken(rank);
      owner.peers_[static_cast<std::size_t>(rank)].lost = true;
      owner.receiver_->on_peer_lost(rank, std::move(error));
    }
    void on_path_broken(int rank) noexcept override {
      if (is_of(rank) && !owner.peers_[static_cast<std::size_t>(rank)].quiet) owner.say_broken(rank);
    }
    bool is_of(int rank) const { return owner.epoch(rank) == epoch; }
    Renewable& owner;
    const std::uint32_t epoch;
  };

  MessagePort& now(int rank) { return *ports_[epoch(rank)]; }

  Loop& loop_;
  std::vector<std::unique_ptr<MessagePort>> ports_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<Peer> peers_;
  std::map<SendCompletion*, MessagePort*> has_;  // which port has what was posted with each last
  MessageReceiver* receiver_ = nullptr;
};

// Each rank on a host of its own, with two networks between them.
class SimFailover {
 public:
  // `epochs`: how often the first network can be begun with.
  explicit SimFailover(std::uint64_t seed = 42, int ranks = kRanks, Duration failback = {}, std::size_t epochs = 1)
      : world(seed) {
    // The second network, and the first one of each epoch.
    std::vector<std::vector<std::unique_ptr<io::Listener>>> listeners(1 + epochs);
    std::vector<std::vector<io::Address>> addresses(1 + epochs);
    for (int rank = 0; rank < ranks; ++rank) {
      hosts.push_back(std::make_unique<HostOf>(*this, rank));
      for (std::size_t of = 0; of <= epochs; ++of) {
        io::Net& net = of == 0 ? hosts.back()->second : hosts.back()->first;
        listeners[of].push_back(net.listen(io::Address::tcp(fmt::format("192.0.{}.{}", of + 2, rank + 1), 0)));
        addresses[of].push_back(listeners[of].back()->address());
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      HostOf& host = *hosts[static_cast<std::size_t>(rank)];
      const auto port = [&](std::size_t of, io::Net& net) {
        return std::make_unique<TcpPort>(host.loop, net, std::move(listeners[of][static_cast<std::size_t>(rank)]),
                                         tcp_test::settings_of(rank, addresses[of], host.entropy, 2s));
      };
      std::vector<std::string> names;
      for (int peer = 0; peer < ranks; ++peer) names.push_back(fmt::format("rank {} on host {}", peer, peer));
      std::vector<std::unique_ptr<MessagePort>> firsts;
      for (std::size_t of = 1; of <= epochs; ++of) firsts.push_back(port(of, host.first));
      auto first = std::make_unique<Renewable>(host.loop, std::move(firsts), names.size());
      host.renewable = first.get();
      FailoverPort::Networks both{std::move(first), port(0, host.second), "a", "b", failback};
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
    hosts[0]->renewable->end_quiet(1);
    hosts[1]->renewable->end_quiet(0);
    networks[0].break_streams(0, 1);
  }
  // The same, and only one of the ranks hears of it.
  void cut_first(int hears) {
    networks[0].cut(0, 1);
    hosts[static_cast<std::size_t>(hears)]->renewable->say_broken(1 - hears);
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
    Renewable* renewable = nullptr;  // its first port
    std::unique_ptr<FailoverPort> port;
  };
  sim::World world;
  sim::SimNetwork networks[2] = {sim::SimNetwork(world), sim::SimNetwork(world)};
  std::vector<std::unique_ptr<HostOf>> hosts;
};

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
  explicit TwoRanks(std::uint64_t seed = 42, Duration failback = {}, std::size_t epochs = 1)
      : SimFailover(seed, 2, failback, epochs) {
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
      if (one.withdrawn) {  // it has come unaltered, or not at all
        const bool came = found != to.entries.end() && found->second.placed == 1 && !found->second.revoked;
        EXPECT_TRUE(!came || found->second.bytes == pattern(one.bytes.size(), one.header.step)) << one.header.step;
        continue;
      }
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

inline Task<void> leave(MessagePort* port, bool* left) {
  Stop stop;
  co_await port->leave(5s, stop);
  *left = true;
}

}  // namespace aiacc::failover_test
