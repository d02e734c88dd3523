// Shared: what the parts of a TcpPort have in common.
#pragma once

#include <fmt/format.h>

#include <array>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/wire/handshake.h"
#include "base/wire/record_seal.h"
#include "transports/qos/latency_use.h"
#include "transports/tcp/tcp_port.h"

namespace aiacc::tcp {

// A callback that is made later, because the port makes none from inside a call.
struct Notification {
  enum class What : std::uint8_t { kSent, kRevoked, kRelease, kLost, kBroken };
  What what;
  int rank = kNoPeer;
  SendCompletion* completion = nullptr;
  std::exception_ptr error;
  MessageHeader header;
};

class Shared {
 public:
  Shared(Loop& its_loop, io::Net& its_net, TcpPort::Settings its_settings)
      : loop(its_loop), net(its_net), settings(std::move(its_settings)), links_changed(its_loop) {}
  virtual void notify_later(Notification notification) noexcept = 0;

  // Protected connections require the protocol version that has forward secrecy.
  wire::Versions versions() const noexcept {
    return {protection == wire::Protection::kNone ? std::uint16_t{1} : wire::kFirstWithShares};
  }
  // Notes the version of a connected rank; the first rank with an old version is reported.
  void note_version(int rank, std::uint16_t version) {
    if (version >= wire::kFirstWithShares || std::exchange(old_version_noted_, true) || !remark) return;
    remark(wire::old_version_remark(name(rank)));
  }

  // What this host cannot mark is reported once.
  void mark(const io::Stream& stream, const io::TrafficMarks& marks) noexcept {
    if (marks.none()) return;
    const std::string why = io::mark_traffic(stream.descriptor(), marks);
    if (!why.empty() && !std::exchange(unmarked_noted_, true) && remark) remark(why);
  }

  // Of a class that is said to be lossless a loss is reported, the first one.
  void note_loss(std::size_t traffic, int rank, std::uint64_t sent_again) noexcept {
    if (sent_again == 0 || std::exchange(loss_noted_, true) || !remark) return;
    constexpr std::array<const char*, 4> kSettings = {"AIACC_TC_CTRL", "AIACC_TC_LAT", "AIACC_TC_BULK", "AIACC_TC_BG"};
    remark(
        fmt::format("{} says lossless=yes, but TCP has sent {} of its segments to {} again: the network loses some of "
                    "them; aiacc-info --qos says whether this host has priority flow control for them",
                    kSettings[traffic], sent_again, name(rank)));
  }
  bool loss_noted() const noexcept { return loss_noted_; }

  bool latency_in_use() noexcept {
    return latency_use.in_use([this] { return loop.now(); });
  }

  // Memory for a payload of so many bytes, at most TcpPort::kKeptBytes. That of short ones is not kept for others.
  std::vector<std::byte> memory_for_copy(std::size_t bytes) {
    std::vector<std::byte> memory;
    if (bytes <= TcpPort::kKeptBytes / 2) {
      memory.reserve(bytes);
    } else if (spare_copies_.empty()) {
      memory.reserve(TcpPort::kKeptBytes);
    } else {
      memory = std::move(spare_copies_.back());
      spare_copies_.pop_back();
    }
    return memory;
  }
  void give_back_copy(std::vector<std::byte> memory) {
    constexpr std::size_t kMostSpare = 8;
    if (spare_copies_.size() < kMostSpare && memory.capacity() == TcpPort::kKeptBytes)
      spare_copies_.push_back(std::move(memory));
  }

  int size() const noexcept { return static_cast<int>(settings.peers.size()); }
  const TcpPort::Peer& peer(int rank) const noexcept { return settings.peers[static_cast<std::size_t>(rank)]; }
  const std::string& name(int rank) const noexcept { return peer(rank).name; }

  Loop& loop;
  io::Net& net;
  const TcpPort::Settings settings;
  MessageReceiver* receiver = nullptr;
  std::function<void(const std::string&)> remark;  // may be empty
  bool closed = false;
  LatencyUse latency_use;
  wire::Protection protection = wire::Protection::kNone;  // applied after the handshake
  std::uint64_t refused = 0;
  std::uint64_t parts_sent = 0;
  std::uint64_t parts_again = 0;
  Event links_changed;  // for leave(): set when a link has nothing more to send

 protected:
  ~Shared() = default;

 private:
  bool old_version_noted_ = false;
  bool unmarked_noted_ = false;
  bool loss_noted_ = false;
  std::vector<std::vector<std::byte>> spare_copies_;
};

}  // namespace aiacc::tcp
