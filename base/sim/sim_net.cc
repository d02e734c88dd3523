#include "base/sim/sim_net.h"

#include <fmt/format.h>

#include <deque>

#include "base/error.h"
#include "base/io/nobody_listens.h"
#include "base/sim/sim_connection.h"

namespace aiacc::sim {
namespace {

class SimStream final : public io::Stream {
 public:
  SimStream(std::shared_ptr<SimConnection> connection, int side, std::string name, bool local)
      : connection_(std::move(connection)), side_(side), local_(local) {
    connection_->set_name(side_, std::move(name));
  }
  ~SimStream() override { connection_->close(side_); }

  void hand_over(const SimNetwork::End& to) noexcept { connection_->hand_over(side_, to); }
  io::FlowState flow() const noexcept override { return connection_->flow(side_); }
  void shutdown_write() noexcept override { connection_->end_writes(side_); }
  std::optional<io::PeerIdentity> peer_identity() const noexcept override {
    return local_ ? std::optional(connection_->side(1 - side_).identity) : std::nullopt;
  }
  std::string describe() const override { return connection_->side(side_).name; }

 protected:
  Loop& loop() noexcept override { return *connection_->side(side_).loop; }
  bool try_io(io::IoAwait& io) override {
    const bool reads = io.direction() == io::IoAwait::Direction::kRead;
    return reads ? connection_->try_read(side_, io) : connection_->try_write(side_, io);
  }
  void begin_io(io::IoAwait& io) noexcept override { connection_->wait(side_, io); }
  void cancel_io(io::IoAwait& io) noexcept override { connection_->cancel(side_, io); }

 private:
  std::shared_ptr<SimConnection> connection_;
  int side_;
  bool local_;
};

class NullStream final : public io::Stream {
 public:
  explicit NullStream(SimLoop& loop) : loop_(loop) {}
  void shutdown_write() noexcept override {}
  std::optional<io::PeerIdentity> peer_identity() const noexcept override { return std::nullopt; }
  std::string describe() const override { return "nothing"; }

 protected:
  Loop& loop() noexcept override { return loop_; }
  bool try_io(io::IoAwait& io) override {
    io.set_moved(io.direction() == io::IoAwait::Direction::kRead ? 0 : io.bytes());
    return true;
  }
  void begin_io(io::IoAwait&) noexcept override {}
  void cancel_io(io::IoAwait&) noexcept override {}

 private:
  SimLoop& loop_;
};

}  // namespace

class SimListener final : public io::Listener {
 public:
  SimListener(SimNetwork& network, const SimNetwork::End& end, io::Address address)
      : network_(network), end_(end), address_(std::move(address)), came_(end.loop) {
    network_.listeners_.emplace(SimNetwork::key(address_, end_.host), this);
  }
  ~SimListener() override { close(); }

  io::Address address() const override { return address_; }
  Task<std::unique_ptr<io::Stream>> accept(Stop& stop) override {
    while (backlog_.empty()) {
      came_.reset();
      co_await came_.wait(stop);
    }
    std::unique_ptr<io::Stream> stream = std::move(backlog_.front());
    backlog_.pop_front();
    co_return stream;
  }

  const SimNetwork::End& end() const noexcept { return end_; }
  void enqueue(std::unique_ptr<io::Stream> stream) {
    backlog_.push_back(std::move(stream));
    came_.set();
  }
  void close() noexcept {
    const auto found = network_.listeners_.find(SimNetwork::key(address_, end_.host));
    if (found != network_.listeners_.end() && found->second == this) network_.listeners_.erase(found);
  }

 private:
  SimNetwork& network_;
  SimNetwork::End end_;
  io::Address address_;
  ::aiacc::Event came_;
  std::deque<std::unique_ptr<io::Stream>> backlog_;
};

SimNetwork::SimNetwork(World& world, StreamModel model) : world_(world), model_(model) { world.watch_deaths(*this); }
SimNetwork::~SimNetwork() = default;

void SimNetwork::cut(int host, int other) { cut_.insert(std::minmax(host, other)); }

void SimNetwork::heal(int host, int other) {
  cut_.erase(std::minmax(host, other));
  for (auto& [number, connection] : connections_) {
    if (connection->between(host, other)) connection->resume();
  }
}

void SimNetwork::break_streams(int host, int other) {
  for (auto& [number, connection] : connections_) {
    if (connection->between(host, other)) connection->break_off();
  }
}

void SimNetwork::break_stream(int host, int other, std::uint64_t dice) {
  std::vector<SimConnection*> between;
  for (auto& [number, connection] : connections_) {
    if (connection->between(host, other)) between.push_back(&*connection);
  }
  if (!between.empty()) between[dice % between.size()]->break_off();
}

void SimNetwork::cap(int host, int other, std::size_t nth, std::uint64_t bytes_per_second) {
  for (auto& [number, connection] : connections_) {
    if (connection->between(host, other) && nth-- == 0) connection->cap(bytes_per_second);
  }
}

void SimNetwork::cap_all(std::uint64_t bytes_per_second) {
  model_.bytes_per_second = bytes_per_second;
  for (auto& [number, connection] : connections_) connection->cap(bytes_per_second);
}

Duration SimNetwork::latency(int host, int other) const noexcept {
  return host == other ? model_.latency_within_host : model_.latency_between_hosts;
}

std::string SimNetwork::key(const io::Address& address, int host) {
  const bool loopback = address.name.starts_with("127.") || address.name == "::1";
  const bool of_host = address.kind == io::Address::Kind::kLocal || loopback;
  return of_host ? fmt::format("{} on host {}", address.text(), host) : address.text();
}

std::pair<std::unique_ptr<io::Stream>, std::unique_ptr<io::Stream>> SimNetwork::pair(const End& one, const End& other,
                                                                                     const std::string& name) {
  auto connection = std::make_shared<SimConnection>(*this, one, other);
  return {std::make_unique<SimStream>(connection, 0, name, true),
          std::make_unique<SimStream>(connection, 1, name, true)};
}

void SimNetwork::hand_over(io::Stream& stream, const End& to) noexcept {
  if (auto* ours = dynamic_cast<SimStream*>(&stream)) ours->hand_over(to);
}

void SimNetwork::node_died(NodeId node) noexcept {
  for (auto& [number, connection] : connections_) {
    for (int side = 0; side < 2; ++side) {
      if (connection->side(side).node == node) connection->close(side);
    }
  }
  for (auto listener = listeners_.begin(); listener != listeners_.end();) {
    const auto next = std::next(listener);
    if (listener->second->end().loop.node() == node) listeners_.erase(listener);
    listener = next;
  }
}

std::unique_ptr<io::Listener> SimNet::listen(const io::Address& address) {
  io::Address bound = address;
  if (bound.kind == io::Address::Kind::kTcp && bound.port == 0) bound.port = network_.next_port_++;
  if (network_.listeners_.contains(SimNetwork::key(bound, end_.host))) {
    throw Error(Code::kSystem, fmt::format("cannot listen on {}: it is in use", bound.text()));
  }
  if (bound.kind == io::Address::Kind::kTcp) {
    const io::Address host = io::Address::tcp(bound.name, 0);
    const std::string key = SimNetwork::key(host, end_.host);
    network_.hosts_[key] = end_.host;
    if (key == host.text()) network_.first_addresses_.try_emplace(end_.host, bound.name);
  }
  return std::make_unique<SimListener>(network_, end_, std::move(bound));
}

Task<std::unique_ptr<io::Stream>> SimNet::connect(io::Address address, Stop& stop) {
  const std::string key = SimNetwork::key(address, end_.host);
  const auto known = network_.listeners_.find(key);
  // A host that refuses answers over the same link as one that accepts.
  const auto named = network_.hosts_.find(SimNetwork::key(io::Address::tcp(address.name, 0), end_.host));
  const bool nowhere = address.kind == io::Address::Kind::kLocal || named == network_.hosts_.end();
  const int host = known != network_.listeners_.end() ? known->second->end().host : nowhere ? end_.host : named->second;
  co_await sleep_for(end_.loop, 2 * network_.latency(end_.host, host), stop);
  if (network_.is_cut(end_.host, host)) {
    co_await sleep_for(end_.loop, network_.model_.give_up, stop);
    throw Error(Code::kPeerFailed, fmt::format("cannot connect to {}: nothing answers", address.text()));
  }
  const auto found = network_.listeners_.find(key);
  if (found == network_.listeners_.end()) {
    throw io::NobodyListens(fmt::format("cannot connect to {}: nobody listens there", address.text()));
  }
  SimListener& listener = *found->second;
  const bool local = address.kind == io::Address::Kind::kLocal;
  auto connection = std::make_shared<SimConnection>(network_, end_, listener.end());
  const auto mine = network_.first_addresses_.find(end_.host);
  const std::string seen_as = mine == network_.first_addresses_.end() || local
                                  ? fmt::format("a peer on host {} of {}", end_.host, address.text())
                                  : io::Address::tcp(mine->second, SimNetwork::kCallingPort).text();
  listener.enqueue(std::make_unique<SimStream>(connection, 1, seen_as, local));
  co_return std::make_unique<SimStream>(connection, 0, address.text(), local);
}

std::unique_ptr<io::Stream> null_stream(SimLoop& loop) { return std::make_unique<NullStream>(loop); }

}  // namespace aiacc::sim
