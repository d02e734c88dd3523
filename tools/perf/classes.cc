#include "tools/perf/classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/json.h"
#include "tools/perf/memory.h"
#include "tools/perf/output.h"

namespace aiacc::tools {
namespace {

constexpr double kUsualTime_us = 1'000'000;  // of all calls of a class, if their number is not given
constexpr std::size_t kInFlight = 2;         // long calls

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double at_quantile(const std::vector<double>& sorted, double quantile) {
  if (sorted.empty()) return 0;
  const double place = std::ceil(quantile * static_cast<double>(sorted.size())) - 1;
  return sorted[static_cast<std::size_t>(std::clamp(place, 0.0, static_cast<double>(sorted.size() - 1)))];
}

aiacc_attr_t attr_of(std::int32_t traffic_class) {
  aiacc_attr_t attr{};
  attr.size = sizeof attr;
  attr.traffic_class = traffic_class;
  return attr;
}

// A group of all ranks: the calls of a group have one order on all of them, and those of two groups need none.
aiacc_group_t group_of_all(const World& world, const char* name) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  aiacc_group_attr_t attr{};
  attr.size = sizeof attr;
  attr.name = name;
  aiacc_group_t group = AIACC_NULL;
  require(aiacc_group_create(AIACC_WORLD, ranks.size(), ranks.data(), &attr, &group));
  return group;
}

// The calls of one class and their times.
class Calls {
 public:
  Calls(const World& world, const PerfOptions& options, const char* name, std::int32_t traffic_class,
        std::uint64_t bytes, aiacc_op_t op)
      : world_(world),
        group_(group_of_all(world, name)),
        attr_(attr_of(traffic_class)),
        count_(std::max<std::size_t>(1, bytes / sizeof(float))),
        op_(op),
        send_(count_ * sizeof(float), options.shared_memory) {
    for (std::size_t i = 0; i < kInFlight; ++i) recv_.emplace_back(count_ * sizeof(float), options.shared_memory);
    std::fill_n(sent(), count_, 1.0F);
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  void free() { require(aiacc_group_free(group_)); }
  std::uint64_t bytes() const { return count_ * sizeof(float); }
  float* sent() { return reinterpret_cast<float*>(send_.data()); }
  const float* received(std::size_t slot) const { return reinterpret_cast<const float*>(recv_[slot].data()); }

  // Returns when the result is there.
  void call() {
    const double began = now_us();
    require(aiacc_allreduce(send_.data(), recv_[0].data(), count_, AIACC_FLOAT32, op_, group_, &attr_, nullptr));
    times.push_back(now_us() - began);
  }
  // As many as may be in flight, of those that are left.
  void start_some(int& left) {
    for (std::size_t slot = 0; slot < kInFlight; ++slot) {
      const std::size_t one = (next_ + slot) % kInFlight;
      if (left == 0 || in_flight_[one] != AIACC_NULL) continue;
      start(one);
      --left;
    }
  }
  bool idle() const { return in_flight_[next_] == AIACC_NULL; }
  // The oldest one has ended, or is waited for.
  bool end_one(bool wait) {
    const aiacc_status_t status = wait ? aiacc_wait(in_flight_[next_]) : aiacc_test(in_flight_[next_]);
    if (status == AIACC_PENDING) return false;
    require(status);
    in_flight_[next_] = AIACC_NULL;
    times.push_back(now_us() - began_[next_]);
    const float expected = static_cast<float>(world_.size());
    if (received(next_)[0] != expected || received(next_)[count_ - 1] != expected) ++wrong;
    next_ = (next_ + 1) % kInFlight;
    return true;
  }

  // What was timed since the last call, as the slowest rank has it.
  ClassTimes take(double all_us) {
    world_.max_over_ranks(times);
    world_.max_over_ranks({&all_us, 1});
    std::sort(times.begin(), times.end());
    ClassTimes taken{static_cast<int>(times.size()), at_quantile(times, 0.5), at_quantile(times, 0.99),
                     static_cast<double>(bytes()) * static_cast<double>(times.size()) / all_us * 1e-3};
    times.clear();
    return taken;
  }
  // The number of calls to time: what was given, or as many as take the usual time at the pace of those timed so far.
  int calls_for(int given, double lowest, double highest) {
    double usual =
        std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(std::max<std::size_t>(1, times.size()));
    world_.max_over_ranks({&usual, 1});
    times.clear();
    return given > 0 ? given : static_cast<int>(std::clamp(kUsualTime_us / std::max(usual, 0.01), lowest, highest));
  }

  std::vector<double> times;
  std::uint64_t wrong = 0;

 private:
  void start(std::size_t slot) {
    began_[slot] = now_us();
    require(aiacc_allreduce(send_.data(), recv_[slot].data(), count_, AIACC_FLOAT32, op_, group_, &attr_,
                            &in_flight_[slot]));
  }

  const World& world_;
  aiacc_group_t group_;
  aiacc_attr_t attr_;
  std::size_t count_;
  aiacc_op_t op_;
  PerfBuffer send_;
  std::vector<PerfBuffer> recv_;
  std::array<aiacc_request_t, kInFlight> in_flight_{};
  std::array<double, kInFlight> began_{};
  std::size_t next_ = 0;  // the oldest one
};

void run_bulk(Calls& bulk, int calls) {
  for (int left = calls; left > 0 || !bulk.idle();) {
    bulk.start_some(left);
    bulk.end_one(true);
  }
}

// Short calls for as long as long ones are in flight on all ranks; the times of both. The short calls themselves tell that a rank has
// ended the long ones: each is the maximum of what ranks say.
std::array<double, 2> run_together(Calls& latency, Calls& bulk, int calls) {
  const double began = now_us();
  int left = calls;
  for (bool over = false; !over;) {
    bulk.start_some(left);
    latency.sent()[0] = left == 0 && bulk.idle() ? 2.0F : 1.0F;
    latency.call();
    over = latency.received(0)[0] > 1.0F;
    while (!bulk.idle() && bulk.end_one(false)) {
    }
  }
  const double latency_us = now_us() - began;
  run_bulk(bulk, left);
  return {latency_us, now_us() - began};
}

template <class Run>
double timed(const World& world, const Run& run) {
  world.barrier();
  const double began = now_us();
  run();
  return now_us() - began;
}

}  // namespace

std::vector<ClassRow> measure_classes(const World& world, const PerfOptions& options) {
  Calls latency(world, options, "latency", AIACC_TRAFFIC_LATENCY, options.first_bytes, AIACC_MAX);
  Calls bulk(world, options, "bulk", AIACC_TRAFFIC_BULK, options.last_bytes, AIACC_SUM);
  for (int i = 0; i < std::max(1, options.warmup_calls); ++i) latency.call();
  const int short_calls = latency.calls_for(options.calls, 100, 10'000);
  run_bulk(bulk, std::max(1, options.warmup_calls));
  const int long_calls = bulk.calls_for(options.calls, 10, 1'000);

  ClassRow short_row{"latency", latency.bytes(), {}, {}, 0}, long_row{"bulk", bulk.bytes(), {}, {}, 0};
  short_row.alone = latency.take(timed(world, [&] {
    for (int i = 0; i < short_calls; ++i) latency.call();
  }));
  long_row.alone = bulk.take(timed(world, [&] { run_bulk(bulk, long_calls); }));
  world.barrier();
  const std::array<double, 2> both = run_together(latency, bulk, long_calls);
  short_row.together = latency.take(both[0]);
  long_row.together = bulk.take(both[1]);
  long_row.wrong = static_cast<std::uint64_t>(world.sum(static_cast<double>(bulk.wrong)));
  world.barrier();  // no rank reads another one's buffer any more
  latency.free();
  bulk.free();
  return {short_row, long_row};
}

namespace {

Json to_json(const ClassTimes& times) {
  return Json::Object{
      {"calls", times.calls}, {"p50_us", times.p50_us}, {"p99_us", times.p99_us}, {"algbw_gbs", times.gbs}};
}

double kept_percent(const ClassRow& row) { return row.alone.gbs > 0 ? 100 * row.together.gbs / row.alone.gbs : 0; }

}  // namespace

std::string classes_text(const World& world, const std::vector<ClassRow>& rows) {
  constexpr const char* kLine = "{:<10} {:>10} {:<9} {:>7} {:>10} {:>10} {:>9} {:>7}\n";
  std::string text = fmt::format(
      "# aiacc-perf {}: allreduce of two traffic classes on {}, {}\n", aiacc_version(), count_of_ranks(world.size()),
      world.one_host() ? "one host, where classes have no effect" : fmt::format("{} on this host", world.local_size()));
  text += fmt::format(fmt::runtime(kLine), "# class", "size", "", "calls", "p50", "p99", "algbw", "kept") +
          fmt::format(fmt::runtime(kLine), "#", "(B)", "", "", "(us)", "(us)", "(GB/s)", "(%)");
  for (const ClassRow& row : rows) {
    for (const bool alone : {true, false}) {
      const ClassTimes& times = alone ? row.alone : row.together;
      text += fmt::format(fmt::runtime(kLine), "  " + row.name, row.bytes, alone ? "alone" : "together", times.calls,
                          fmt::format("{:.1f}", times.p50_us), fmt::format("{:.1f}", times.p99_us),
                          fmt::format("{:.4f}", times.gbs), alone ? "" : fmt::format("{:.1f}", kept_percent(row)));
    }
  }
  return text;
}

std::string classes_json(const std::vector<ClassRow>& rows) {
  std::string text;
  for (const ClassRow& row : rows) {
    text += Json(Json::Object{{"kind", "class"},
                              {"class", row.name},
                              {"bytes", row.bytes},
                              {"alone", to_json(row.alone)},
                              {"together", to_json(row.together)},
                              {"kept_percent", kept_percent(row)},
                              {"wrong", row.wrong}})
                .text() +
            "\n";
  }
  return text;
}

}  // namespace aiacc::tools
