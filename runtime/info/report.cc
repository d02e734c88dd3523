#include "runtime/info/report.h"

#include <sodium.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/config.h"
#include "base/data/kernels.h"
#include "base/error.h"
#include "runtime/info/finding.h"
#include "runtime/info/host_limits.h"
#include "runtime/info/network_devices.h"
#include "runtime/info/rdma_report.h"
#include "runtime/info/topology_module.h"
#include "runtime/info/traffic_classes.h"
#include "runtime/info/ways.h"
#include "transports/host/segment.h"

namespace aiacc::info {

namespace {

using Environment = std::vector<std::string>;

// The settings in force. A variable with an invalid value becomes a finding and is left out, so that the report does not fail.
Config read_settings(const Environment& environment, Findings& findings) {
  Environment good;
  for (const std::string& entry : environment) {
    try {
      Config::read(std::span(&entry, 1));
      good.push_back(entry);
    } catch (const Error& error) {
      findings.push_back({Finding::Level::kHurts, entry.substr(0, entry.find('=')), error.message(),
                          "correct it or unset it; aiacc-env(7) has all settings"});
    }
  }
  Config config = Config::read(good);
  for (const std::string& warning : config.warnings()) {
    const std::size_t name = warning.find("AIACC_");
    findings.push_back({Finding::Level::kHurts, warning.substr(name, warning.find(' ', name) - name), warning,
                        "correct its name or unset it"});
  }
  if (!config.without_effect().empty()) {
    findings.push_back({Finding::Level::kNote, "variables", config.without_effect_sentence(), ""});
  }
  return config;
}

Json to_json(const Config& config) {
  Json::Array rows;
  for (const ConfigRow& row : config_table()) {
    rows.push_back(Json::Object{{"name", row.name},
                                {"value", config.text(row)},
                                {"origin", name_of(config.origin(row.name))},
                                {"set_by", row.set_by == ConfigRow::SetBy::kUser ? "user" : "aiaccrun"},
                                {"help", row.help}});
  }
  return rows;
}

Json features(const Json& topology, const RdmaReport& rdma) {
  Json::Array kernels;
  for (const kernels::Table* table : kernels::tables()) kernels.emplace_back(table->name);
  return Json::Object{{"compiler", __VERSION__},    {"libsodium", sodium_version_string()},
                      {"hwloc", topology["hwloc"]}, {"cuda", false},
                      {"rdma", rdma.usable()},      {"kernels", std::move(kernels)}};
}

Json host() {
  utsname names{};
  uname(&names);
  return Json::Object{{"name", static_cast<const char*>(names.nodename)},
                      {"system", static_cast<const char*>(names.sysname)},
                      {"kernel", static_cast<const char*>(names.release)},
                      {"architecture", static_cast<const char*>(names.machine)},
                      {"user", static_cast<std::int64_t>(getuid())}};
}

std::string ssh_connection(const Environment& environment) {
  constexpr std::string_view kName = "SSH_CONNECTION=";
  for (const std::string& entry : environment) {
    if (entry.starts_with(kName)) return entry.substr(kName.size());
  }
  return {};
}

HostLimits limits_with(const Json& topology, const RdmaReport& rdma) {
  HostLimits limits = HostLimits::read(read_host_file);
  limits.rdma = rdma.usable();
  if (topology["missing"].is_null()) {
    limits.cores = static_cast<unsigned>(topology["usable_cores"].as_integer());
    limits.cpus = topology["quota"]["cpus"].as_double();
    limits.quota_where = topology["quota"]["where"].as_string();
  }
  const int ranks = static_cast<int>(limits.cores);
  limits.segment_bytes = SegmentMapping::total_bytes(ranks, HostSegment::default_slice_bytes(ranks, read_host_file));
  return limits;
}

std::vector<std::string> names_of_chosen(const std::vector<NetworkDevice>& devices) {
  std::vector<std::string> names;
  for (const NetworkDevice& one : devices) {
    if (one.choice) names.push_back(one.name);
  }
  return names;
}

void append(Findings& all, Findings more) {
  for (Finding& one : more) all.push_back(std::move(one));
}

}  // namespace

Json report(const char* version, const std::string& transport, Json recent_operations) {
  const Environment environment = process_environment();
  Findings findings;
  const Config config = read_settings(environment, findings);
  const Json topology = info::topology();
  const RdmaReport rdma = RdmaReport::read(config.ucx_settings());
  const HostLimits limits = limits_with(topology, rdma);
  const std::vector<Way> ways = try_ways(read_host_file, config.ucx_settings(), config.ofi_settings());
  if (const std::string missing = topology["missing"].as_string(); !missing.empty()) {
    findings.push_back({Finding::Level::kNote, "topology", missing, "install all of aiacc, with hwloc"});
  }
  append(findings, judge(limits));
  append(findings, judge(ways));
  append(findings, judge(rdma));
  const std::vector<NetworkDevice> devices = network_devices(read_host_file, ssh_connection(environment));
  const std::vector<ClassReport> classes = traffic_classes(*config, names_of_chosen(devices));
  append(findings, judge(classes));
  return Json::Object{{"version", version},
                      {"features", features(topology, rdma)},
                      {"host", host()},
                      {"topology", topology},
                      {"network", to_json(devices)},
                      {"rdma", to_json(rdma)},
                      {"transports", to_json(ways)},
                      {"qos", to_json(classes, queueing_disciplines())},
                      {"settings", to_json(config)},
                      {"limits", to_json(limits)},
                      {"findings", to_json(findings)},
                      {"transport", transport.empty() ? Json() : Json(transport)},
                      {"recent_operations", std::move(recent_operations)}};
}

}  // namespace aiacc::info
