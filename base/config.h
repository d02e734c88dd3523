// What a user may set by AIACC_* variables, in one table (base/config_table.cc): name, type, range, default, help. From it
// come the parsing, the sentences about bad values, and the list in aiacc-env(7).
//
// A Config is read once, from a given environment, and never changes. Nothing else in the tree reads AIACC_* variables.
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

// What is encrypted between ranks of different hosts.
enum class Encryption : std::uint8_t { kNone, kData };

// The values, each by the variable of its name. What they mean stands in the table.
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
  bool terminal = false;
  bool singleton = false;
  Duration init_timeout{};
  Duration timeout{};
  Duration late_after{};
  Duration lease{};
  LogLevels log;
  std::string records;
  Duration spin{};
  std::string tcp_congestion;
  Encryption encrypt = Encryption::kNone;
  std::uint64_t slice_bytes = 0;
  std::uint64_t slot_bytes = 0;
};

struct ConfigRow {
  // Which value it sets; its type says how text is read: text, a whole number or nothing, yes or no, a time, log levels, bytes,
  // what is encrypted.
  using Target = std::variant<std::string ConfigValues::*, std::optional<std::int64_t> ConfigValues::*,
                              bool ConfigValues::*, Duration ConfigValues::*, LogLevels ConfigValues::*,
                              std::uint64_t ConfigValues::*, Encryption ConfigValues::*>;
  enum class SetBy : std::uint8_t { kUser, kLauncher };

  std::string_view name;
  Target target;
  std::string_view standard;  // the default, as a user would write it; empty: not set
  std::string_view lowest;    // of numbers, times and bytes; empty: no bound
  std::string_view highest;
  SetBy set_by;
  std::string_view help;  // whole sentences, plain text
  std::string_view since;
};

std::span<const ConfigRow> config_table();

class Config {
 public:
  enum class Origin : std::uint8_t { kDefault, kEnvironment, kExplicit };
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  // `environment`: "NAME=value", of which those that begin with AIACC_ are looked at. `given`: what the program itself says
  // by the variables' names; it wins. An empty value is as good as none. Throws kInvalidArgument for a bad value: its name,
  // the value, what is possible.
  static Config read(std::span<const std::string> environment, const Pairs& given = {});

  const ConfigValues* operator->() const noexcept { return &values_; }
  const ConfigValues& operator*() const noexcept { return values_; }

  Origin origin(std::string_view name) const;
  // The value in force as a user would write it; empty if it is not set.
  std::string text(const ConfigRow& row) const;
  // One sentence for each variable AIACC_* that means nothing, with the nearest that does.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  Config() = default;
  void set(const ConfigRow& row, std::string_view text, Origin origin);

  ConfigValues values_;
  std::map<std::string_view, Origin> origins_;
  std::vector<std::string> warnings_;
};

std::string_view name_of(Config::Origin origin) noexcept;  // "default", "environment", "explicit"

// The environment of this process as it is now. The one place that reads it.
std::vector<std::string> process_environment();

// The items of the list of variables in aiacc-env(7), in mdoc. A test compares the page with it.
std::string config_mdoc();

}  // namespace aiacc
