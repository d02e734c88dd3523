#include "runtime/runtime_config.h"

#include <fmt/format.h>

namespace aiacc {

namespace {

std::string cache_path(const std::string& given, const RuntimeConfig::Variable& variable) {
  if (given == "none") return {};
  if (!given.empty() || !variable) return given;
  const auto folder = variable("XDG_CACHE_HOME");
  if (folder && folder->starts_with('/')) return *folder + "/aiacc/tune";  // the standard ignores relative ones
  const auto home = variable("HOME");
  return home && home->starts_with('/') ? *home + "/.cache/aiacc/tune" : std::string();
}

}  // namespace

RuntimeConfig RuntimeConfig::from(const Config& settings, const Variable& variable) {
  const ConfigValues& values = *settings;
  RuntimeConfig config;
  config.init_timeout = values.init_timeout;
  config.timeout = values.timeout;
  config.late_after = values.late_after;
  config.lease = values.lease;
  config.path_timeout = values.path_timeout;
  config.failback = values.failback;
  config.spin = values.spin;
  config.yield = values.yield;
  config.slice_bytes = values.slice_bytes;
  config.network = values.network;
  config.ucx = settings.ucx_settings();
  config.ofi = settings.ofi_settings();
  config.algorithms = inter::AlgorithmRules::parse("AIACC_ALGORITHM", values.algorithm);
  config.algorithm_table = values.algorithm_table;
  config.tcp_streams_text = values.tcp_streams;
  config.tcp_congestion = values.tcp_congestion;
  config.tcp_streams = io::StreamRange::parse("AIACC_TCP_STREAMS", values.tcp_streams);
  config.marks = {
      io::TrafficMarks::parse("AIACC_TC_CTRL", values.tc_ctrl), io::TrafficMarks::parse("AIACC_TC_LAT", values.tc_lat),
      io::TrafficMarks::parse("AIACC_TC_BULK", values.tc_bulk), io::TrafficMarks::parse("AIACC_TC_BG", values.tc_bg)};
  if (config.marks[0].share || config.marks[0].delay) {
    throw Error(Code::kInvalidArgument,
                fmt::format("AIACC_TC_CTRL: '{}' is for the other classes; control goes before all of them",
                            config.marks[0].share ? "share" : "delay"));
  }
  config.encryption = values.encrypt;
  config.plain_on_purpose = settings.origin("AIACC_ENCRYPT") != Config::Origin::kDefault;
  config.log = values.log;
  config.elastic = values.max_size.has_value();
  config.records = values.records;
  config.timeline = values.timeline;
  config.horovod_timeline = settings.origin("AIACC_TIMELINE") == Config::Origin::kAlias;
  config.metrics = values.metrics;
  config.fusion_bytes = values.fusion_bytes;
  config.fusion_streams = static_cast<int>(values.fusion_streams.value_or(config.fusion_streams));
  config.schedule_steps = static_cast<int>(values.schedule_steps.value_or(config.schedule_steps));
  config.allreduce_dtype = values.allreduce_dtype;
  config.kv_servers = static_cast<int>(values.kv_servers.value_or(config.kv_servers));
  config.nan_check = values.nan_check;
  config.tune = values.tune;
  config.tune_cache = cache_path(values.tune_cache, variable);
  if (config.schedule_steps == 0) config.schedule_steps = -1;
  return config;
}

}  // namespace aiacc
