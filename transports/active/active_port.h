// ActivePort: messages between hosts over a library of active messages (UCX, libfabric), behind module_api.h. Matching is above
// the port, as with TCP.
//
// Messages of at most kCopyBytes are copied by post() and travel with their header. Longer ones are read where they lie: the receiver
// gets the header and fetches the payload into its place (rendezvous). Where the library says that this is slower, the payload comes
// with its header too, in chunks as long as that is so, and the receiver copies it out of the library's memory. A library may deliver messages that
// travel in different ways in another order than they were sent in, so each carries its number in its class, and the receiver
// offers them in order.
//
// UCX cannot give back memory that was lent to it without the peer or the end of the connection. A withdrawal or
// revocation therefore waits for the transfer, and where it has not ended within Settings::answer_limit the peer is lost.
// Where the module reports an endpoint as broken the path is broken, and the peer is lost after Settings::broken_limit or when another
// source says why. After that renew() begins with new endpoints, whose frames have another epoch.
//
// The messages are neither encrypted nor authenticated.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/io/real_loop.h"
#include "base/io/traffic_marks.h"
#include "base/task/task.h"
#include "base/wire/secret.h"
#include "transports/message.h"

namespace aiacc {

namespace active {
struct Module;
struct Worker;
}  // namespace active

class ActivePort final : public MessagePort {
 public:
  static constexpr std::size_t kCopyBytes = 32 << 10;
  static constexpr std::size_t kHeldBytes = 8 << 20;  // of one peer, beyond which it is lost: its credit is less

  using Marks = std::array<io::TrafficMarks, kTrafficClasses>;  // by traffic class
  // A rank has a worker for all traffic classes, or several, each for some of them.
  using WorkerOfClass = std::array<std::uint8_t, kTrafficClasses>;
  struct Peer {
    std::string name;                                  // in sentences: "rank 3 on host b"
    std::vector<std::vector<std::uint8_t>> addresses;  // of its workers
    WorkerOfClass worker_of{};
  };
  struct Settings {
    std::string library;  // in sentences: "UCX"
    int rank = 0;
    std::uint64_t job = 0;
    wire::Secret secret;
    std::vector<Peer> peers;  // by world rank, this rank included, whose classes the workers below are for
    Duration answer_limit = std::chrono::seconds(10);
    Duration broken_limit{};
    // A path is broken on which a message has not come for so long although one behind it has, or that it was withdrawn; zero: never.
    Duration gap_limit{};
    Marks marks{};  // of which the port keeps shares, rates and delays; the workers have the others
  };

  // The workers become the port's. Ranks know their addresses.
  ActivePort(io::RealLoop& loop, const active::Module& module, std::vector<active::Worker*> workers, Settings settings);
  ~ActivePort() override;

  void set_receiver(MessageReceiver& receiver) noexcept override;
  void post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override;
  void post_now(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                SendCompletion& completion) noexcept override;
  void release(int from_rank) noexcept override;
  void withdraw(SendCompletion& completion) noexcept override;
  void revoke(int from_rank, const MessageHeader& header) noexcept override;
  void lose(int rank, std::exception_ptr why) noexcept override;
  bool renew(int rank, std::uint32_t epoch) noexcept override;
  Task<void> leave(Duration limit, Stop& stop) override;
  std::size_t chunk_bytes() const noexcept override;
  void note_latency() noexcept override;
  void close() noexcept override;

  std::string obstacle(int rank) const override;
  std::optional<BrokenPath> broken_path(int rank) const override;
  // Active messages that were dropped because they were not of this job.
  std::uint64_t refused() const noexcept override;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace aiacc
