#include "tools/perf/output.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/quantity.h"
#include "tools/perf/types.h"

namespace aiacc::tools {

namespace {

// A width of seven characters with as many digits as fit, so that columns of microseconds and seconds are aligned.
std::string number(double value) {
  if (value >= 1e7) return fmt::format("{:8.2e}", value);
  const int digits = value >= 10'000 ? 0 : value >= 1000 ? 1 : value >= 10 ? 2 : 3;
  return fmt::format("{:8.{}f}", value, digits);
}

std::string percent(double value) { return fmt::format("{:.{}f}", value, value < 1000 ? 1 : 0); }

std::string_view place_of(const Row& row) { return row.in_place ? "in" : "out"; }
std::string op_of(const Row& row) { return row.collective->reduces ? std::string(name_of(row.op)) : "none"; }
std::string root_of(const Row& row) { return row.collective->has_root ? std::to_string(row.root) : "-"; }
std::string type_of(const Row& row) { return row.count == 0 ? "-" : std::string(name_of(row.type)); }

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

constexpr const char* kLine =
    "{:<16} {:>14} {:>13} {:>8} {:>5} {:>4} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8} {:>16}\n";

template <class... Cells>
std::string line(const Cells&... cells) {
  return fmt::format(fmt::runtime(kLine), cells...);
}

}  // namespace

std::string count_of_ranks(int ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

std::string setup_text(const World& world, const PerfOptions& options, const std::optional<MemoryBandwidth>& memory) {
  std::string text = fmt::format(
      "# aiacc-perf {}: {}, {}; {} buffers, {}; warm-up {} calls, then {}\n", aiacc_version(),
      count_of_ranks(world.size()), world.one_host() ? "one host" : fmt::format("{} on this host", world.local_size()),
      options.cold ? "cold" : "hot", options.shared_memory ? "of aiacc_mem_alloc" : "private", options.warmup_calls,
      options.calls > 0 ? std::to_string(options.calls) : "0.1 s of them");
  if (memory) {
    text += fmt::format(
        "# memory: copy {:.1f} GB/s, triad {:.1f} GB/s read and written by {} at once, arrays of {} each, best "
        "of {} passes\n",
        memory->copy_gbs, memory->triad_gbs, count_of_ranks(world.size()), text_of_bytes(memory->array_bytes),
        MemoryBandwidth::kPasses);
    text +=
        "# bound: what must be read and written at least, in percent of the better of these; caches can give more\n";
  } else if (options.bound) {
    text += "# bound: none, the ranks are on several hosts\n";
  }
  return text;
}

std::string heading_text() {
  return line("# collective", "size", "count", "type", "redop", "root", "place", "time", "p50", "p99", "algbw", "busbw",
              "bound", "#wrong", "hash") +
         line("#", "(B)", "(elements)", "", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "(%)", "",
              "of all ranks");
}

std::string row_text(const Row& row) {
  const bool moves = row.count > 0;
  return line("  " + std::string(row.collective->name), moves ? std::to_string(row.bytes) : "-",
              moves ? std::to_string(row.count) : "-", type_of(row), op_of(row), root_of(row), place_of(row),
              number(row.time_us), number(row.p50_us), number(row.p99_us), moves ? number(row.alg_gbs) : "-",
              moves ? number(row.bus_gbs) : "-", row.bound_percent ? percent(*row.bound_percent) : "-",
              row.wrong ? std::to_string(*row.wrong) : "N/A", row.hash ? hash_text(*row.hash) : "-");
}

std::uint64_t all_wrong(const std::vector<Row>& rows) {
  std::uint64_t wrong = 0;
  for (const Row& row : rows) wrong += row.wrong.value_or(0);
  return wrong;
}

std::string summary_text(const std::vector<Row>& rows, const PerfOptions& options) {
  double sum = 0;
  int count = 0;
  for (const Row& row : rows) {
    if (row.count == 0) continue;
    sum += row.bus_gbs;
    ++count;
  }
  std::string text;
  if (options.check)
    text += fmt::format("# wrong elements    : {} {}\n", all_wrong(rows), all_wrong(rows) == 0 ? "OK" : "FAILED");
  if (count > 0) text += fmt::format("# avg bus bandwidth : {:.4g} GB/s\n", sum / count);
  return text;
}

std::string setup_json(const World& world, const PerfOptions& options, const std::optional<MemoryBandwidth>& memory) {
  Json bandwidth;
  if (memory) {
    bandwidth = Json::Object{{"copy_gbs", memory->copy_gbs},
                             {"triad_gbs", memory->triad_gbs},
                             {"array_bytes", memory->array_bytes},
                             {"passes", MemoryBandwidth::kPasses}};
  }
  return Json(Json::Object{{"kind", "setup"},
                           {"version", aiacc_version()},
                           {"ranks", world.size()},
                           {"local_ranks", world.local_size()},
                           {"buffers", options.cold ? "cold" : "hot"},
                           {"memory", options.shared_memory ? "shared" : "private"},
                           {"warmup_calls", options.warmup_calls},
                           {"bandwidth", bandwidth}})
             .text() +
         "\n";
}

std::string row_json(const Row& row) {
  const bool moves = row.count > 0;
  return Json(Json::Object{{"kind", "row"},
                           {"collective", row.collective->name},
                           {"bytes", row.bytes},
                           {"count", row.count},
                           {"type", moves ? Json(name_of(row.type)) : Json()},
                           {"op", row.collective->reduces ? Json(name_of(row.op)) : Json()},
                           {"root", row.collective->has_root ? Json(row.root) : Json()},
                           {"place", place_of(row)},
                           {"calls", row.calls},
                           {"time_us", row.time_us},
                           {"p50_us", row.p50_us},
                           {"p99_us", row.p99_us},
                           {"algbw_gbs", moves ? Json(row.alg_gbs) : Json()},
                           {"busbw_gbs", moves ? Json(row.bus_gbs) : Json()},
                           {"bound_percent", row.bound_percent ? Json(*row.bound_percent) : Json()},
                           {"wrong", row.wrong ? Json(*row.wrong) : Json()},
                           {"hash", row.hash ? Json(hash_text(*row.hash)) : Json()}})
             .text() +
         "\n";
}

}  // namespace aiacc::tools
