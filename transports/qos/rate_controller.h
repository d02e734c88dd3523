// RateController: how fast a rank may send to another one in one traffic class, decided once an epoch by what the network says. A state
// machine without clock, network or system calls. Rates are bytes a second, fractions are 0 to 1.
//
// It is for what the network's own congestion control leaves open: a sender may have many connections, or queue pairs, and each of them
// gets a part of the line for itself, whatever their class. The kernel's control, or the device's, stays in place; this rate is a cap on
// all connections of the class together, kHeadroom above what it holds to be fair, so that two controls do not work against each other.
//
//   alpha <- (1-g) alpha + g max(marked, paused)             DCTCP (Alizadeh et al., SIGCOMM 2010); also of PFC's pauses
//   delay  = (rtt - target) / rtt, target = 1.5 least_rtt + slack                   Swift (Kumar et al., SIGCOMM 2020)
//   congested, unless the last epoch was and this one is hardly longer than a round trip:
//     from <- min(rate, what was delivered)
//     rate <- from * least of  1 - alpha/2      if something was marked or paused
//                              1 - 0.8 delay    but not below 0.5
//                              1 - 30 lost      but not below 0.7
//     target <- seven eighths of the way back to `from`
//   otherwise, if the rate was used, as DCQCN (Zhu et al., SIGCOMM 2015): three times half of the way to target; then target grows by
//     weight * 1 % of the line, and after five of these by 5, 10, 15... times as much.
//
// Growth by a weight and cuts by a factor give senders that share a bottleneck rates in proportion to their weights (Chiu and Jain,
// 1989). That is why it does not recover all of a cut: those that do, as DCQCN's, keep the difference that they had. A cut begins at what
// was delivered, so a sender whose rate was never reached, or whom something else limits to less (the kernel, a policer in a cloud), does
// not take many cuts to get to where it matters. There is no rate before the first congestion: an idle network costs nothing. Whatever
// tells of nothing (no delivery, counters that are old) never raises it.
#pragma once

#include <cstdint>
#include <limits>

#include "base/time.h"

namespace aiacc {

class RateController {
 public:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  static constexpr double kHeadroom = 1.25;
  static constexpr double kLeast = 125'000;  // 1 Mbit/s

  // What is known of the way to the peer. May change from epoch to epoch.
  struct Path {
    double line = 0;    // of the device: the same number for all senders that share it, by which they grow
    double weight = 1;  // of the class, above 0 and at most 1
    Duration slack{};   // queueing that is no congestion: a chunk's own time on the line, the switches, a busy host
    double most = kUnlimited;
  };
  // What one epoch says, of all connections of the class.
  struct Epoch {
    Duration length{};
    double sent = 0;       // bytes
    double delivered = 0;  // bytes; 0: nothing is known
    double marked = 0;     // of what was delivered
    double lost = 0;       // of what was sent
    double paused = 0;     // of the time
    Duration rtt{};        // smoothed; zero: unknown
    Duration least_rtt{};
    bool sender_limited = false;  // there was not always something to send, or the receiver did not take it
    bool timed_out = false;
  };

  void epoch(const Epoch& epoch, const Path& path) noexcept;

  double rate() const noexcept { return rate_; }
  bool limits() const noexcept { return rate_ < kUnlimited; }
  double alpha() const noexcept { return alpha_; }
  std::uint64_t cuts() const noexcept { return cuts_; }

  // A round trip and another one: the first shows what the last change did.
  static Duration length_for_tcp(Duration rtt) noexcept;
  // Devices give counters of congestion a new value every 10 ms.
  static Duration length_for_rdma(Duration rtt) noexcept;

 private:
  static constexpr double kGain = 1.0 / 16;  // g
  static constexpr double kStep = 0.01;      // of the line
  static constexpr int kFastRecovery = 3;
  static constexpr int kSlowGrowth = 5;

  double floor(const Path& path) const noexcept;
  void cut(double factor, double proven, double least, const Path& path) noexcept;
  void grow(const Path& path) noexcept;

  double rate_ = kUnlimited;
  double target_ = kUnlimited;  // to which the rate recovers
  double alpha_ = 1;            // so the first mark halves it
  double delivered_ = 0;        // rate of the last epoch
  bool just_cut_ = false;       // in the last epoch
  int calm_ = 0;                // epochs without congestion in which the rate was used
  std::uint64_t cuts_ = 0;
};

// What the system counts of one TCP connection (TCP_INFO of Linux), since it was made except for the two round trip times. The 32-bit
// counts wrap.
struct TcpCounters {
  std::uint64_t sent_bytes = 0;        // tcpi_bytes_sent: what was sent again included
  std::uint64_t sent_again_bytes = 0;  // tcpi_bytes_retrans
  std::uint64_t acknowledged_bytes = 0;
  std::uint32_t delivered = 0;  // segments that the other host has
  std::uint32_t marked =
      0;  // tcpi_delivered_ce: of these, those that the network marked, as far as the other host says so
  bool exact_marks =
      false;  // it says so of each (DCTCP); otherwise it repeats a mark until it was answered, and more are counted
  Duration rtt{};               // smoothed
  Duration least_rtt{};         // tcpi_min_rtt; zero while it is unknown
  Duration busy{};              // with something to send
  Duration held_by_receiver{};  // tcpi_rwnd_limited: of this, because the other process did not read
  bool timed_out = false;       // nothing was acknowledged for so long that sending began again with one segment
};

// The difference of two looks at the connections of a class, added up.
class TcpSignals {
 public:
  // False, and nothing is added, if `now` is not later than `before`: a count has gone back.
  bool add(const TcpCounters& before, const TcpCounters& now) noexcept;
  RateController::Epoch over(Duration length) const noexcept;

 private:
  RateController::Epoch sum_;
  double sent_again_ = 0;
  double segments_ = 0;
  double marked_ = 0;
  Duration busy_{};  // of the busiest connection
  Duration held_{};
};

// The same of RDMA: differences of a device's counters over one epoch, which should not be shorter than the device takes to refresh them.
struct RdmaSignals {
  std::uint64_t sent_bytes = 0;
  std::uint64_t completed_bytes = 0;
  std::uint64_t notifications =
      0;  // congestion notification packets that were obeyed (rp_cnp_handled), of the whole port
  std::uint64_t queue_pairs = 1;      // that send
  std::uint64_t lost_packets = 0;     // out_of_sequence + packet_seq_err
  std::uint64_t packet_bytes = 4096;  // the path's MTU
  Duration paused{};                  // rx_prio<n>_pause_duration of the class' priority
  Duration rtt{};                     // post to completion, without the message's own time
  Duration least_rtt{};
  bool sender_limited = false;
  bool timed_out = false;  // local_ack_timeout_err

  RateController::Epoch over(Duration length) const noexcept;
};

}  // namespace aiacc
