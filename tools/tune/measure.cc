#include "tools/tune/measure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "collectives/inter/algorithms.h"
#include "tools/perf/collectives.h"
#include "tools/perf/memory.h"
#include "tools/perf/world.h"

namespace aiacc::tools {

namespace {

using inter::AlgorithmInfo;
using inter::Shape;
using inter::TimedShape;

// An algorithm that takes so many times as long as the best one in the first round is not measured again.
constexpr double kHopeless = 2;
constexpr int kFewestCalls = 3, kMostCalls = 500;

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// In a ring of messages, which know no algorithms: whatever is forced, they and barriers are served without a warning.
double largest(const World& world, double value) {
  double most = value;
  const int right = (world.rank() + 1) % world.size(), left = (world.rank() + world.size() - 1) % world.size();
  for (int step = 1; step < world.size(); ++step) {
    double came = 0;
    require(aiacc_sendrecv(&most, 1, right, 0, &came, 1, left, 0, AIACC_FLOAT64, AIACC_WORLD, nullptr, nullptr));
    most = std::max(most, came);
  }
  return most;
}

std::vector<std::string> gather_host_names(const World& world, int host, int hosts) {
  using Name = std::array<char, 256>;
  Name mine{};
  gethostname(mine.data(), mine.size() - 1);
  std::vector<Name> names(static_cast<std::size_t>(world.size()));
  require(aiacc_allgather(mine.data(), names.data(), mine.size(), AIACC_UINT8, AIACC_WORLD, nullptr, nullptr));
  const std::vector<std::uint64_t> host_of = world.gather(static_cast<std::uint64_t>(host));
  std::vector<std::string> by_host(static_cast<std::size_t>(hosts));
  for (std::size_t rank = 0; rank < names.size(); ++rank) by_host[host_of[rank]] = names[rank].data();
  return by_host;
}

std::string transport_of_job() {
  std::string text;
  std::size_t needed = 16 << 10;
  do {
    text.resize(needed);
    require(aiacc_info(text.data(), text.size(), &needed));
  } while (needed > text.size());
  text.resize(needed - 1);
  return Json::parse(text)["transport"].as_string();
}

// The ranks of the first `hosts` hosts, which have one each. It is made without an exchange, which a forced algorithm might not serve.
class HostsGroup {
 public:
  HostsGroup(const World& world, int hosts) : rank_(world.rank()) {
    if (rank_ >= hosts) return;
    std::vector<int> members(static_cast<std::size_t>(hosts));
    std::iota(members.begin(), members.end(), 0);
    require(aiacc_group_create(AIACC_WORLD, members.size(), members.data(), nullptr, &group_));
  }
  ~HostsGroup() {
    if (takes_part()) aiacc_group_free(group_);
  }
  HostsGroup(const HostsGroup&) = delete;
  HostsGroup& operator=(const HostsGroup&) = delete;

  bool takes_part() const noexcept { return group_ != AIACC_NULL; }
  aiacc_group_t handle() const noexcept { return group_; }
  int rank() const noexcept { return rank_; }

 private:
  aiacc_group_t group_ = AIACC_NULL;
  int rank_;
};

bool in_blocks(const Collective& call) {
  return call.send == Collective::Holds::kAll || call.recv == Collective::Holds::kAll;
}

std::vector<TimedShape> shapes_to_measure(const TunePlace& place, const TuneOptions& options) {
  std::vector<TimedShape> shapes;
  const std::vector<int> hosts = options.hosts.empty() ? std::vector{place.hosts} : options.hosts;
  for (const int ranks : hosts) {
    for (const aiacc::Collective kind : options.collectives) {
      const Collective& call = *find_collective(inter::name_of(kind));
      const std::uint64_t blocks = in_blocks(call) ? static_cast<std::uint64_t>(ranks) : 1;
      for (const bool narrows : {false, true}) {
        if (narrows && !call.reduces) continue;
        for (std::uint64_t bytes = options.first_bytes; bytes * blocks <= options.last_bytes;
             bytes *= static_cast<std::uint64_t>(options.factor)) {
          TimedShape timed;
          timed.shape = {.kind = kind, .ranks = ranks, .bytes = bytes / 4 * 4, .narrows = narrows};
          timed.shape.wide_bytes = timed.shape.bytes * (narrows ? 2 : 1);
          for (const AlgorithmInfo* algorithm : inter::algorithms_of(kind)) {
            if (algorithm->obstacle(timed.shape).empty()) timed.timings.push_back({algorithm, {}});
          }
          if (timed.timings.size() > 1) shapes.push_back(std::move(timed));
        }
      }
    }
  }
  return shapes;
}

class Stopwatch {
 public:
  Stopwatch(const World& world, const TuneOptions& options)
      : world_(world),
        options_(options),
        send_(options.last_bytes + 64, false),
        recv_(options.last_bytes + 64, false) {}

  // The median time of a call on the rank where it is largest. Collective over the job.
  double time_us(const Shape& shape, const HostsGroup& group) {
    const bool mine = group.takes_part();
    world_.barrier();
    if (mine) time_calls(shape, group, 1);
    const double once_us = largest(world_, mine ? time_calls(shape, group, 1) : 0);
    const double wanted = options_.time_ms * 1e3 / std::max(once_us, 0.1);
    const int calls = static_cast<int>(std::clamp(wanted, double{kFewestCalls}, double{kMostCalls}));
    return largest(world_, mine ? time_calls(shape, group, calls) : 0);
  }

 private:
  // A root could run ahead of the others over calls that it only sends or only receives in: such calls end with a barrier.
  double time_calls(const Shape& shape, const HostsGroup& group, int calls) {
    const Collective& collective = *find_collective(inter::name_of(shape.kind));
    CallShape call;
    call.send = send_.data();
    call.recv = recv_.data();
    call.type = shape.narrows ? AIACC_FLOAT16 : AIACC_FLOAT32;
    call.count = shape.bytes / (shape.narrows ? 2 : 4);
    call.rank = group.rank();
    call.size = shape.ranks;
    call.group = group.handle();
    require(aiacc_barrier(group.handle(), nullptr, nullptr));
    std::vector<double> times_us;
    double begin = now_us();
    for (int i = 0; i < calls; ++i) {
      require(collective.call(call));
      if (collective.has_root) require(aiacc_barrier(group.handle(), nullptr, nullptr));
      times_us.push_back(now_us() - std::exchange(begin, now_us()));
    }
    return inter::median_of(std::move(times_us));
  }

  const World& world_;
  const TuneOptions& options_;
  PerfBuffer send_;
  PerfBuffer recv_;
};

bool is_hopeless(const TimedShape& timed, const inter::AlgorithmTiming& timing) {
  if (timing.rounds_us.empty() || timing.algorithm == &inter::usual_algorithm(timed.shape)) return false;
  double best_us = timing.rounds_us.front();
  for (const inter::AlgorithmTiming& each : timed.timings) {
    if (!each.rounds_us.empty()) best_us = std::min(best_us, each.rounds_us.front());
  }
  return timing.rounds_us.front() > kHopeless * best_us;
}

// Forces the algorithm with this index of each collective that has so many. Returns whether there is any.
bool force_algorithms(const std::vector<aiacc::Collective>& collectives, std::size_t index) {
  std::string rules;
  for (const aiacc::Collective kind : collectives) {
    const auto all = inter::algorithms_of(kind);
    if (index >= all.size()) continue;
    rules += fmt::format("{}{}={}", rules.empty() ? "" : ",", inter::name_of(kind), all[index]->name);
  }
  setenv("AIACC_ALGORITHM", rules.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  return !rules.empty();
}

void measure_forced(const TuneOptions& options, std::size_t index, std::vector<TimedShape>& shapes) {
  World world;
  {
    Stopwatch stopwatch(world, options);
    std::optional<HostsGroup> group;
    int group_hosts = 0;
    for (TimedShape& timed : shapes) {
      if (timed.shape.ranks != group_hosts) {
        world.barrier();  // no member is in a call of the old one any more
        group.emplace(world, group_hosts = timed.shape.ranks);
      }
      for (inter::AlgorithmTiming& timing : timed.timings) {
        const auto all = inter::algorithms_of(timed.shape.kind);
        if (index >= all.size() || timing.algorithm != all[index] || is_hopeless(timed, timing)) continue;
        timing.rounds_us.push_back(stopwatch.time_us(timed.shape, *group));
      }
    }
    world.barrier();
  }
  world.finalize();
}

}  // namespace

int find_place(TunePlace& place, const std::function<int(const TunePlace&)>& check) {
  unsetenv("AIACC_ALGORITHM");        // NOLINT(concurrency-mt-unsafe)
  unsetenv("AIACC_ALGORITHM_TABLE");  // NOLINT(concurrency-mt-unsafe)
  World world;
  place.rank = world.rank();
  int host = 0;
  require(aiacc_host_index(AIACC_WORLD, &host));
  place.hosts = static_cast<int>(largest(world, host)) + 1;
  place.most_on_a_host = static_cast<int>(largest(world, world.local_size()));
  place.host_names = gather_host_names(world, host, place.hosts);
  if (place.rank == 0) place.transport = transport_of_job();
  const int result = static_cast<int>(largest(world, check(place)));
  world.finalize();
  setenv("AIACC_ENCRYPT", "none", 0);  // rank 0 has warned NOLINT(concurrency-mt-unsafe)
  return result;
}

std::vector<TimedShape> measure_algorithms(const TunePlace& place, const TuneOptions& options,
                                           const std::function<void(const std::string&)>& progress) {
  std::vector<TimedShape> shapes = shapes_to_measure(place, options);
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t index = 0; force_algorithms(options.collectives, index); ++index) {
      progress(fmt::format("round {} of {}: {}", round + 1, options.rounds,
                           std::getenv("AIACC_ALGORITHM")));  // NOLINT(concurrency-mt-unsafe)
      measure_forced(options, index, shapes);
    }
  }
  return shapes;
}

}  // namespace aiacc::tools
