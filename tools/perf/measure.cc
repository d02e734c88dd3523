#include "tools/perf/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "tools/perf/data.h"
#include "tools/perf/types.h"
#include "tools/perf/user_op.h"

namespace aiacc::tools {

namespace {

constexpr std::size_t kPage = 4096;
constexpr double kUsualTime_us = 100'000;  // for all calls of a size, if their number is not given

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t stride_of(std::uint64_t bytes) { return (std::max<std::uint64_t>(bytes, 1) + kPage - 1) / kPage * kPage; }

// The number of buffers to use in turn so that the caches do not hold them; one if they should stay cached.
std::size_t slots_of(std::uint64_t bytes, std::size_t cold_bytes) {
  return std::max<std::size_t>(1, (cold_bytes + stride_of(bytes) - 1) / stride_of(bytes));
}

std::size_t room_for(const PerfOptions& options, int ranks, std::size_t cold_bytes) {
  const std::uint64_t largest = options.last_bytes + static_cast<std::uint64_t>(ranks) * 8;  // counts are at least 1
  return stride_of(largest) + cold_bytes + kPage;
}

double at_quantile(const std::vector<double>& sorted, double quantile) {
  const double place = std::ceil(quantile * static_cast<double>(sorted.size())) - 1;
  return sorted[static_cast<std::size_t>(std::clamp(place, 0.0, static_cast<double>(sorted.size() - 1)))];
}

bool both_blocks(const Collective& collective) {
  return collective.send == Collective::Holds::kAll || collective.recv == Collective::Holds::kAll;
}

}  // namespace

Bench::Bench(const World& world, const PerfOptions& options, std::optional<MemoryBandwidth> memory)
    : world_(world),
      options_(options),
      memory_(memory),
      cold_bytes_(options.cold ? 2 * largest_cache() : 0),
      send_(room_for(options, world.size(), cold_bytes_), options.shared_memory),
      recv_(room_for(options, world.size(), cold_bytes_), options.shared_memory) {
  if (std::find(options.ops.begin(), options.ops.end(), kUserOp) != options.ops.end()) user_.emplace();
}

CallShape Bench::shape_of(const Row& row, std::size_t slot) const {
  using Holds = Collective::Holds;
  const Collective& collective = *row.collective;
  CallShape shape;
  shape.count = row.count;
  shape.type = row.type;
  shape.op = row.op;
  shape.handle = row.op == kUserOp ? user_->handle() : row.op;
  shape.root = row.root;
  shape.rank = world_.rank();
  shape.size = world_.size();
  std::byte* const to = recv_.data() + slot * stride_of(row.bytes);
  const std::size_t own = static_cast<std::size_t>(shape.rank) * row.count * size_of(row.type);
  shape.send = row.in_place ? to : send_.data() + slot * stride_of(row.bytes);
  shape.recv = to;
  // In place, the smaller buffer is this rank's block in the larger one.
  if (row.in_place && collective.send == Holds::kOne && collective.recv == Holds::kAll) shape.send = to + own;
  if (row.in_place && collective.send == Holds::kAll && collective.recv == Holds::kOne) shape.recv = to + own;
  return shape;
}

Row Bench::measure(const Collective& collective, aiacc_dtype_t type, aiacc_op_t op, std::uint64_t bytes,
                   bool in_place) {
  Row row;
  row.collective = &collective;
  row.type = type;
  row.op = op;
  row.root = collective.has_root ? options_.root : 0;
  row.in_place = in_place;
  const std::uint64_t unit = size_of(type) * (both_blocks(collective) ? static_cast<std::uint64_t>(world_.size()) : 1);
  const bool moves = collective.result != Collective::Result::kNothing;
  row.count = moves ? std::max<std::uint64_t>(1, bytes / unit) : 0;
  row.bytes = row.count * unit;

  const std::size_t slots = slots_of(row.bytes, cold_bytes_);
  for (std::size_t slot = 0; slot < (moves ? slots : 0); ++slot) {
    std::memset(send_.data() + slot * stride_of(row.bytes), 0, row.bytes);
    std::memset(recv_.data() + slot * stride_of(row.bytes), 0, row.bytes);
  }
  time(row, shape_of(row, 0));
  if (options_.check && moves) check(row, shape_of(row, 0));

  const double ranks = world_.size();
  row.alg_gbs = static_cast<double>(row.bytes) / row.time_us * 1e-3;
  row.bus_gbs = row.alg_gbs * collective.bus_factor(ranks);
  if (memory_ && moves) {
    row.bound_percent = 100 * row.alg_gbs * collective.traffic(ranks, in_place) / memory_->best_gbs();
  }
  return row;
}

// The time of a call is the time of all consecutive calls divided by their number; single calls are timed for the
// percentiles.
void Bench::time(Row& row, const CallShape& first) {
  const std::size_t slots = slots_of(row.bytes, cold_bytes_);
  std::vector<CallShape> shapes;
  for (std::size_t slot = 0; slot < slots; ++slot) shapes.push_back(slot == 0 ? first : shape_of(row, slot));
  const auto call = [&](int i) { require(row.collective->call(shapes[static_cast<std::size_t>(i) % slots])); };

  call(0);
  world_.barrier();
  const double began_warmup = now_us();
  for (int i = 0; i < options_.warmup_calls; ++i) call(i);
  double usual = (now_us() - began_warmup) / std::max(1, options_.warmup_calls);
  world_.max_over_ranks({&usual, 1});
  row.calls = options_.calls > 0 ? options_.calls
                                 : static_cast<int>(std::clamp(kUsualTime_us / std::max(usual, 0.01), 10.0, 2000.0));

  std::vector<double> stamps(static_cast<std::size_t>(row.calls) + 1);
  world_.barrier();
  stamps[0] = now_us();
  for (int i = 0; i < row.calls; ++i) {
    call(i);
    stamps[static_cast<std::size_t>(i) + 1] = now_us();
  }
  std::vector<double> times(stamps.size());
  for (std::size_t i = 0; i + 1 < stamps.size(); ++i) times[i] = stamps[i + 1] - stamps[i];
  times.back() = (stamps.back() - stamps.front()) / row.calls;
  world_.max_over_ranks(times);
  row.time_us = times.back();
  times.pop_back();
  std::sort(times.begin(), times.end());
  row.p50_us = at_quantile(times, 0.5);
  row.p99_us = at_quantile(times, 0.99);
}

void Bench::check(Row& row, CallShape shape) {
  using Holds = Collective::Holds;
  const Collective& collective = *row.collective;
  const std::size_t element = size_of(row.type);
  const auto ranks = static_cast<std::size_t>(world_.size());
  const std::size_t sent = row.count * (collective.send == Holds::kAll ? ranks : 1);
  const std::size_t received = row.count * (collective.recv == Holds::kAll ? ranks : 1);
  if (row.in_place && collective.send == Holds::kAll) std::memset(const_cast<void*>(shape.send), 0xA5, sent * element);
  std::memset(shape.recv, 0xA5, received * element);
  if (collective.send != Holds::kNothing) {
    fill(shape, const_cast<void*>(shape.send), sent);
  } else if (shape.rank == shape.root) {
    fill(shape, shape.recv, sent);
  }
  world_.barrier();
  require(collective.call(shape));
  if (exact(row.type, collective.reduces ? row.op : AIACC_MIN, world_.size())) {
    row.wrong = static_cast<std::uint64_t>(world_.sum(static_cast<double>(count_wrong(collective, shape))));
  }
  const bool has_result = !collective.recv_at_root_only || shape.rank == shape.root;
  const std::vector<std::uint64_t> hashes = world_.gather(has_result ? hash_bytes(shape.recv, received * element) : 0);
  row.hash = hash_bytes(hashes.data(), hashes.size() * sizeof hashes[0]);
}

}  // namespace aiacc::tools
