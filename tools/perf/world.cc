#include "tools/perf/world.h"

namespace aiacc::tools {

World::World() {
  require(aiacc_init(nullptr));
  require(aiacc_rank(AIACC_WORLD, &rank_));
  require(aiacc_size(AIACC_WORLD, &size_));
  require(aiacc_local_size(AIACC_WORLD, &local_size_));
}

void World::max_over_ranks(std::span<double> values) const {
  require(aiacc_allreduce(values.data(), values.data(), values.size(), AIACC_FLOAT64, AIACC_MAX, AIACC_WORLD, nullptr,
                          nullptr));
}

double World::sum(double value) const {
  require(aiacc_allreduce(&value, &value, 1, AIACC_FLOAT64, AIACC_SUM, AIACC_WORLD, nullptr, nullptr));
  return value;
}

std::vector<std::uint64_t> World::gather(std::uint64_t value) const {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size_));
  require(aiacc_allgather(&value, all.data(), 1, AIACC_UINT64, AIACC_WORLD, nullptr, nullptr));
  return all;
}

}  // namespace aiacc::tools
