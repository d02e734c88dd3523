// A message of 8 bytes to a peer and one back, as often as the argument says, between two ports in one thread over the
// loopback interface. bench/wire/instructions counts what such a pair costs in user space.
#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "transports/tcp/tcp_port.h"

namespace {

using namespace aiacc;  // NOLINT

class Rank final : public MessageReceiver, public SendCompletion {
 public:
  Placement on_header(int, const MessageHeader&) noexcept override {
    return {Placement::Action::kInto, Buffer{into_.data(), into_.size()}};
  }
  void on_placed(int, const MessageHeader&) noexcept override { ++placed; }
  void on_peer_lost(int, std::exception_ptr) noexcept override { std::abort(); }
  void sent(std::exception_ptr error) noexcept override {
    if (error) std::abort();
  }

  void send(int to, long number) {
    MessageHeader header;
    header.traffic = TrafficClass::kLatency;
    header.step = static_cast<std::uint32_t>(number);
    header.length = header.total = from_.size();
    const Buffer piece{from_.data(), from_.size()};
    port->post_now(to, header, std::span(&piece, 1), *this);
  }

  io::RealLoop loop;
  io::RealNet net{loop};
  std::unique_ptr<io::Listener> listener = net.listen(io::Address::tcp("127.0.0.1", 0));
  std::unique_ptr<TcpPort> port;
  long placed = 0;

 private:
  std::array<std::byte, 8> from_{}, into_{};
};

}  // namespace

int main(int argc, char** argv) {
  const long pairs = argc > 1 ? std::atol(argv[1]) : 100000;
  io::RealEntropy entropy;
  std::array<std::byte, wire::Secret::kBytes> secret;
  secret.fill(std::byte{1});
  std::array<Rank, 2> ranks;
  const std::array<io::Address, 2> addresses{ranks[0].listener->address(), ranks[1].listener->address()};
  for (int rank = 0; rank < 2; ++rank) {
    TcpPort::Settings settings;
    settings.rank = rank;
    settings.job = 1;
    settings.secret = wire::Secret(secret);
    for (const io::Address& each : addresses) settings.peers.push_back({"a rank", {each}});
    settings.entropy = &entropy;
    Rank& mine = ranks[static_cast<std::size_t>(rank)];
    mine.port = std::make_unique<TcpPort>(mine.loop, mine.net, std::move(mine.listener), settings);
    mine.port->set_receiver(mine);
  }
  for (long i = 0; i <= pairs; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      Rank& receiver = ranks[static_cast<std::size_t>(1 - rank)];
      ranks[static_cast<std::size_t>(rank)].send(1 - rank, i);
      while (receiver.placed <= i) {
        receiver.loop.look();
        if (i == 0) ranks[static_cast<std::size_t>(rank)].loop.look();  // connects
      }
    }
  }
  for (Rank& each : ranks) each.port->close();
  std::printf("%ld pairs\n", pairs);
  return 0;
}
