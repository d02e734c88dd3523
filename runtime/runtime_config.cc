#include "runtime/runtime_config.h"

namespace aiacc {

RuntimeConfig RuntimeConfig::from(const ConfigValues& values) {
  RuntimeConfig config;
  config.init_timeout = values.init_timeout;
  config.timeout = values.timeout;
  config.late_after = values.late_after;
  config.lease = values.lease;
  config.spin = values.spin;
  config.slice_bytes = values.slice_bytes;
  config.tcp_congestion = values.tcp_congestion;
  config.encryption = values.encrypt;
  config.log = values.log;
  config.records = values.records;
  return config;
}

}  // namespace aiacc
