// aiacc-tune: measures the algorithms between the hosts of a job, and writes the table of the fastest.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/whole_file.h"
#include "collectives/inter/algorithms.h"
#include "include/aiacc/aiacc.h"
#include "tools/perf/world.h"
#include "tools/tune/measure.h"

namespace {

using namespace aiacc;
using namespace aiacc::tools;

enum ExitCode { kFine = 0, kUsage = 2, kFailed = 3 };

int complain(const std::string& sentence, int code) {
  std::fputs(fmt::format("aiacc-tune: {}\n", sentence).c_str(), stderr);
  return code;
}

// A value of the present settings, as a user would write it.
std::string setting(std::string_view name) {
  const Config config = Config::read(process_environment());
  for (const ConfigRow& row : config_table()) {
    if (row.name == name) return config.text(row);
  }
  return {};
}

inter::AlgorithmTable::Conditions conditions_of(const TunePlace& place) {
  return {.hosts = place.host_names,
          .transport = place.transport,
          .streams = setting("AIACC_TCP_STREAMS"),
          .encryption = setting("AIACC_ENCRYPT")};
}

// One line for a shape: the median time of each algorithm in microseconds, and which is chosen.
std::string line_of(const inter::TimedShape& timed) {
  std::vector<std::string> times;
  for (const inter::AlgorithmTiming& timing : timed.timings) {
    const double us = inter::median_of(timing.rounds_us);
    times.push_back(fmt::format("{} {:.{}f}", timing.algorithm->name, us, us < 100 ? 1 : 0));
  }
  const inter::AlgorithmInfo* const faster = inter::faster_than_usual(timed);
  const std::string choice = faster != nullptr ? fmt::format("{} is faster", faster->name)
                                               : fmt::format("{} stays", inter::usual_algorithm(timed.shape).name);
  return fmt::format("{} of {}{} between {} hosts: {} us; {}", inter::name_of(timed.shape.kind),
                     text_of_bytes(timed.shape.bytes), timed.shape.narrows ? " in 16 bits" : "", timed.shape.ranks,
                     fmt::join(times, ", "), choice);
}

// The whole text of the file: the table, and behind its first line what was measured, as remarks.
std::string file_text(const inter::AlgorithmTable& table, const std::vector<inter::TimedShape>& shapes) {
  const std::string text = table.text();
  const std::size_t first = text.find('\n') + 1;
  std::string remarks;
  for (const inter::TimedShape& timed : shapes) remarks += fmt::format("# {}\n", line_of(timed));
  const bool fits = text.size() + remarks.size() <= inter::AlgorithmTable::kMostBytes;
  return text.substr(0, first) + (fits ? remarks : "") + text.substr(first);
}

int measure(const TunePlace& place, const TuneOptions& options) {
  const bool first = place.rank == 0;
  const auto progress = [&](const std::string& text) {
    if (first && isatty(STDERR_FILENO) == 1) std::fputs(fmt::format("aiacc-tune: {}\n", text).c_str(), stderr);
  };
  const std::vector<inter::TimedShape> shapes = measure_algorithms(place, options, progress);
  if (!first) return kFine;
  const inter::AlgorithmTable table(conditions_of(place), inter::choices_of(shapes, options.factor));
  const std::string text = file_text(table, shapes);
  inter::AlgorithmTable::parse("the table", text);  // what is written can be read
  if (const int error = write_whole_file(options.file, text)) {
    return complain(system_error(fmt::format("cannot write {}", options.file), error).message(), kFailed);
  }
  // Behind the file, which costs minutes.
  for (const inter::TimedShape& timed : shapes) print_whole(line_of(timed) + "\n");
  print_whole(fmt::format("{} is written; use it by AIACC_ALGORITHM_TABLE={}\n", options.file, options.file));
  return kFine;
}

// Before minutes of measuring. The result is an exit code; rank 0 says why.
int check(const TunePlace& place, const TuneOptions& options) {
  if (place.rank != 0) return kFine;
  if (place.hosts < 2)
    return complain("all ranks are on one host; give two hosts or more (aiaccrun -H a:1,b:1)", kUsage);
  if (place.most_on_a_host > 1) {
    return complain(fmt::format("a host has {} ranks; give each host one (aiaccrun -H a:1,b:1)", place.most_on_a_host),
                    kUsage);
  }
  const int most = options.hosts.empty() ? 0 : *std::max_element(options.hosts.begin(), options.hosts.end());
  if (most > place.hosts) {
    return complain(fmt::format("--hosts has {}, and the job has {} hosts", most, place.hosts), kUsage);
  }
  if (const int error = check_writable(options.file)) {
    return complain(system_error(fmt::format("cannot write {}", options.file), error).message(), kFailed);
  }
  return kFine;
}

int run(const TuneOptions& options) {
  TunePlace place;
  const int code = find_place(place, [&](const TunePlace& found) { return check(found, options); });
  return code == kFine ? measure(place, options) : code;
}

// All ranks read the same command line: one says so, and all leave after that.
template <class Say>
int say_once(Say say) {
  World world;
  const int code = say(world.rank() == 0);
  world.finalize();
  return code;
}

int run(const std::vector<std::string>& arguments) {
  TuneOptions options;
  try {
    options = parse_tune_options(arguments);
  } catch (const Error& error) {
    return say_once([&](bool mine) { return mine ? complain(error.message(), kUsage) : kUsage; });
  }
  if (options.action == TuneOptions::Action::kMeasure) return run(options);
  const bool help = options.action == TuneOptions::Action::kHelp;
  return say_once([&](bool mine) {
    if (mine) print_whole(help ? tune_help() : fmt::format("aiacc-tune (aiacc) {}\n", aiacc_version()));
    return static_cast<int>(kFine);
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>{argv + (argc > 0 ? 1 : 0), argv + argc});
  } catch (const CallError& error) {
    // The rank with the original error reports it; ranks that were aborted because of it do not repeat it.
    return error.status() == AIACC_ERR_ABORTED ? kFailed : complain(error.what(), kFailed);
  } catch (const Error& error) {
    return complain(error.message(), error.code() == Code::kInvalidArgument ? kUsage : kFailed);
  } catch (const std::exception& error) {
    return complain(error.what(), kFailed);
  }
}
