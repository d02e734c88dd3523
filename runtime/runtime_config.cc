#include "runtime/runtime_config.h"

namespace aiacc {

RuntimeConfig RuntimeConfig::from(const Config& settings) {
  const ConfigValues& values = *settings;
  RuntimeConfig config;
  config.init_timeout = values.init_timeout;
  config.timeout = values.timeout;
  config.late_after = values.late_after;
  config.lease = values.lease;
  config.path_timeout = values.path_timeout;
  config.spin = values.spin;
  config.slice_bytes = values.slice_bytes;
  config.tcp_congestion = values.tcp_congestion;
  config.tcp_streams = static_cast<int>(values.tcp_streams.value_or(config.tcp_streams));
  config.encryption = values.encrypt;
  config.plain_on_purpose = settings.origin("AIACC_ENCRYPT") != Config::Origin::kDefault;
  config.log = values.log;
  config.records = values.records;
  config.fusion_bytes = values.fusion_bytes;
  config.fusion_streams = static_cast<int>(values.fusion_streams.value_or(config.fusion_streams));
  config.schedule_steps = static_cast<int>(values.schedule_steps.value_or(config.schedule_steps));
  config.allreduce_dtype = values.allreduce_dtype;
  config.nan_check = values.nan_check;
  if (config.schedule_steps == 0) config.schedule_steps = -1;
  return config;
}

}  // namespace aiacc
