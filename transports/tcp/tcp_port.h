// TcpPort: messages between hosts over plain sockets. A pair of ranks has one connection, which the end that needs it
// first establishes on first use, or several (Settings::streams), among which long messages are divided; both ends prove that they know the job's secret (base/wire/handshake.h).
// docs/wire-protocol.md specifies the protocol.
//
// A broken connection loses no message. A sender keeps what its receiver has not acknowledged and sends it again over
// another connection; the receiver knows which bytes of a message it has, so none arrives twice. A peer is lost when all its addresses have refused connections for Settings::refused_limit; where they do not answer at all the
// path is broken, which may end with both ends alive.
//
// Order holds within a traffic class; between messages, more urgent classes overtake. Messages of at most kCopyBytes are
// copied by post(), and larger ones of at most kKeptBytes when the system has taken them; then both are completed. Still larger ones
// are read where they lie and completed when they are acknowledged.
// Held messages are kept in the port's memory; while more than kHeldBytes of one peer are held, nothing more is read from
// that peer, in no class.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/io/net.h"
#include "base/io/stream_range.h"
#include "base/io/traffic_marks.h"
#include "base/task/loop.h"
#include "base/task/task.h"
#include "base/wire/secret.h"
#include "transports/message.h"

namespace aiacc {

class TcpPort final : public MessagePort {
 public:
  static constexpr std::size_t kCopyBytes = 16 << 10;
  // To copy 64 KiB takes some 5 us, and to wait for an acknowledgement of them another 20 (bench/hosts).
  static constexpr std::size_t kKeptBytes = 64 << 10;
  static constexpr std::size_t kHeldBytes = 1 << 20;
  static constexpr int kMostStreams = io::StreamRange::kMost;

  using Marks = std::array<io::TrafficMarks, kTrafficClasses>;  // by traffic class

  struct Peer {
    std::string name;                    // in sentences: "rank 3 on host b"
    std::vector<io::Address> addresses;  // the most likely to be reachable first
  };
  struct Settings {
    int rank = 0;
    std::uint64_t job = 0;
    wire::Secret secret;
    std::vector<Peer> peers;         // by world rank, this rank included; names are for messages
    io::Entropy* entropy = nullptr;  // outlives the port
    // How long all addresses of a peer may answer that nobody listens there before the peer is lost.
    Duration refused_limit = std::chrono::seconds(30);
    // How many connections this rank has with each other one; of two ranks that differ, both have the smaller number. Of a
    // range: as many as make long messages faster (tcp/stream_count.h).
    io::StreamRange streams{};
    // Of what this rank sends. A class whose marks are not those of bulk has a connection of its own. Where bulk or background has
    // no limit of delay, LatencyUse::kDelay is one while latency is in use (note_latency()).
    Marks marks{};
  };

  // Starts to accept. `listener` is the one whose address the peers were given.
  TcpPort(Loop& loop, io::Net& net, std::unique_ptr<io::Listener> listener, Settings settings);
  // Must not be called from a coroutine of its loop; ends its own coroutines without driving the loop.
  ~TcpPort() override;

  void set_receiver(MessageReceiver& receiver) noexcept override;
  void post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override;
  void post_now(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                SendCompletion& completion) noexcept override;
  int chunks_in_flight(int to_rank) const noexcept override;
  void note_latency() noexcept override;
  void release(int from_rank) noexcept override;
  void withdraw(SendCompletion& completion) noexcept override;
  void revoke(int from_rank, const MessageHeader& header) noexcept override;
  void close() noexcept override;
  // Both ends of a connection must enable it, otherwise the pair is lost with an error that names both. Each connection
  // has keys of its own.
  void encrypt() noexcept override;
  void authenticate() noexcept override;
  std::string obstacle(int rank) const override;
  std::optional<BrokenPath> broken_path(int rank) const override;

  // As MessagePort::leave(). A peer that disconnects without a farewell is dialed again, and lost if that fails.
  Task<void> leave(Duration limit, Stop& stop) override;

  // As MessagePort::lose(): the peer is known to be dead from another source; on_peer_lost() is called with `why` soon,
  // once.
  void lose(int rank, std::exception_ptr why) noexcept override;

  void tell_remarks_to(std::function<void(const std::string&)> listener) override;

  void count_traffic(std::vector<ConnectionTraffic>& counted) const override;
  std::uint64_t refused() const noexcept override;
  // Connections with this rank that are up.
  int connections(int rank) const noexcept;
  // As many as should carry what this rank sends to that one.
  int wanted_connections(int rank) const noexcept;
  // Frames with bytes of messages that were sent, ever; what was sent again counts again.
  std::uint64_t parts_sent() const noexcept;
  // Of these, those that another connection carries too because the first one was late with them.
  std::uint64_t parts_again() const noexcept;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace aiacc
