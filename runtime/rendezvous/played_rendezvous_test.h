// Ends of a rendezvous that a test plays message by message: they authenticate as ranks do, and then send what no rank
// sends. For tests only.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "runtime/rendezvous/rendezvous_dial.h"
#include "runtime/rendezvous/rendezvous_sim_world_test.h"

namespace aiacc::rendezvous_sim {

// In the place of a rank of `job` that is not started. What it awaits comes within ten seconds, or the test ends.
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
  void say(const T& message) {
    await([&](Stop& stop) { return channel_->send(message, stop); });
  }
  void farewell() {
    await([&](Stop& stop) { return channel_->farewell(stop); });
  }
  // The next message, which must be one.
  template <wire::Message T>
  T hear() {
    const std::optional<wire::Frame> frame = await([&](Stop& stop) { return channel_->receive(stop); });
    if (!frame) throw Error(Code::kProtocol, "the other end said farewell");
    return frame->as<T>();
  }
  // How the connection ends, behind all that comes before: "in order", or why.
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
  void hang_up() { channel_.reset(); }

  wire::Versions versions;  // that it speaks

 protected:
  RendezvousJob& job_;
  Rank& me_;
  std::unique_ptr<wire::SecureChannel> channel_;
};

class PlayedServer final : public Played {
 public:
  // `back`: the address to which ranks come back.
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

  // Takes the next call of a rank: at the place, and of one that comes back.
  wire::Arrive receive() {
    take_call(*endpoint_, secret_of('s'), kRendezvousJob);
    return hear<wire::Arrive>();
  }
  wire::Resume receive_again() {
    take_call(*reconnect_acceptor_, wire::Secret::from(roster.secret), roster.job);
    return hear<wire::Resume>();
  }
  wire::ReconnectPort where_back() const { return {reconnect_acceptor_->address().port}; }
  // Takes the next call at the place with another secret, or ends it before anything is proved.
  void refuse(char salt) { EXPECT_THROW(take_call(*endpoint_, secret_of(salt), kRendezvousJob), Error); }
  void drop() {
    await([&](Stop& stop) { return endpoint_->accept(stop); });
  }
  // Meets one rank, which is started now; the others are only told of.
  void meet(Rank& rank) {
    rank.start();
    receive();
    say(roster);
    say(where_back());
    hear<wire::LocalPeers>();
    wire::HostMap host_map;
    for (const auto& one : job_.ranks) host_map.firsts.push_back(one->first);
    say(host_map);
    ASSERT_TRUE(job_.run_until([&] { return rank.done(); }));
  }

  wire::Roster roster;

 private:
  void take_call(io::Listener& at, const wire::Secret& secret, std::uint64_t job) {
    std::unique_ptr<io::Stream> stream = await([&](Stop& stop) { return at.accept(stop); });
    const wire::ListenerHandshake::Expected expected{wire::Purpose::kControl, job, 0, me_.size};
    wire::ListenerHandshake handshake(secret, expected, me_.node.entropy, versions);
    wire::Heard heard;
    await([&](Stop& stop) { return wire::hear_proof(handshake, *stream, stop, heard); });
    const wire::Bytes verdict = handshake.decide(wire::Verdict::kAccepted, "");
    await([&](Stop& stop) { return io::write_all(*stream, verdict, stop); });
    const wire::SessionKeys keys = handshake.keys();
    channel_ =
        std::make_unique<wire::SecureChannel>(me_.node.loop, std::move(stream), keys.to_dialer, keys.to_listener);
  }

  std::unique_ptr<io::Listener> endpoint_, reconnect_acceptor_;
};

// Nobody listens at its data port: as soon as rank 0 looks for it there, it is lost.
class PlayedClient final : public Played {
 public:
  PlayedClient(RendezvousJob& job, int rank) : Played(job, rank) {}

  // Proves itself at the place.
  void call() { call(kEndpoint, secret_of('s'), kRendezvousJob); }
  // The same, and says who it is; all others must have come.
  void meet() { meet(me_.introduction()); }
  void meet(const wire::Arrive& said) {
    call();
    say(said);
    roster_ = hear<wire::Roster>();
    back_ = io::Address::tcp(kEndpoint.name, hear<wire::ReconnectPort>().port);
    say(wire::LocalPeers{me_.first});
    hear<wire::HostMap>();
  }
  // Proves itself where ranks come back; returns the connection before.
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
