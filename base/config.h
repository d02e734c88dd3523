// The settings by AIACC_* variables, in one table (base/config_table.cc): name, type, range, default, help. The parser,
// the messages about bad values, and the list in aiacc-env(7) come from it.
//
// A Config is read once, from a given environment, and never changes. No other code reads AIACC_* variables.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/log_levels.h"
#include "base/time.h"

namespace aiacc {

// The protection of messages between ranks of different hosts.
enum class Encryption : std::uint8_t { kNone, kIntegrity, kData };

// The network between hosts. kAuto: UCX where all ranks have an RDMA device, libfabric where they have EFA, else TCP.
enum class Network : std::uint8_t { kAuto, kTcp, kUcx, kOfi };

// In what the elements of fp32 gradients travel. kMixed: in 16 bits where that saves much, and else as they are.
enum class WireType : std::uint8_t { kFloat32, kFloat16, kBFloat16, kMixed };

// The values, each set by the variable with its name. The table explains them.
struct ConfigValues {
  std::string agent;
  std::string rendezvous;
  std::string secret_file;
  std::string job;
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> size;
  std::optional<std::int64_t> local_rank;
  std::optional<std::int64_t> local_size;
  std::optional<std::int64_t> host_index;
  std::optional<std::int64_t> min_size;
  std::optional<std::int64_t> max_size;
  bool new_hosts = false;
  bool terminal = false;
  bool singleton = false;
  Duration init_timeout{};
  Duration timeout{};
  Duration late_after{};
  Duration lease{};
  Duration path_timeout{};
  Duration failback{};
  LogLevels log;
  std::string records;
  std::string timeline;
  std::string metrics;
  std::string library;
  std::string torch_shim;
  Duration spin{};
  Duration yield{};
  Network network = Network::kAuto;
  std::string ucx_tls;
  std::string ucx_net_devices;
  std::string ofi_provider;
  std::string algorithm;
  std::string algorithm_table;
  std::string tcp_congestion;
  std::string tcp_streams;
  std::string tc_ctrl;
  std::string tc_lat;
  std::string tc_bulk;
  std::string tc_bg;
  Encryption encrypt = Encryption::kNone;
  std::uint64_t slice_bytes = 0;
  std::uint64_t fusion_bytes = 0;
  std::optional<std::int64_t> fusion_streams;
  std::optional<std::int64_t> schedule_steps;
  WireType allreduce_dtype = WireType::kFloat32;
  std::optional<std::int64_t> kv_servers;
  std::optional<std::int64_t> kv_replicas;
  bool nan_check = false;
  bool tune = false;
  std::string tune_cache;
};

struct ConfigRow {
  // The member that the row sets. Its type determines the parser: text, an optional whole number, yes or no, a time,
  // log levels, bytes, protection, network, wire type.
  using Target =
      std::variant<std::string ConfigValues::*, std::optional<std::int64_t> ConfigValues::*, bool ConfigValues::*,
                   Duration ConfigValues::*, LogLevels ConfigValues::*, std::uint64_t ConfigValues::*,
                   Encryption ConfigValues::*, Network ConfigValues::*, WireType ConfigValues::*>;
  enum class SetBy : std::uint8_t { kUser, kLauncher };

  std::string_view name;
  Target target;
  std::string_view standard;  // the default, as a user would write it; empty: not set
  std::string_view lowest;    // for numbers, times and bytes; empty: no bound
  std::string_view highest;
  SetBy set_by;
  std::string_view help;  // whole sentences, plain text
  std::string_view since;
};

std::span<const ConfigRow> config_table();

class Config {
 public:
  enum class Origin : std::uint8_t { kDefault, kAlias, kEnvironment, kExplicit };
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  // `environment`: entries "NAME=value"; only names with AIACC_ and those of config_aliases.h are used. `given`: values from the program, by the
  // variables' names; they override the environment. An empty value counts as unset. Throws kInvalidArgument for a bad
  // value, with its name, the value and the possible values.
  static Config read(std::span<const std::string> environment, const Pairs& given = {});

  const ConfigValues* operator->() const noexcept { return &values_; }
  const ConfigValues& operator*() const noexcept { return values_; }

  Origin origin(std::string_view name) const;
  // The present value as a user would write it; empty if it is not set.
  std::string text(const ConfigRow& row) const;
  // One sentence for each unknown variable AIACC_*, with the nearest known name.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }
  // The settings for UCX as it names them, "UCX_TLS=tcp": all variables AIACC_UCX_*, those without a row of the table too.
  std::vector<std::string> ucx_settings() const;
  // The same for libfabric: all variables AIACC_FI_*, as "FI_TCP_IFACE=eth0", and "OFI_PROVIDER=" with AIACC_OFI_PROVIDER.
  std::vector<std::string> ofi_settings() const;
  // Variables of other libraries that are set and have no effect (base/config_aliases.h), and a sentence about them.
  const std::vector<std::string>& without_effect() const noexcept { return without_effect_; }
  std::string without_effect_sentence() const;

 private:
  Config() = default;
  void set(const ConfigRow& row, std::string_view text, Origin origin);
  void take_aliases(std::span<const std::string> environment);

  ConfigValues values_;
  std::map<std::string_view, Origin> origins_;
  std::vector<std::string> warnings_;
  std::vector<std::string> ucx_;  // without a row
  std::vector<std::string> ofi_;  // likewise
  std::vector<std::string> without_effect_;
};

std::string_view name_of(Config::Origin origin) noexcept;  // "default", "alias", "environment", "explicit"

// The present environment of this process. No other code reads it.
std::vector<std::string> process_environment();

// The list of variables in aiacc-env(7), in mdoc. A test compares the page with it.
std::string config_mdoc();

}  // namespace aiacc
