// How many of a pair's connections carry long messages, found by trial: a state machine without clock or network.
//
// A network may limit each connection (clouds do, per flow), and nothing says so. Therefore more connections are tried: one, then
// two, four … at a time while each step makes long messages faster by more than kGain. Then fewer are tried, a sixteenth or one
// less at a time, while that costs no more than kLoss. What was found is kept for a while, which doubles each time nothing better
// is found; a much lower speed begins the search anew.
//
//   search: more ── faster ──▶ twice as many more ── not faster ──▶ fewer ── as fast ──▶ still fewer ── slower ──▶ keep ──▶ search
//
// Speeds are of periods in which long messages were under way: what the other host's system acknowledged. A measurement is the
// mean of kPeriods of them, after one that is left out: it still has what the former number of connections had begun.
#pragma once

#include <cstdint>

namespace aiacc::tcp {

class StreamCount {
 public:
  static constexpr double kGain = 0.05;
  static constexpr double kLoss = 0.02;
  static constexpr double kDrop = 0.30;  // of the speed, by which another state of the network is known
  static constexpr int kPeriods = 4;
  static constexpr int kShortestKeep = 8;  // measurements
  static constexpr int kLongestKeep = 128;

  StreamCount(int least, int most) noexcept : least_(least), most_(most), found_(least), wanted_(least) {}

  bool adapts() const noexcept { return least_ < most_; }
  int wanted() const noexcept { return wanted_; }
  // There can be no more than this, because the peer wants no more.
  void limit(int most) noexcept;
  // A period is over: this was its speed with wanted() connections.
  void period(double bytes_per_second) noexcept;

 private:
  enum class Phase : std::uint8_t { kMeasure, kMore, kFewer, kKeep };

  void measured(double speed) noexcept;
  void try_number(Phase phase, int number) noexcept;
  void try_more() noexcept;
  void try_fewer() noexcept;
  void keep() noexcept;

  int least_;
  int most_;
  int found_;
  int wanted_;
  Phase phase_ = Phase::kMeasure;
  int step_ = 1;
  double speed_ = 0;  // of found_
  double best_ = 0;   // of this search
  bool changed_ = false;
  int keep_ = kShortestKeep;
  int kept_ = 0;
  int periods_ = 0;
  double sum_ = 0;
};

}  // namespace aiacc::tcp
