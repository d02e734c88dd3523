// Small worlds of TCP ports, on the simulated network and on the real one. For tests only.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/config.h"
#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/sim/sim_net.h"
#include "transports/message_conformance.h"
#include "transports/tcp/tcp_port.h"

namespace aiacc::tcp_test {

inline wire::Secret secret_of(int salt) {
  std::array<std::byte, wire::Secret::kBytes> bytes;
  bytes.fill(static_cast<std::byte>(salt));
  return wire::Secret(bytes);
}

// Settings of `rank` in a world whose rank i listens at addresses[i].
inline TcpPort::Settings settings_of(int rank, const std::vector<io::Address>& addresses, io::Entropy& entropy,
                                     Duration limit, io::StreamRange streams = {}, const TcpPort::Marks& marks = {}) {
  TcpPort::Settings settings;
  settings.rank = rank;
  settings.job = 4711;
  settings.secret = secret_of(1);
  for (std::size_t peer = 0; peer < addresses.size(); ++peer) {
    settings.peers.push_back({"rank " + std::to_string(peer) + " on host " + std::to_string(peer), {}});
    if (static_cast<int>(peer) != rank) settings.peers.back().addresses = {addresses[peer]};
  }
  settings.entropy = &entropy;
  settings.refused_limit = limit;
  settings.streams = streams;
  settings.marks = marks;
  return settings;
}

// Each rank on a host of its own.
class SimTcp {
 public:
  explicit SimTcp(int ranks = message_conformance::kRanks, std::uint64_t seed = 42,
                  Encryption protection = Encryption::kNone, Duration limit = std::chrono::seconds(2),
                  io::StreamRange streams = {}, const TcpPort::Marks& marks = {}, sim::StreamModel model = {})
      : world(seed), network(world, model) {
    std::vector<std::unique_ptr<io::Listener>> listeners;
    for (int rank = 0; rank < ranks; ++rank) {
      hosts.push_back(std::make_unique<HostOf>(*this, rank));
      listeners.push_back(hosts.back()->net.listen(io::Address::tcp("192.0.2." + std::to_string(rank + 1), 0)));
      addresses.push_back(listeners.back()->address());
    }
    for (int rank = 0; rank < ranks; ++rank) {
      HostOf& host = *hosts[static_cast<std::size_t>(rank)];
      host.port = std::make_unique<TcpPort>(host.loop, host.net, std::move(listeners[static_cast<std::size_t>(rank)]),
                                            settings_of(rank, addresses, host.entropy, limit, streams, marks));
      if (protection == Encryption::kData) host.port->encrypt();
      if (protection == Encryption::kIntegrity) host.port->authenticate();
    }
  }
  TcpPort& port(int rank) { return *hosts[static_cast<std::size_t>(rank)]->port; }
  bool run_until(const std::function<bool()>& done) {
    const Instant end = after(world.now(), std::chrono::seconds(10));
    return world.run_while_not([&] { return done() || world.now() > end; }) && done();
  }
  void lose(int rank) { world.kill(hosts[static_cast<std::size_t>(rank)]->loop.node()); }

  struct HostOf {
    HostOf(SimTcp& owner, int rank)
        : loop(owner.world, "rank " + std::to_string(rank)),
          net(owner.network, loop, rank, {1000, 1}),
          entropy(owner.world, loop.node()) {}
    sim::SimLoop loop;
    sim::SimNet net;
    sim::SimEntropy entropy;
    std::unique_ptr<TcpPort> port;
  };
  sim::World world;
  sim::SimNetwork network;
  std::vector<io::Address> addresses;
  std::vector<std::unique_ptr<HostOf>> hosts;
};

class SealedSimTcp : public SimTcp {
 public:
  SealedSimTcp() : SimTcp(message_conformance::kRanks, 42, Encryption::kData) {}
};

class ProvedSimTcp : public SimTcp {
 public:
  ProvedSimTcp() : SimTcp(message_conformance::kRanks, 42, Encryption::kIntegrity) {}
};

inline void post(MessagePort& port, int to, const MessageHeader& header, std::vector<std::byte>& bytes,
                 message_conformance::Completion& told) {
  const Buffer piece{bytes.data(), bytes.size()};
  port.post(to, header, std::span(&piece, 1), told);
}

// A rank whose process is gone.
class NoPort final : public MessagePort {
 public:
  void set_receiver(MessageReceiver&) noexcept override {}
  void post(int, const MessageHeader&, std::span<const Buffer>, SendCompletion&) noexcept override {}
  void release(int) noexcept override {}
  void withdraw(SendCompletion&) noexcept override {}
  void revoke(int, const MessageHeader&) noexcept override {}
  void lose(int, std::exception_ptr) noexcept override {}
  Task<void> leave(Duration, Stop&) override { co_return; }
  void close() noexcept override {}
};

// All ranks on the loopback interface of this process.
class RealTcp {
 public:
  explicit RealTcp(int ranks = message_conformance::kRanks, const std::string& place = "127.0.0.1",
                   io::StreamRange streams = {}, const TcpPort::Marks& marks = {}) {
    std::vector<std::unique_ptr<io::Listener>> listeners;
    for (int rank = 0; rank < ranks; ++rank) {
      loops.push_back(std::make_unique<io::RealLoop>());
      nets.push_back(std::make_unique<io::RealNet>(*loops.back()));
      listeners.push_back(nets.back()->listen(io::Address::tcp(place, 0)));
      addresses.push_back(listeners.back()->address());
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      ports.push_back(std::make_unique<TcpPort>(
          *loops[index], *nets[index], std::move(listeners[index]),
          settings_of(rank, addresses, entropy, std::chrono::milliseconds(500), streams, marks)));
    }
  }
  MessagePort& port(int rank) { return *ports[static_cast<std::size_t>(rank)]; }
  bool run_until(const std::function<bool()>& done) {
    const Instant end = after(clock.now(), std::chrono::seconds(60));
    while (!done() && clock.now() < end) {
      for (const auto& loop : loops) loop->look();
    }
    return done();
  }
  void lose(int rank) { ports[static_cast<std::size_t>(rank)] = std::make_unique<NoPort>(); }

  io::RealClock clock;
  io::RealEntropy entropy;
  std::vector<std::unique_ptr<io::RealLoop>> loops;
  std::vector<std::unique_ptr<io::RealNet>> nets;
  std::vector<io::Address> addresses;
  std::vector<std::unique_ptr<MessagePort>> ports;
};

class SealedRealTcp : public RealTcp {
 public:
  SealedRealTcp() {
    for (const auto& each : ports) each->encrypt();
  }
};

class ProvedRealTcp : public RealTcp {
 public:
  ProvedRealTcp() {
    for (const auto& each : ports) each->authenticate();
  }
};

// Ports whose post() behaves as post_now().
template <class Fixture>
class Immediate : public Fixture {
 public:
  MessagePort& port(int rank) {
    auto& made = ports_[rank];
    if (made == nullptr) made = std::make_unique<Port>(Fixture::port(rank));
    return *made;
  }
  void lose(int rank) {
    Fixture::lose(rank);
    ports_.erase(rank);
  }

 private:
  class Port final : public MessagePort {
   public:
    explicit Port(MessagePort& port) noexcept : port_(port) {}
    void set_receiver(MessageReceiver& receiver) noexcept override { port_.set_receiver(receiver); }
    void post(int to, const MessageHeader& header, std::span<const Buffer> pieces,
              SendCompletion& completion) noexcept override {
      port_.post_now(to, header, pieces, completion);
    }
    void release(int from) noexcept override { port_.release(from); }
    void withdraw(SendCompletion& completion) noexcept override { port_.withdraw(completion); }
    void revoke(int from, const MessageHeader& header) noexcept override { port_.revoke(from, header); }
    void lose(int rank, std::exception_ptr why) noexcept override { port_.lose(rank, std::move(why)); }
    Task<void> leave(Duration limit, Stop& stop) override { return port_.leave(limit, stop); }
    void close() noexcept override { port_.close(); }

   private:
    MessagePort& port_;
  };
  std::map<int, std::unique_ptr<Port>> ports_;
};

// Over IPv6 where the kernel has it.
class RealTcp6 : public RealTcp {
 public:
  RealTcp6() : RealTcp(message_conformance::kRanks, access("/proc/net/if_inet6", F_OK) == 0 ? "::1" : "127.0.0.1") {}
};

// Leaves in order; `left` is set when it has.
inline Task<void> leave(TcpPort* port, bool* left, Duration limit = std::chrono::seconds(1)) {
  Stop stop;
  co_await port->leave(limit, stop);
  *left = true;
  port->close();
}

}  // namespace aiacc::tcp_test
