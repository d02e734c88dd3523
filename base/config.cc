#include "base/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "base/config_aliases.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/quantity.h"

namespace aiacc {
namespace {

constexpr std::string_view kPrefix = "AIACC_";
constexpr std::string_view kUcxPrefix = "AIACC_UCX_";
constexpr std::string_view kOfiPrefix = "AIACC_FI_";

const ConfigRow* find_row(std::string_view name) {
  for (const ConfigRow& row : config_table()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string_view name_of(WireType type) noexcept {
  switch (type) {
    case WireType::kFloat32: return "fp32";
    case WireType::kFloat16: return "fp16";
    case WireType::kBFloat16: return "bf16";
    case WireType::kMixed: return "mixed";
  }
  return "?";
}

std::string_view name_of(Encryption encryption) noexcept {
  switch (encryption) {
    case Encryption::kNone: return "none";
    case Encryption::kIntegrity: return "integrity";
    case Encryption::kData: return "data";
  }
  return "unknown";
}

std::string_view name_of(Network network) noexcept {
  switch (network) {
    case Network::kAuto: return "auto";
    case Network::kTcp: return "tcp";
    case Network::kUcx: return "ucx";
    case Network::kOfi: return "ofi";
  }
  return "unknown";
}

std::string unknown_sentence(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ConfigRow& row : config_table()) names.push_back(row.name);
  return fmt::format("the environment variable {} is unknown to this version of aiacc{} aiacc-env(7) has them all",
                     name, nearest(name, names).empty() ? ";" : if_near(name, names, "; did you mean ", "?"));
}

std::string range_of(const ConfigRow& row) {
  if (row.lowest.empty()) return {};
  return fmt::format(" from {} to {}", row.lowest, row.highest);
}

[[noreturn]] void refuse(const ConfigRow& row, std::string_view text, std::string_view wanted) {
  throw Error(Code::kInvalidArgument,
              fmt::format("{}='{}' is not possible: give {}{}", row.name, text, wanted, range_of(row)));
}

template <class T, class Parse>
T parse_in_range(const ConfigRow& row, std::string_view text, std::string_view wanted, Parse parse) {
  const std::optional<T> value = parse(text);
  if (!value || (!row.lowest.empty() && (*value < *parse(row.lowest) || *value > *parse(row.highest)))) {
    refuse(row, text, wanted);
  }
  return *value;
}

// Reads text into the value of a row, by its type.
class Assign {
 public:
  Assign(const ConfigRow& row, std::string_view text, ConfigValues& values) : row_(row), text_(text), values_(values) {}
  void operator()(std::string ConfigValues::*target) const { values_.*target = text_; }
  void operator()(std::optional<std::int64_t> ConfigValues::*target) const {
    values_.*target = parse_in_range<std::int64_t>(row_, text_, "a whole number", parse_integer);
  }
  void operator()(bool ConfigValues::*target) const {
    values_.*target = parse_in_range<bool>(row_, text_, "yes or no", parse_flag);
  }
  void operator()(Duration ConfigValues::*target) const {
    values_.*target =
        parse_in_range<Duration>(row_, text_, "a time such as 30 (seconds), 1.5m or 200ms,", parse_duration);
  }
  void operator()(std::uint64_t ConfigValues::*target) const {
    values_.*target = parse_in_range<std::uint64_t>(row_, text_, "a size such as 4096, 64K or 1G,", parse_bytes);
  }
  void operator()(Encryption ConfigValues::*target) const {
    for (const Encryption each : {Encryption::kNone, Encryption::kIntegrity, Encryption::kData}) {
      if (text_ != name_of(each)) continue;
      values_.*target = each;
      return;
    }
    refuse(row_, text_, "none, integrity or data");
  }
  void operator()(Network ConfigValues::*target) const {
    for (const Network each : {Network::kAuto, Network::kTcp, Network::kUcx, Network::kOfi}) {
      if (text_ != name_of(each)) continue;
      values_.*target = each;
      return;
    }
    refuse(row_, text_, "auto, tcp, ucx or ofi");
  }
  void operator()(WireType ConfigValues::*target) const {
    for (const WireType each : {WireType::kFloat32, WireType::kFloat16, WireType::kBFloat16, WireType::kMixed}) {
      if (text_ != name_of(each)) continue;
      values_.*target = each;
      return;
    }
    refuse(row_, text_, "fp32, fp16, bf16 or mixed");
  }
  void operator()(LogLevels ConfigValues::*target) const {
    try {
      values_.*target = LogLevels::parse(text_);
    } catch (const Error& error) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("{}='{}' is not possible: {}", row_.name, text_, error.message()));
    }
  }

 private:
  const ConfigRow& row_;
  std::string_view text_;
  ConfigValues& values_;
};

struct TextOf {
  const ConfigValues& values;
  std::string operator()(std::string ConfigValues::*from) const { return values.*from; }
  std::string operator()(std::optional<std::int64_t> ConfigValues::*from) const {
    return values.*from ? std::to_string(*(values.*from)) : "";
  }
  std::string operator()(bool ConfigValues::*from) const { return values.*from ? "yes" : "no"; }
  std::string operator()(Duration ConfigValues::*from) const { return text_of(values.*from); }
  std::string operator()(std::uint64_t ConfigValues::*from) const { return text_of_bytes(values.*from); }
  std::string operator()(Encryption ConfigValues::*from) const { return std::string(name_of(values.*from)); }
  std::string operator()(Network ConfigValues::*from) const { return std::string(name_of(values.*from)); }
  std::string operator()(WireType ConfigValues::*from) const { return std::string(name_of(values.*from)); }
  std::string operator()(LogLevels ConfigValues::*from) const { return (values.*from).text(); }
};

struct ArgumentName {
  std::string_view operator()(std::string ConfigValues::*) const { return "text"; }
  std::string_view operator()(std::optional<std::int64_t> ConfigValues::*) const { return "number"; }
  std::string_view operator()(bool ConfigValues::*) const { return "yes|no"; }
  std::string_view operator()(Duration ConfigValues::*) const { return "time"; }
  std::string_view operator()(std::uint64_t ConfigValues::*) const { return "size"; }
  std::string_view operator()(LogLevels ConfigValues::*) const { return "levels"; }
  std::string_view operator()(Encryption ConfigValues::*) const { return "none|integrity|data"; }
  std::string_view operator()(Network ConfigValues::*) const { return "auto|tcp|ucx|ofi"; }
  std::string_view operator()(WireType ConfigValues::*) const { return "fp32|fp16|bf16|mixed"; }
};

// mdoc begins each sentence on a line of its own.
std::string sentences_on_lines(std::string_view text) {
  std::string result(text);
  for (std::size_t at = result.find(". "); at != std::string::npos; at = result.find(". ", at)) result[at + 1] = '\n';
  return result;
}

}  // namespace

Config Config::read(std::span<const std::string> environment, const Pairs& given) {
  Config config;
  for (const ConfigRow& row : config_table()) {
    if (!row.standard.empty()) config.set(row, row.standard, Origin::kDefault);
  }
  for (const std::string& entry : environment) {
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view name = std::string_view(entry).substr(0, equals);
    if (!name.starts_with(kPrefix)) continue;
    const ConfigRow* row = find_row(name);
    if (row == nullptr && name.starts_with(kUcxPrefix)) {
      config.ucx_.push_back(entry.substr(kPrefix.size()));
    } else if (row == nullptr && name.starts_with(kOfiPrefix)) {
      config.ofi_.push_back(entry.substr(kPrefix.size()));
    } else if (row == nullptr) {
      config.warnings_.push_back(unknown_sentence(name));
    } else if (equals + 1 < entry.size()) {
      config.set(*row, std::string_view(entry).substr(equals + 1), Origin::kEnvironment);
    }
  }
  config.take_aliases(environment);
  for (const auto& [name, text] : given) {
    const ConfigRow* row = find_row(name);
    if (row == nullptr) throw Error(Code::kInvalidArgument, unknown_sentence(name));
    config.set(*row, text, Origin::kExplicit);
  }
  return config;
}

// What another library's variable says never fails a job: one that cannot be followed has no effect.
void Config::take_aliases(std::span<const std::string> environment) {
  for (const ConfigAlias& alias : config_aliases()) {
    const auto entry = std::find_if(environment.begin(), environment.end(), [&](const std::string& one) {
      return one.starts_with(alias.name) && one.size() > alias.name.size() + 1 && one[alias.name.size()] == '=';
    });
    if (entry == environment.end()) continue;
    const std::string_view said = std::string_view(*entry).substr(alias.name.size() + 1);
    const ConfigRow* row = find_row(alias.setting);
    const auto text = row == nullptr ? std::nullopt : alias.translate(said);
    if (!text) {
      without_effect_.emplace_back(alias.name);
    } else if (!text->empty() && origin(row->name) != Origin::kEnvironment) {
      set(*row, *text, Origin::kAlias);
    }
  }
}

std::string Config::without_effect_sentence() const {
  if (without_effect_.empty()) return {};
  return fmt::format("{} {} no effect on aiacc with the value that {} set; aiacc-env(7) says why and what does",
                     fmt::join(without_effect_, ", "), without_effect_.size() == 1 ? "has" : "have",
                     without_effect_.size() == 1 ? "is" : "are");
}

std::vector<std::string> Config::ucx_settings() const {
  std::vector<std::string> all = ucx_;
  if (!values_.ucx_tls.empty()) all.push_back("UCX_TLS=" + values_.ucx_tls);
  if (!values_.ucx_net_devices.empty()) all.push_back("UCX_NET_DEVICES=" + values_.ucx_net_devices);
  return all;
}

std::vector<std::string> Config::ofi_settings() const {
  std::vector<std::string> all = ofi_;
  if (!values_.ofi_provider.empty()) all.push_back("OFI_PROVIDER=" + values_.ofi_provider);
  return all;
}

void Config::set(const ConfigRow& row, std::string_view text, Origin origin) {
  std::visit(Assign(row, text, values_), row.target);
  origins_[row.name] = origin;
}

Config::Origin Config::origin(std::string_view name) const {
  const auto found = origins_.find(name);
  return found == origins_.end() ? Origin::kDefault : found->second;
}

std::string Config::text(const ConfigRow& row) const { return std::visit(TextOf{values_}, row.target); }

std::string_view name_of(Config::Origin origin) noexcept {
  switch (origin) {
    case Config::Origin::kDefault: return "default";
    case Config::Origin::kEnvironment: return "environment";
    case Config::Origin::kAlias: return "alias";
    case Config::Origin::kExplicit: return "explicit";
  }
  return "unknown";
}

std::vector<std::string> process_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

std::string config_mdoc() {
  std::string page;
  for (const ConfigRow& row : config_table()) {
    page += fmt::format(".It Ev {} Ns = Ns Ar {}\n{}\n", row.name, std::visit(ArgumentName{}, row.target),
                        sentences_on_lines(row.help));
    if (!row.lowest.empty()) page += fmt::format("From {} to {}.\n", row.lowest, row.highest);
    if (!row.standard.empty()) page += fmt::format("The default is {}.\n", row.standard);
    if (row.set_by == ConfigRow::SetBy::kLauncher) page += "Set by aiaccrun for each rank.\n";
  }
  return page;
}

}  // namespace aiacc
