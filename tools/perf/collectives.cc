#include "tools/perf/collectives.h"

#include <array>
#include <string>

namespace aiacc::tools {

namespace {

using Holds = Collective::Holds;
using Result = Collective::Result;
constexpr auto kNothing = Holds::kNothing;
constexpr auto kOne = Holds::kOne;
constexpr auto kAll = Holds::kAll;

aiacc_status_t allreduce(const CallShape& c) {
  return aiacc_allreduce(c.send, c.recv, c.count, c.type, c.handle, c.group, nullptr, nullptr);
}
aiacc_status_t reduce(const CallShape& c) {
  return aiacc_reduce(c.send, c.recv, c.count, c.type, c.handle, c.root, c.group, nullptr, nullptr);
}
aiacc_status_t broadcast(const CallShape& c) {
  return aiacc_broadcast(c.recv, c.count, c.type, c.root, c.group, nullptr, nullptr);
}
aiacc_status_t allgather(const CallShape& c) {
  return aiacc_allgather(c.send, c.recv, c.count, c.type, c.group, nullptr, nullptr);
}
aiacc_status_t reduce_scatter(const CallShape& c) {
  return aiacc_reduce_scatter(c.send, c.recv, c.count, c.type, c.handle, c.group, nullptr, nullptr);
}
aiacc_status_t alltoall(const CallShape& c) {
  return aiacc_alltoall(c.send, c.recv, c.count, c.type, c.group, nullptr, nullptr);
}
aiacc_status_t gather(const CallShape& c) {
  return aiacc_gather(c.send, c.recv, c.count, c.type, c.root, c.group, nullptr, nullptr);
}
aiacc_status_t scatter(const CallShape& c) {
  return aiacc_scatter(c.send, c.recv, c.count, c.type, c.root, c.group, nullptr, nullptr);
}
aiacc_status_t barrier(const CallShape& c) { return aiacc_barrier(c.group, nullptr, nullptr); }

// A ring: sends to the next rank and receives from the previous one.
aiacc_status_t sendrecv(const CallShape& c) {
  const int next = (c.rank + 1) % c.size;
  const int before = (c.rank + c.size - 1) % c.size;
  return aiacc_sendrecv(c.send, c.count, next, 0, c.recv, c.count, before, 0, c.type, c.group, nullptr, nullptr);
}

double one(double) { return 1; }
double none(double) { return 0; }
double both_ways(double n) { return 2 * (n - 1) / n; }
double all_but_own(double n) { return (n - 1) / n; }

double all_of_each(double n, bool) { return 2 * n; }     // n inputs, n outputs
double inputs_and_one(double n, bool) { return n + 1; }  // n inputs, and one vector in total
double one_and_outputs(double n, bool in_place) { return in_place ? n : n + 1; }
double one_to_others(double n, bool) { return n; }  // 1 input, n - 1 outputs
double but_own_blocks(double n, bool in_place) { return in_place ? 2 * n - 2 : 2 * n; }
double there_and_back(double n, bool in_place) { return in_place ? 2 * (n - 1) / n : 2; }  // a vector, in blocks
double nothing(double, bool) { return 0; }

constexpr std::array kTable = {
    // name, call, send, recv, recv at root, reduces, root, out, in, result, bus factor, traffic
    Collective{"allreduce", allreduce, kOne, kOne, false, true, false, true, true, Result::kReduced, both_ways,
               all_of_each},
    Collective{"reduce", reduce, kOne, kOne, true, true, true, true, true, Result::kReduced, one, inputs_and_one},
    Collective{"broadcast", broadcast, kNothing, kOne, false, false, true, false, true, Result::kOfRoot, one,
               one_to_others},
    Collective{"allgather", allgather, kOne, kAll, false, false, false, true, true, Result::kAllBlocks, all_but_own,
               one_and_outputs},
    Collective{"reduce_scatter", reduce_scatter, kAll, kOne, false, true, false, true, true, Result::kReducedBlock,
               all_but_own, inputs_and_one},
    Collective{"alltoall", alltoall, kAll, kAll, false, false, false, true, true, Result::kExchanged, all_but_own,
               but_own_blocks},
    Collective{"gather", gather, kOne, kAll, true, false, true, true, true, Result::kAllBlocks, all_but_own,
               there_and_back},
    Collective{"scatter", scatter, kAll, kOne, false, false, true, true, true, Result::kBlockOfRoot, all_but_own,
               there_and_back},
    Collective{"sendrecv", sendrecv, kOne, kOne, false, false, false, true, false, Result::kOfNeighbour, one,
               all_of_each},
    Collective{"barrier", barrier, kNothing, kNothing, false, false, false, false, true, Result::kNothing, none,
               nothing},
};

// "allreduce" for "all_reduce_perf", "all-reduce" and "allreduce".
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c != '_' && c != '-') letters += c;
  }
  if (letters.ends_with("perf")) letters.resize(letters.size() - 4);
  return letters;
}

}  // namespace

std::span<const Collective> collectives() noexcept { return kTable; }

const Collective* find_collective(std::string_view name) {
  const std::string wanted = letters_of(name);
  for (const Collective& one : kTable) {
    if (letters_of(one.name) == wanted) return &one;
  }
  return nullptr;
}

}  // namespace aiacc::tools
