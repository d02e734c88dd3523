// TcpPort: messages between hosts over plain sockets. One connection for a pair of ranks, made when it is first used, by
// whichever end needs it first; both ends prove that they know the job's secret (base/wire/handshake.h).
// docs/wire-protocol.md has what goes over it.
//
// Nothing is lost with a connection. A sender keeps what its receiver has not acknowledged and sends it again over the next
// connection; the receiver says at the handshake how many messages it has, so none arrives twice. A peer is lost when it
// cannot be reached for Settings::connect_limit.
//
// Order holds within a traffic class; between messages, more urgent classes overtake. Messages of at most kCopyBytes are
// copied by post() and completed when the system has taken them; larger ones are read where they lie and completed when they
// are acknowledged.
// Held messages are kept in the port's memory; while more than kHeldBytes of one peer are held, nothing more is read from
// that peer, in no class.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/io/net.h"
#include "base/task/loop.h"
#include "base/task/task.h"
#include "base/wire/secret.h"
#include "transports/message.h"

namespace aiacc {

class TcpPort final : public MessagePort {
 public:
  static constexpr std::size_t kCopyBytes = 16 << 10;
  static constexpr std::size_t kHeldBytes = 1 << 20;

  struct Peer {
    std::string name;                    // in sentences: "rank 3 on host b"
    std::vector<io::Address> addresses;  // the likeliest first
  };
  struct Settings {
    int rank = 0;
    std::uint64_t job = 0;
    wire::Secret secret;
    std::vector<Peer> peers;                            // by world rank; mine has a name and no addresses
    io::Entropy* entropy = nullptr;                     // outlives the port
    Duration connect_limit = std::chrono::seconds(30);  // of one effort to reach a peer, with all its attempts
  };

  // Accepts from now on. `listener` is the one whose address the peers were told.
  TcpPort(Loop& loop, io::Net& net, std::unique_ptr<io::Listener> listener, Settings settings);
  // From outside of its loop's coroutines; ends its own without driving the loop.
  ~TcpPort() override;

  void set_receiver(MessageReceiver& receiver) noexcept override;
  void post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override;
  void post_now(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                SendCompletion& completion) noexcept override;
  void release(int from_rank) noexcept override;
  void withdraw(SendCompletion& completion) noexcept override;
  void revoke(int from_rank, const MessageHeader& header) noexcept override;
  void close() noexcept override;
  // Both ends of a connection must, or the pair is lost with a sentence that names both. Each connection has keys of its own.
  void encrypt() noexcept override;
  std::string obstacle(int rank) const override;

  // Says farewell before close(): returns when every peer that was spoken with has all that was posted and knows that this
  // rank goes in order, or after `limit`. Peers that go without a farewell are looked for, and then lost.
  Task<void> leave(Duration limit, Stop& stop) override;

  // Somebody else knows that this rank is gone (its agent said so): no more effort is made, and on_peer_lost() tells `why`
  // soon, once.
  void lose(int rank, std::exception_ptr why) noexcept override;

  // Connections that were turned away because they did not prove to be of this job.
  std::uint64_t refused() const noexcept;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace aiacc
