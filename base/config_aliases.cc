#include "base/config_aliases.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/quantity.h"

namespace aiacc {
namespace {

using Text = std::optional<std::string>;

constexpr std::string_view kNever = "30d";  // the longest time that settings take

// Horovod only merges by this size, and aiacc also cuts by it: small ones, as 0 for no merging, would be slow.
Text fusion(std::string_view text) {
  const auto bytes = parse_integer(text);
  return bytes && *bytes >= 65536 ? Text(text) : std::nullopt;
}

Text seconds_or_never(std::string_view text) {
  const auto count = parse_integer(text);
  if (!count || *count < 0 || *count > 30 * 86400) return std::nullopt;
  return *count == 0 ? std::string(kNever) : fmt::format("{}s", *count);
}

Text never_if_set(std::string_view text) {
  const auto set = parse_flag(text);
  if (!set) return std::nullopt;
  return std::string(*set ? kNever : "");
}

Text yes_or_no(std::string_view text) {
  if (text == "0") return "no";
  return text == "1" ? Text("yes") : std::nullopt;
}

Text no_if_set(std::string_view text) {
  const auto set = parse_flag(text);
  if (!set) return std::nullopt;
  return std::string(*set ? "no" : "");
}

Text log_level(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kLevels{{{"trace", "trace"},
                                                                                  {"debug", "debug"},
                                                                                  {"info", "info"},
                                                                                  {"warning", "warn"},
                                                                                  {"error", "error"},
                                                                                  {"fatal", "error"}}};
  std::string small(text);
  for (char& one : small) one = one >= 'A' && one <= 'Z' ? static_cast<char>(one - 'A' + 'a') : one;
  for (const auto& [theirs, ours] : kLevels) {
    if (small == theirs) return std::string(ours);
  }
  return std::nullopt;
}

Text wire_precision(std::string_view text) {
  constexpr std::array<std::string_view, 3> kNames{"fp16", "fp32", "mixed"};
  const auto number = parse_integer(text);
  if (!number || *number < 0 || *number > 2) return std::nullopt;
  return std::string(kNames[static_cast<std::size_t>(*number)]);
}

Text streams(std::string_view text) {
  const auto count = parse_integer(text);
  return count && *count >= 1 && *count <= 64 ? Text(text) : std::nullopt;
}

// "DYNAMIC" only allows start_timeline().
Text timeline(std::string_view text) { return std::string(text == "DYNAMIC" ? "" : text); }

constexpr std::array kAliases{
    // name, setting, translation, example, help
    ConfigAlias{"HOROVOD_FUSION_THRESHOLD", "AIACC_FUSION_BYTES", fusion, "67108864",
                "Sizes below 64K, and 0 for no fusion, have no effect."},
    ConfigAlias{"HOROVOD_TIMELINE", "AIACC_TIMELINE", timeline, "/tmp/timeline.json",
                "Spans then have Horovod's names."},
    ConfigAlias{"HOROVOD_TIMELINE_MARK_CYCLES", "", nullptr, "",
                "Rounds of negotiation are always in the timeline, as CYCLE_START."},
    ConfigAlias{"HOROVOD_STALL_CHECK_TIME_SECONDS", "AIACC_LATE_AFTER", seconds_or_never, "60", "0 is never."},
    ConfigAlias{"HOROVOD_STALL_CHECK_DISABLE", "AIACC_LATE_AFTER", never_if_set, "1", "1 is never."},
    ConfigAlias{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "AIACC_TIMEOUT", seconds_or_never, "120", "0 is never."},
    ConfigAlias{"HOROVOD_START_TIMEOUT", "AIACC_INIT_TIMEOUT", seconds_or_never, "30", ""},
    ConfigAlias{"HOROVOD_LOG_LEVEL", "AIACC_LOG", log_level, "WARNING", "Fatal is error."},
    ConfigAlias{"HOROVOD_CYCLE_TIME", "", nullptr, "", "aiacc negotiates when gradients are ready, and not in cycles."},
    ConfigAlias{"HOROVOD_CACHE_CAPACITY", "", nullptr, "",
                "aiacc has no cache of responses; see AIACC_SCHEDULE_STEPS."},
    ConfigAlias{"HOROVOD_AUTOTUNE", "AIACC_TUNE", yes_or_no, "1", "0 is no, 1 is yes."},
    ConfigAlias{"HOROVOD_AUTOTUNE_LOG", "", nullptr, "", "AIACC_LOG=info has what AIACC_TUNE finds."},
    ConfigAlias{"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "", nullptr, "", "AIACC_TUNE has no samples to set."},
    ConfigAlias{"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "", nullptr, "", "AIACC_TUNE has no samples to set."},
    ConfigAlias{"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "", nullptr, "", "AIACC_TUNE has no samples to set."},
    ConfigAlias{"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "", nullptr, "", "AIACC_TUNE has no samples to set."},
    ConfigAlias{"HOROVOD_HIERARCHICAL_ALLREDUCE", "", nullptr, "", "aiacc chooses algorithms by itself."},
    ConfigAlias{"HOROVOD_HIERARCHICAL_ALLGATHER", "", nullptr, "", "aiacc chooses algorithms by itself."},
    ConfigAlias{"HOROVOD_TORUS_ALLREDUCE", "", nullptr, "", "aiacc chooses algorithms by itself."},
    ConfigAlias{"HOROVOD_THREAD_AFFINITY", "", nullptr, "", "aiaccrun binds ranks; see its option --bind-to."},
    ConfigAlias{"PERSEUS_ALLREDUCE_STREAMS", "AIACC_FUSION_STREAMS", streams, "6", ""},
    ConfigAlias{"PERSEUS_ALLREDUCE_DTYPE", "AIACC_ALLREDUCE_DTYPE", wire_precision, "2",
                "0 is fp16, 1 is fp32, 2 is mixed."},
    ConfigAlias{"PERSEUS_ALLREDUCE_NANCHECK", "AIACC_NAN_CHECK", yes_or_no, "1", "0 is no, 1 is yes."},
    ConfigAlias{"PERSEUS_ALLREDUCE_MODE", "", nullptr, "", "aiacc chooses algorithms by itself."},
    ConfigAlias{"PERSEUS_ALLREDUCE_DISABLE_STREAM_TUNING", "AIACC_TUNE", no_if_set, "1", "1 is no."},
    ConfigAlias{"PERSEUS_ALLREDUCE_FUSION", "", nullptr, "", "The size is AIACC_FUSION_BYTES."},
};

}  // namespace

std::span<const ConfigAlias> config_aliases() { return kAliases; }

std::string config_aliases_mdoc() {
  std::string page;
  for (const ConfigAlias& alias : config_aliases()) {
    page += fmt::format(".It Ev {}\n", alias.name);
    page += alias.setting.empty() ? "No effect.\n" : fmt::format("{}.\n", alias.setting);
    if (!alias.help.empty()) page += fmt::format("{}\n", alias.help);
  }
  return page;
}

}  // namespace aiacc
