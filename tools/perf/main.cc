// aiacc-perf: measures the collectives of aiacc.h between the ranks of a job.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "base/whole_file.h"
#include "tools/perf/classes.h"
#include "tools/perf/measure.h"
#include "tools/perf/output.h"
#include "tools/perf/plot.h"
#include "tools/perf/types.h"
#include "tools/perf/user_op.h"

namespace {

using namespace aiacc;
using namespace aiacc::tools;

enum ExitCode { kFine = 0, kWrong = 1, kUsage = 2, kFailed = 3 };

int complain(int rank, const std::string& sentence, int code) {
  std::fputs(rank < 0 ? fmt::format("aiacc-perf: {}\n", sentence).c_str()
                      : fmt::format("aiacc-perf: rank {}: {}\n", rank, sentence).c_str(),
             stderr);
  return code;
}

// A progress line that overwrites itself on a terminal. If the terminal is aiaccrun's, the line goes to standard output
// like the rows, so that their order is kept.
class Progress {
 public:
  explicit Progress(bool here) {
    if (!here) return;
    if (isatty(STDERR_FILENO) == 1) {
      on_ = stderr;
    } else if (Config::read(process_environment())->terminal) {
      on_ = stdout;
    }
  }
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const std::string& text) const {
    if (on_ == nullptr) return;
    std::fputs(fmt::format("\r\033[K{}", text).c_str(), on_);
    std::fflush(on_);
  }
  void clear() const { show(""); }

 private:
  std::FILE* on_ = nullptr;
};

struct Case {
  const Collective* collective;
  aiacc_dtype_t type;
  aiacc_op_t op;
  std::uint64_t bytes;
  bool in_place;
};

std::vector<Case> cases_of(const PerfOptions& options) {
  std::vector<Case> cases;
  for (const Collective* collective : options.collectives) {
    const bool moves = collective->result != Collective::Result::kNothing;
    for (const aiacc_dtype_t type : moves ? options.types : std::vector{options.types[0]}) {
      for (const aiacc_op_t op : collective->reduces ? options.ops : std::vector{options.ops[0]}) {
        const bool of_records = collective->reduces && op == kUserOp;
        if (collective->reduces && !supports(op, type)) continue;
        if (of_records && type != options.types[0]) continue;
        const aiacc_dtype_t element = of_records ? AIACC_RECORD : type;
        for (const std::uint64_t bytes : moves ? options.sizes() : std::vector{options.first_bytes}) {
          // A collective that can be measured only in place, or only out of place, is measured so whatever was
          // requested.
          const bool both = collective->out_of_place && collective->in_place;
          if (collective->out_of_place && (options.out_of_place || !both))
            cases.push_back({collective, element, op, bytes, false});
          if (collective->in_place && (options.in_place || !both))
            cases.push_back({collective, element, op, bytes, true});
        }
      }
    }
  }
  return cases;
}

// The file of the plot, which rank 0 writes. Rank 0 checks before the measurement that it can write it, so that a bad
// name is not reported minutes later; an existing file stays until the plot is complete. The other ranks get the result
// of the check and leave in order with rank 0.
class Picture {
 public:
  Picture(const World& world, const std::string& path) : mine_(world.rank() == 0 && !path.empty()), path_(path) {
    if (mine_) code_ = exit_code(check_writable(path), kFine);
    if (!path.empty()) usable_ = world.sum(code_) == 0;
  }
  bool usable() const { return usable_; }

  // Returns `code`, or the exit code of a failure to write.
  int draw(const PerfOptions& options, const std::vector<Row>& rows, const World& world, int code) {
    if (!mine_) return code;
    const std::string title =
        fmt::format("{}{}, {} {} buffers", count_of_ranks(world.size()), world.one_host() ? " on one host" : "",
                    options.cold ? "cold" : "hot", options.shared_memory ? "shared" : "private");
    return exit_code(write_whole_file(path_, plot_svg(rows, title)), code);
  }

 private:
  int exit_code(int error, int code) const {
    if (error == 0) return code;
    return complain(-1, system_error(fmt::format("cannot write the picture {}", path_), error).message(), kFailed);
  }
  const bool mine_;
  const std::string path_;
  int code_ = kFine;
  bool usable_ = true;
};

int measure(World& world, const PerfOptions& options) {
  if (options.root >= world.size()) {
    throw Error(Code::kInvalidArgument, fmt::format("-r {}: the ranks are 0 to {}", options.root, world.size() - 1));
  }
  Picture picture(world, options.plot);
  if (!picture.usable()) {
    world.finalize();
    return kFailed;
  }
  const bool first = world.rank() == 0;
  const Progress progress(first);
  progress.show("measuring the memory");
  std::optional<MemoryBandwidth> memory;
  if (options.bound && world.one_host()) memory = measure_memory(world);
  progress.clear();
  if (first)
    print_whole(options.json ? setup_json(world, options, memory)
                             : setup_text(world, options, memory) + heading_text());

  std::vector<Row> rows;
  {
    Bench bench(world, options, memory);
    const std::vector<Case> cases = cases_of(options);
    for (const Case& one : cases) {
      progress.show(
          fmt::format("{} of {}: {} {} bytes", rows.size() + 1, cases.size(), one.collective->name, one.bytes));
      rows.push_back(bench.measure(*one.collective, one.type, one.op, one.bytes, one.in_place));
      progress.clear();
      if (first) print_whole(options.json ? row_json(rows.back()) : row_text(rows.back()));
    }
    world.barrier();  // no rank reads another one's buffer any more
  }
  if (first && !options.json) print_whole(summary_text(rows, options));
  const int code = picture.draw(options, rows, world, all_wrong(rows) == 0 ? kFine : kWrong);
  world.finalize();
  return code;
}

int measure_both_classes(World& world, const PerfOptions& options) {
  const Progress progress(world.rank() == 0);
  progress.show("measuring the classes");
  const std::vector<ClassRow> rows = measure_classes(world, options);
  progress.clear();
  if (world.rank() == 0) print_whole(options.json ? classes_json(rows) : classes_text(world, rows));
  world.finalize();
  const bool wrong = std::any_of(rows.begin(), rows.end(), [](const ClassRow& row) { return row.wrong > 0; });
  return wrong ? kWrong : kFine;
}

int run(World& world, const std::vector<std::string>& arguments) {
  const PerfOptions options = parse_perf_options(arguments);
  if (options.action == PerfOptions::Action::kMeasure) {
    return options.classes ? measure_both_classes(world, options) : measure(world, options);
  }
  const bool help = options.action == PerfOptions::Action::kHelp;
  if (world.rank() == 0) print_whole(help ? perf_help() : fmt::format("aiacc-perf (aiacc) {}\n", aiacc_version()));
  world.finalize();
  return kFine;
}

}  // namespace

int main(int argc, char** argv) {
  int rank = -1;
  try {
    World world;
    rank = world.rank();
    try {
      return run(world, {argv + (argc > 0 ? 1 : 0), argv + argc});
    } catch (const Error& error) {
      // All ranks read the same command line: only one reports its error.
      if (error.code() != Code::kInvalidArgument) throw;
      if (rank == 0) complain(-1, error.message(), kUsage);
      world.finalize();
      return kUsage;
    }
  } catch (const CallError& error) {
    // The rank with the original error reports it; ranks that were aborted because of it do not repeat it.
    return error.status() == AIACC_ERR_ABORTED && rank > 0 ? kFailed : complain(rank, error.what(), kFailed);
  } catch (const std::exception& error) {
    return complain(rank, error.what(), kFailed);
  }
}
