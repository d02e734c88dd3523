// Ends of a rendezvous that a test controls message by message: they authenticate as ranks do, and then send what no rank
// sends. For tests only.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "runtime/rendezvous/rendezvous_dial.h"
#include "runtime/rendezvous/rendezvous_sim_world_test.h"

namespace aiacc::rendezvous_sim {

// Replaces a rank of `job`, which is not started. Each of its awaits ends within ten seconds, or the test fails.
class Played {
 protected:
  Played(RendezvousJob& job, int rank) : job_(job), me_(job.rank(rank)) {}
  ~Played() = default;

  template <class Begin>
  auto await(const Begin& begin) {
    Stop patience;
    Loop& loop = me_.node.loop;
    const Deadline deadline(loop, after(loop.now(), std::chrono::seconds(10)), patience, "the other end says nothing");
    auto task = begin(patience);
    task.start();
    job_.world.run_while_not([&] { return task.done(); });
    return task.take();
  }

 public:
  template <wire::Message T>
  void send(const T& message) {
    await([&](Stop& stop) { return channel_->send(message, stop); });
  }
  void farewell() {
    await([&](Stop& stop) { return channel_->farewell(stop); });
  }
  // The next message, which must be a T.
  template <wire::Message T>
  T receive() {
    const std::optional<wire::Frame> frame = await([&](Stop& stop) { return channel_->receive(stop); });
    if (!frame) throw Error(Code::kProtocol, "the other end said farewell");
    return frame->as<T>();
  }
  // Drops all further messages and returns how the connection ends: "in order", or the error.
  std::string end() { return end_of(*channel_); }
  std::string end_of(wire::SecureChannel& channel) {
    try {
      while (await([&](Stop& stop) { return channel.receive(stop); })) {
      }
      return "in order";
    } catch (const Error& error) {
      return error.message();
    }
  }
  void disconnect() { channel_.reset(); }

  wire::Versions versions;  // those that it offers

 protected:
  RendezvousJob& job_;
  Rank& me_;
  std::unique_ptr<wire::SecureChannel> channel_;
};

class PlayedServer final : public Played {
 public:
  // `back`: the address for reconnecting.
  explicit PlayedServer(RendezvousJob& job, const std::string& back = kEndpoint.name)
      : Played(job, 0),
        endpoint_(me_.node.net.listen(kEndpoint)),
        reconnect_acceptor_(me_.node.net.listen(io::Address::tcp(back, 0))) {
    roster.job = 4711;
    roster.secret = secret_of('j').text();
    for (const auto& one : job.ranks) {
      const wire::Arrive said = one->introduction();
      roster.ranks.push_back({said.host_name, said.addresses, said.ports, "", false, said.process});
    }
  }

  // Accept the next connection of a rank at the endpoint, and of a rank that reconnects; return its first message.
  wire::Arrive accept_arrive() {
    take_call(*endpoint_, secret_of('s'), kRendezvousJob);
    return receive<wire::Arrive>();
  }
  wire::Resume accept_resume() {
    take_call(*reconnect_acceptor_, wire::Secret::from(roster.secret), roster.job);
    return receive<wire::Resume>();
  }
  wire::ReconnectPort where_back() const { return {reconnect_acceptor_->address().port}; }
  // Accept the next connection at the endpoint with another secret, or close it before the handshake.
  void refuse(char salt) { EXPECT_THROW(take_call(*endpoint_, secret_of(salt), kRendezvousJob), Error); }
  void drop() {
    await([&](Stop& stop) { return endpoint_->accept(stop); });
  }
  // Starts one rank and passes the rendezvous with it; the other ranks are only listed in the roster.
  void meet(Rank& rank) {
    rank.start();
    accept_arrive();
    send(roster);
    send(where_back());
    receive<wire::LocalPeers>();
    wire::HostMap host_map;
    for (const auto& one : job_.ranks) host_map.firsts.push_back(one->first);
    send(host_map);
    ASSERT_TRUE(job_.run_until([&] { return rank.done(); }));
  }

  wire::Roster roster;

 private:
  void take_call(io::Listener& at, const wire::Secret& secret, std::uint64_t job) {
    std::unique_ptr<io::Stream> stream = await([&](Stop& stop) { return at.accept(stop); });
    const wire::ListenerHandshake::Expected expected{wire::Purpose::kControl, job, 0, me_.size};
    wire::ListenerHandshake handshake(secret, expected, me_.node.entropy, versions);
    wire::HandshakeProgress heard;
    await([&](Stop& stop) { return wire::accept_proof(handshake, *stream, stop, heard); });
    const wire::Bytes verdict = handshake.decide(wire::Verdict::kAccepted, "");
    await([&](Stop& stop) { return io::write_all(*stream, verdict, stop); });
    const wire::SessionKeys keys = handshake.keys();
    channel_ =
        std::make_unique<wire::SecureChannel>(me_.node.loop, std::move(stream), keys.to_dialer, keys.to_listener);
  }

  std::unique_ptr<io::Listener> endpoint_, reconnect_acceptor_;
};

// Nobody listens at its data port, so rank 0 declares it lost as soon as it probes that port.
class PlayedClient final : public Played {
 public:
  PlayedClient(RendezvousJob& job, int rank) : Played(job, rank) {}

  // Authenticates at the endpoint.
  void call() { call(kEndpoint, secret_of('s'), kRendezvousJob); }
  // The same, and passes the rendezvous; all other ranks must have arrived.
  void meet() { meet(me_.introduction()); }
  void meet(const wire::Arrive& said) {
    call();
    send(said);
    roster_ = receive<wire::Roster>();
    back_ = io::Address::tcp(kEndpoint.name, receive<wire::ReconnectPort>().port);
    send(wire::LocalPeers{me_.first});
    receive<wire::HostMap>();
  }
  // Authenticates at the address for reconnecting; returns the earlier connection.
  std::unique_ptr<wire::SecureChannel> call_again() {
    std::unique_ptr<wire::SecureChannel> before = std::move(channel_);
    call(back_, wire::Secret::from(roster_.secret), roster_.job);
    return before;
  }

 private:
  void call(const io::Address& at, const wire::Secret& secret, std::uint64_t job) {
    RendezvousDial call({me_.node.loop, me_.node.net, me_.node.entropy, secret, job, me_.rank, versions});
    await([&](Stop& stop) { return call.connect(at, stop); });
    channel_ = await([&](Stop& stop) { return call.prove(stop); });
  }

  wire::Roster roster_;
  io::Address back_;
};

}  // namespace aiacc::rendezvous_sim
