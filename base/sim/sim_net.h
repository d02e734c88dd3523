// SimNetwork: byte streams between simulated processes. SimNet: the Net of one process on it.
//
// A stream has two directions, each with a window of bytes in flight or unread: a writer waits while it is full. Bytes
// arrive after the link's latency at its bandwidth. Each stream has a bandwidth of its own, which may differ, as clouds limit
// each connection; what a host sends over all of them may be limited, too. A host's kernel, not its processes, carries streams: a frozen
// process still accepts connections and fills its window; the streams of a process that ends are closed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/io/net.h"
#include "base/sim/sim_loop.h"

namespace aiacc::sim {

class SimListener;
class SimConnection;

struct StreamModel {
  Duration latency_within_host = std::chrono::microseconds(5);
  Duration latency_between_hosts = std::chrono::microseconds(30);
  std::uint64_t bytes_per_second = 1'250'000'000;  // of each stream: 10 Gb/s
  std::uint64_t host_bytes_per_second = 0;         // of all streams from one host to others; 0: no limit
  std::size_t window_bytes = 256 << 10;
  Duration give_up = std::chrono::seconds(30);  // time limit of connecting if nothing answers
};

class SimNetwork final : private DeathWatcher {
 public:
  explicit SimNetwork(World& world, StreamModel model = {});
  ~SimNetwork();

  // Delivers nothing between the two hosts until heal(); bytes in flight wait.
  void cut(int host, int other);
  void heal(int host, int other);
  // The next new stream breaks when `bytes` of its bytes, of both directions together, have arrived: both ends can read
  // these and then see a reset, one at once and one up to a millisecond later; bytes in flight are lost.
  void break_next(std::uint64_t bytes) noexcept { break_next_ = bytes; }
  // The same now, for all streams between the two hosts.
  void break_streams(int host, int other);
  // The same for one of them, chosen by `dice`, if there is any.
  void break_stream(int host, int other, std::uint64_t dice);
  // The next new streams have these bandwidths, one after the other.
  void cap_next(std::initializer_list<std::uint64_t> bytes_per_second) { caps_.assign(bytes_per_second); }
  // What the nth stream between the two hosts, counted from the oldest, is given from now on has this bandwidth.
  void cap(int host, int other, std::size_t nth, std::uint64_t bytes_per_second);
  void cap_all(std::uint64_t bytes_per_second);  // and of those that are made later
  bool break_pending() const noexcept { return break_next_.has_value(); }
  std::uint64_t broken() const noexcept { return broken_; }  // streams broken so far
  // What each stream says from now on of segments that were sent again.
  void say_sent_again(std::uint64_t segments) noexcept { sent_again_ = segments; }
  // Flips one bit in flight in the next new stream: in the byte after `bytes` others, of both directions together.
  void alter_next(std::uint64_t bytes) noexcept { alter_next_ = bytes; }
  bool alter_pending() const noexcept { return alter_next_.has_value(); }
  std::uint64_t altered() const noexcept { return altered_; }  // bytes altered so far

  struct End {
    SimLoop& loop;
    int host;
    io::PeerIdentity identity;
  };
  // Two ends of a new stream, as of a pipe or a socketpair.
  std::pair<std::unique_ptr<io::Stream>, std::unique_ptr<io::Stream>> pair(const End& one, const End& other,
                                                                           const std::string& name);
  // Makes `to` the owner of an end of a stream of this network, as for a descriptor that a child inherits and its
  // parent closes. No wait may be outstanding on it. Has no effect on a null_stream().
  static void hand_over(io::Stream& stream, const End& to) noexcept;

 private:
  friend class SimNet;
  friend class SimListener;
  friend class SimConnection;
  void node_died(NodeId node) noexcept override;
  Duration latency(int host, int other) const noexcept;
  bool is_cut(int host, int other) const noexcept { return cut_.contains(std::minmax(host, other)); }
  // The key of a listener: local names and loopback addresses belong to a host.
  static std::string key(const io::Address& address, int host);

  World& world_;
  StreamModel model_;
  std::set<std::pair<int, int>> cut_;
  std::optional<std::uint64_t> break_next_;
  std::uint64_t broken_ = 0;
  std::optional<std::uint64_t> alter_next_;
  std::uint64_t altered_ = 0;
  std::uint64_t sent_again_ = 0;
  std::deque<std::uint64_t> caps_;
  std::map<int, Instant> line_free_;  // by sending host
  std::map<std::string, SimListener*> listeners_;
  std::map<std::string, int> hosts_;            // of IP addresses at which somebody has listened
  std::map<int, std::string> first_addresses_;  // of hosts on which somebody has listened: they connect from these
  static constexpr std::uint16_t kCallingPort = 40'000;  // of whoever connects, as the other end sees it
  std::uint16_t next_port_ = 20'000;
  std::map<std::uint64_t, SimConnection*> connections_;  // in order of creation
  std::uint64_t next_connection_ = 0;
};

class SimNet final : public io::Net {
 public:
  SimNet(SimNetwork& network, SimLoop& loop, int host, io::PeerIdentity identity) noexcept
      : network_(network), end_{loop, host, identity} {}

  std::unique_ptr<io::Listener> listen(const io::Address& address) override;
  Task<std::unique_ptr<io::Stream>> connect(io::Address address, Stop& stop) override;

 private:
  SimNetwork& network_;
  SimNetwork::End end_;
};

// Reads as empty, writes into nothing: /dev/null.
std::unique_ptr<io::Stream> null_stream(SimLoop& loop);

}  // namespace aiacc::sim
