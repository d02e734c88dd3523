// RuntimeConfig: the settings of one context, read once from the environment when it is created. base/config_table.cc
// has names, ranges and help.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/io/stream_range.h"
#include "base/io/traffic_marks.h"
#include "base/time.h"
#include "collectives/inter/algorithm_rules.h"

namespace aiacc {

struct RuntimeConfig {
  Duration init_timeout = std::chrono::seconds(300);  // AIACC_INIT_TIMEOUT
  Duration timeout = std::chrono::seconds(1800);      // AIACC_TIMEOUT, of an operation that names no time of its own
  Duration late_after = std::chrono::seconds(60);     // AIACC_LATE_AFTER, until an operation says for whom it waits
  Duration lease = std::chrono::seconds(30);          // AIACC_LEASE, that a host may be silent
  Duration path_timeout = std::chrono::seconds(120);  // AIACC_PATH_TIMEOUT, that a path in use may be broken
  Duration failback = std::chrono::seconds(5);        // AIACC_FAILBACK, until a broken path is tried again
  Duration spin = std::chrono::microseconds(2);       // AIACC_SPIN
  Duration yield = std::chrono::microseconds(300);    // AIACC_YIELD
  std::uint64_t slice_bytes = 0;                      // AIACC_SLICE_BYTES, of local worlds; 0: what the host has
  Network network = Network::kAuto;                   // AIACC_TRANSPORT
  std::vector<std::string> ucx;                       // AIACC_UCX_*: "UCX_TLS=tcp"
  std::vector<std::string> ofi;                       // AIACC_FI_*, AIACC_OFI_PROVIDER: "OFI_PROVIDER=shm"
  inter::AlgorithmRules algorithms;                   // AIACC_ALGORITHM
  std::string algorithm_table;                        // AIACC_ALGORITHM_TABLE
  std::string tcp_streams_text = "1";                 // AIACC_TCP_STREAMS, as it was given
  std::string tcp_congestion = "auto";                // AIACC_TCP_CONGESTION
  io::StreamRange tcp_streams{};                      // AIACC_TCP_STREAMS
  std::array<io::TrafficMarks, 4> marks{};            // AIACC_TC_CTRL, _LAT, _BULK and _BG
  Encryption encryption = Encryption::kNone;          // AIACC_ENCRYPT
  bool plain_on_purpose = true;                       // "none" was set explicitly, so it needs no warning
  std::string records;                                // AIACC_RECORDS
  std::string timeline;                               // AIACC_TIMELINE
  bool horovod_timeline = false;                      // it was set by HOROVOD_TIMELINE
  std::string metrics;                                // AIACC_METRICS
  std::uint64_t fusion_bytes = 8 << 20;               // AIACC_FUSION_BYTES
  int fusion_streams = 4;                             // AIACC_FUSION_STREAMS
  int schedule_steps = 5;                             // AIACC_SCHEDULE_STEPS; -1: no schedule
  WireType allreduce_dtype = WireType::kFloat32;      // AIACC_ALLREDUCE_DTYPE
  int kv_servers = 0;                                 // AIACC_KV_SERVERS
  bool nan_check = false;                             // AIACC_NAN_CHECK
  bool tune = false;                                  // AIACC_TUNE
  std::string tune_cache;                             // AIACC_TUNE_CACHE; empty: none
  LogLevels log;                                      // AIACC_LOG
  bool elastic = false;                               // AIACC_MAX_SIZE is set: worlds follow each other

  using Variable = std::function<std::optional<std::string>(const std::string& name)>;
  // `variable`: of the environment, for those that are not aiacc's.
  static RuntimeConfig from(const Config& settings, const Variable& variable = {});
};

}  // namespace aiacc
