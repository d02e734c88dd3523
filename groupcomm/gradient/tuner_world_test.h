// A training step over a network that is described by few numbers, for tests of the tuner: gradients become ready one after the
// other, are merged and cut by the fusion size, and each piece takes the first of `in_flight` streams that is free.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/sim/random.h"
#include "groupcomm/gradient/tuner.h"

namespace aiacc::gradient::test {

// An algorithm beside the first: its network latency and its bytes over the slowest link, as multiples.
struct Way {
  double latency = 1;
  double bytes = 1;
};

struct Network {
  double compute_s = 0.1;       // of a step
  double backward = 0.66;       // the share of it in which gradients become ready
  double start_s = 100e-6;      // of an allreduce: its own work ...
  double latency_s = 100e-6;    // ... and the network's
  double bytes_a_second = 1e9;  // of all streams together
  double of_one_stream = 0.5;   // a stream's share at most
  double crowding = 0;          // loss for each stream beyond four
  double interference = 0;      // of each stream with the computation
  std::vector<double> tensors;  // bytes, in the order in which they become ready
  std::vector<Way> ways{{}};    // by TunedSetting::algorithm

  // Seconds of a step without noise.
  double step(TunedSetting setting) const {
    double total = 0, done = 0;
    for (double bytes : tensors) total += bytes;
    const auto fusion = static_cast<double>(setting.fusion_bytes);
    const int streams = setting.in_flight;
    const double compute = compute_s * (1 + interference * streams);
    const double crowd = 1 + crowding * std::max(0, streams - 4);
    const Way& way = ways[static_cast<std::size_t>(setting.algorithm)];
    const double rate = std::min(bytes_a_second * of_one_stream, bytes_a_second / streams / crowd) / way.bytes;
    std::vector<double> free(static_cast<std::size_t>(streams));
    double end = compute, unit = 0, ready = 0;
    const auto launch = [&] {
      const double pieces = std::ceil(unit / fusion);
      for (double piece = 0; piece < pieces; ++piece) {
        const auto stream = std::min_element(free.begin(), free.end());
        *stream = std::max(*stream, ready) + start_s + way.latency * latency_s + unit / pieces / rate;
        end = std::max(end, *stream);
      }
      unit = 0;
    };
    for (double bytes : tensors) {
      if (unit > 0 && unit + bytes > fusion) launch();
      done += bytes;
      ready = compute * (1 - backward * (1 - done / total));
      unit += bytes;
    }
    launch();
    return end;
  }
};

inline double uniform(sim::Random& random, double least, double most) {
  return least + (most - least) * static_cast<double>(random.next() >> 11) * 0x1p-53;
}
inline double log_uniform(sim::Random& random, double least, double most) {
  return std::exp(uniform(random, std::log(least), std::log(most)));
}
inline double normal(sim::Random& random) {
  return std::sqrt(-2 * std::log(uniform(random, 1e-12, 1))) * std::cos(6.283185307179586 * uniform(random, 0, 1));
}

inline Network random_network(std::uint64_t seed, int alternatives = 0) {
  sim::Random random(seed);
  Network network;
  network.compute_s = log_uniform(random, 0.06, 0.45);
  network.start_s = log_uniform(random, 20e-6, 200e-6);
  const double hosts = std::floor(log_uniform(random, 2, 33));
  network.latency_s = 2 * (hosts - 1) * log_uniform(random, 5e-6, 80e-6);
  network.bytes_a_second = log_uniform(random, 1e8, 12e9) / 2;
  network.of_one_stream = uniform(random, 0.15, 1);
  network.crowding = uniform(random, 0, 0.05);
  network.interference = uniform(random, 0, 0.01);
  const double total = log_uniform(random, 5e6, 1e9);
  double sum = 0;
  for (std::uint64_t count = 60 + random.below(260); count > 0; --count) {
    network.tensors.push_back(std::exp(2 * normal(random)));
    sum += network.tensors.back();
  }
  for (double& bytes : network.tensors) bytes = std::max(4.0, bytes * total / sum);
  for (; alternatives > 0; --alternatives)
    network.ways.push_back({log_uniform(random, 0.15, 6), log_uniform(random, 0.6, 1.7)});
  return network;
}

// The network with a tuner on it: an input is about the pass before the one that has begun.
class TunedRun {
 public:
  TunedRun(const Network& of, TunedSetting start, std::uint64_t seed, double sigma)
      : network(of),
        tuner(start, static_cast<std::uint64_t>(total()), static_cast<int>(of.ways.size())),
        random_(seed),
        sigma_(sigma),
        start_(start) {
    runs_ = next_ = start;
  }

  double total() const {
    double sum = 0;
    for (double bytes : network.tensors) sum += bytes;
    return sum;
  }
  // Seconds of a pass without noise.
  double step(TunedSetting setting) {
    if (network.bytes_a_second != known_at_) known_.clear();
    known_at_ = network.bytes_a_second;
    const auto [known, added] = known_.try_emplace({setting.fusion_bytes, setting.in_flight, setting.algorithm});
    if (added) known->second = network.step(setting);
    return known->second;
  }
  // Seconds of a pass with noise: stragglers make one in fifty much longer.
  double noisy(TunedSetting setting) {
    double time = step(setting) * std::exp(sigma_ * normal(random_));
    if (random_.below(50) == 0 && sigma_ > 0) time *= uniform(random_, 1.3, 3);
    return time;
  }
  // Runs passes until the tuner has settled, at most so many. Returns how many.
  int search(int most) {
    int passes = 0;
    do pass(), ++passes;
    while (!tuner.settled() && passes < most);
    return passes;
  }
  // One pass, and the input that follows it.
  void pass() {
    times_.push_back(Tuner::log_time(Duration(static_cast<std::int64_t>(noisy(runs_) * 1e9))));
    spent_s += step(runs_);
    runs_ = next_;
    if (--left_ > 0) return;
    std::nth_element(times_.begin(), times_.begin() + static_cast<std::ptrdiff_t>((times_.size() - 1) / 2),
                     times_.end());
    const Tuner::Plan plan = tuner.told(times_[(times_.size() - 1) / 2]);
    times_.clear();
    next_ = plan.setting;
    left_ = plan.passes;
  }
  // Of all settings that there are.
  double best_s() const {
    double best = network.step(start_);
    for (std::uint64_t bytes = 256 << 10; bytes <= 128 << 20; bytes *= 2)
      for (int streams = 1; streams <= 16; streams *= 2)
        for (std::size_t way = 0; way < network.ways.size(); ++way)
          best = std::min(best, network.step({bytes, streams, static_cast<int>(way)}));
    return best;
  }

  Network network;
  Tuner tuner;
  double spent_s = 0;

 private:
  sim::Random random_;
  double sigma_;
  std::map<std::tuple<std::uint64_t, int, int>, double> known_;  // steps
  double known_at_ = 0;
  TunedSetting start_, runs_, next_;
  int left_ = 1;
  std::vector<std::int32_t> times_;
};

}  // namespace aiacc::gradient::test
