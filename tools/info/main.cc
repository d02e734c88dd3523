// aiacc-info: prints the report of aiacc_info (aiacc.h) about library, host and settings.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/whole_file.h"
#include "include/aiacc/aiacc.h"
#include "tools/info/algorithms.h"
#include "tools/info/options.h"
#include "tools/info/text.h"

namespace {

using namespace aiacc;
using namespace aiacc::tools;

enum ExitCode { kFine = 0, kHurts = 1, kUsage = 2, kNoReport = 3 };

std::string whole_report() {
  std::string text;
  std::size_t needed = 4096;
  do {  // the report may have grown since its size was returned
    text.resize(needed);
    if (aiacc_info(text.data(), text.size(), &needed) != AIACC_OK) throw Error(Code::kInternal, aiacc_last_error());
  } while (needed > text.size());
  text.resize(needed - 1);
  return text;
}

int print(const std::string& text, int code) {
  print_whole(text);
  return code;
}

int run(const InfoOptions& options) {
  using Action = InfoOptions::Action;
  if (options.action == Action::kHelp) return print(info_help(), kFine);
  if (options.action == Action::kVersion) return print(fmt::format("aiacc-info (aiacc) {}\n", aiacc_version()), kFine);
  if (options.action == Action::kAlgorithms) {
    const AlgorithmsReport report(options);
    return print(options.json ? report.json().text() + "\n" : report.text(), kFine);
  }
  const std::string text = whole_report();
  const Json report = Json::parse(text);
  if (options.action == Action::kDoctor) {
    const int code = count_hurts(report) > 0 ? kHurts : kFine;
    return print(options.json ? report["findings"].text() + "\n" : doctor_text(report), code);
  }
  if (options.action == Action::kQos) {
    return print(options.json ? report["qos"].text() + "\n" : qos_text(report), kFine);
  }
  return print(options.json ? text + "\n" : report_text(report), kFine);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse_info_options({argv + (argc > 0 ? 1 : 0), argv + argc}));
  } catch (const Error& error) {
    std::fputs(fmt::format("aiacc-info: {}\n", error.message()).c_str(), stderr);
    return error.code() == Code::kInvalidArgument ? kUsage : kNoReport;
  }
}
