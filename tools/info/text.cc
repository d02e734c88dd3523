#include "tools/info/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace aiacc::tools {

namespace {

using Row = std::vector<std::string>;

// All columns but the last are as wide as their widest cell.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += ' ' + row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - row[i].size() + 1, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string section(std::string_view title, const std::vector<Row>& rows) {
  return rows.empty() ? "" : fmt::format("\n{}\n{}", title, aligned(rows));
}

std::string plain(const Json& value) {
  const std::string text = value.as_string();
  return text.empty() && !value.is_null() && value.text() != "\"\"" ? value.text() : text;
}

std::string joined(const Json& list, std::string_view separator) {
  std::string text;
  for (const Json& item : list.items()) text += (text.empty() ? "" : std::string(separator)) + plain(item);
  return text;
}

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::vector<Row> features(const Json& report) {
  const Json& features = report["features"];
  std::vector<Row> rows = {{"compiler", plain(features["compiler"])},
                           {"libsodium", plain(features["libsodium"])},
                           {"hwloc", features["hwloc"].is_null() ? "no" : plain(features["hwloc"])},
                           {"kernels", joined(features["kernels"], ", ") + " (the last is used)"}};
  rows.push_back({"CUDA", features["cuda"].as_bool() ? "yes" : "no"});
  rows.push_back({"RDMA", features["rdma"].as_bool() ? "yes" : "no"});
  return rows;
}

std::vector<Row> topology(const Json& report) {
  const Json& topology = report["topology"];
  if (!topology["missing"].is_null()) return {{"unknown: " + plain(topology["missing"])}};
  std::vector<Row> rows = {
      {fmt::format("{} in {} and {}, processing units {}",
                   counted(static_cast<std::int64_t>(topology["cores"].items().size()), "core"),
                   counted(topology["numa_domains"].as_integer(), "NUMA domain"),
                   counted(topology["packages"].as_integer(), "package"), plain(topology["units"]))}};
  if (!topology["quota"].is_null()) {
    rows.push_back(
        {fmt::format("time of {} CPUs ({}): {} usable", plain(topology["quota"]["cpus"]),
                     plain(topology["quota"]["where"]), counted(topology["usable_cores"].as_integer(), "core"))});
  }
  for (const Json& note : topology["notes"].items()) rows.push_back({plain(note)});
  return rows;
}

std::vector<Row> network(const Json& report) {
  std::vector<Row> rows;
  for (const Json& device : report["network"].items()) {
    const std::string speed = device["speed_mbit"].is_null() ? "-" : plain(device["speed_mbit"]) + " Mbit/s";
    const std::string numa = device["numa"].is_null() ? "-" : "NUMA " + plain(device["numa"]);
    const std::string addresses = joined(device["addresses"], " ");
    rows.push_back({device["chosen"].as_bool() ? "*" : " ", plain(device["name"]), plain(device["state"]), speed, numa,
                    addresses.empty() ? "-" : addresses, plain(device["why"])});
  }
  return rows;
}

std::vector<Row> transports(const Json& report) {
  std::vector<Row> rows;
  for (const Json& way : report["transports"].items()) {
    rows.push_back({way["available"].as_bool() ? "*" : " ", plain(way["name"]),
                    way["available"].as_bool() ? "yes" : "no", plain(way["why"])});
  }
  return rows;
}

std::string gid_of(const Json& port) {
  const Json::Array& gids = port["gids"].items();
  // Of those that UCX would take.
  const auto best = std::find_if(gids.begin(), gids.end(), [](const Json& one) {
    return plain(one["type"]) == "RoCE v2" && !plain(one["gid"]).starts_with("fe80");
  });
  if (gids.empty()) return "no GID";
  const Json& gid = best == gids.end() ? gids.front() : *best;
  return fmt::format("GID {} {}{}", plain(gid["index"]), plain(gid["gid"]),
                     plain(gid["type"]).empty() ? "" : " " + plain(gid["type"]));
}

std::vector<Row> rdma(const Json& report) {
  std::vector<Row> rows;
  for (const Json& device : report["rdma"].items()) {
    for (const Json& port : device["ports"].items()) {
      const bool used = device["usable"].as_bool() && plain(port["state"]) == "ACTIVE";
      const std::string below = plain(port["network_device"]);
      rows.push_back({used ? "*" : " ", fmt::format("{} port {}", plain(device["name"]), plain(port["port"])),
                      plain(port["state"]), plain(port["link_layer"]) + (below.empty() ? "" : " on " + below),
                      plain(port["rate"]), gid_of(port)});
    }
  }
  return rows;
}

// Marks and pauses of RoCE.
std::vector<Row> roce(const Json& report) {
  std::vector<Row> rows;
  for (const Json& device : report["rdma"].items()) {
    for (const Json& port : device["ports"].items()) {
      if (port["dscp"].is_null()) continue;
      if (rows.empty()) rows.push_back({"port", "traffic class", "DSCP", "priority", "PFC on", "rdma_cm"});
      const auto or_dash = [](const Json& value) { return value.is_null() ? std::string("-") : plain(value); };
      const std::string lossless = joined(port["lossless_priorities"], " ");
      rows.push_back({fmt::format("{}/{}", plain(device["name"]), plain(port["port"])),
                      plain(port["traffic_class"]) + (port["forced_traffic_class"].is_null() ? "" : " (forced)"),
                      plain(port["dscp"]), or_dash(port["priority"]),
                      port["lossless_priorities"].is_null() ? "unknown"
                      : lossless.empty()                    ? "none"
                                                            : lossless,
                      or_dash(port["rdma_cm_tos"])});
    }
  }
  return rows;
}

std::vector<Row> rdma_counters(const Json& report) {
  std::vector<Row> rows;
  for (const Json& device : report["rdma"].items()) {
    for (const Json& port : device["ports"].items()) {
      for (const char* group : {"counters", "pause_counters"}) {
        for (const auto& [name, value] : port[group].members()) {
          if (value.as_integer() == 0) continue;
          rows.push_back({fmt::format("{}/{}", plain(device["name"]), plain(port["port"])), name, plain(value)});
        }
      }
    }
  }
  return rows;
}

std::vector<Row> classes(const Json& report) {
  std::vector<Row> rows = {
      {"class", "setting", "DSCP", "priority", "share", "rate", "delay", "lossless", "connections"}};
  const auto or_dash = [](const Json& value) { return value.is_null() ? std::string("-") : plain(value); };
  for (const Json& one : report["qos"]["classes"].items()) {
    const bool own = plain(one["connection"]) == plain(one["name"]);
    const std::string rate = one["rate_bits"].is_null()
                                 ? "-"
                                 : fmt::format("{:g} Mbit/s", static_cast<double>(one["rate_bits"].as_integer()) / 1e6);
    const auto delay_of = [](const Json& us) { return fmt::format("{:.10g} us", us.as_double()); };
    const std::string delay = !one["delay_us"].is_null() ? delay_of(one["delay_us"])
                              : one["delay_beside_latency_us"].is_null()
                                  ? "-"
                                  : delay_of(one["delay_beside_latency_us"]) + " beside latency over TCP";
    rows.push_back({plain(one["name"]), plain(one["setting"]), or_dash(one["dscp"]), or_dash(one["priority"]),
                    one["share"].is_null() ? "first" : plain(one["share"]), rate, delay,
                    one["lossless"].as_bool() ? "yes" : "no",
                    own ? "its own" : "those of " + plain(one["connection"])});
  }
  return rows;
}

std::vector<Row> disciplines(const Json& report) {
  std::vector<Row> rows;
  for (const Json& one : report["qos"]["devices"].items())
    rows.push_back({plain(one["device"]), plain(one["discipline"])});
  return rows;
}

std::vector<Row> refusals(const Json& report) {
  std::vector<Row> rows;
  for (const Json& one : report["findings"].items()) {
    const std::string about = plain(one["about"]);
    if (!about.starts_with("AIACC_TC_") && about != "rdma") continue;
    rows.push_back({plain(one["about"]), plain(one["finding"]) + "; " + plain(one["cure"])});
  }
  return rows;
}

std::vector<Row> settings(const Json& report) {
  std::vector<Row> rows;
  for (const Json& row : report["settings"].items()) {
    const std::string value = plain(row["value"]);
    const std::string origin = plain(row["origin"]);
    rows.push_back({origin == "default" ? " " : "*", plain(row["name"]), value.empty() ? "-" : value, origin});
  }
  return rows;
}

std::vector<Row> limits(const Json& report) {
  std::vector<Row> rows;
  for (const Json& row : report["limits"].items()) {
    std::string value = plain(row["soft"]);
    if (!row["hard"].is_null() && plain(row["hard"]) != value) value += " (hard " + plain(row["hard"]) + ")";
    if (!row["used"].is_null()) value += " (" + plain(row["used"]) + " used)";
    rows.push_back({plain(row["name"]), value, plain(row["where"])});
  }
  return rows;
}

std::string findings(const Json& report, std::string_view level) {
  std::string text;
  for (const Json& one : report["findings"].items()) {
    if (one["level"].as_string() != level) continue;
    text += fmt::format("{}: {}: {}\n{:>{}}  {}\n", level, plain(one["about"]), plain(one["finding"]),
                        "cure:", level.size() + 1, plain(one["cure"]));
  }
  return text;
}

std::string verdict(const Json& report) {
  const int hurts = count_hurts(report);
  if (hurts == 0) return "nothing here will hurt a job\n";
  return fmt::format("{} will hurt a job here\n", counted(hurts, "thing"));
}

}  // namespace

int count_hurts(const Json& report) {
  const Json::Array& findings = report["findings"].items();
  return static_cast<int>(std::count_if(findings.begin(), findings.end(),
                                        [](const Json& one) { return one["level"].as_string() == "hurts"; }));
}

std::string report_text(const Json& report) {
  const Json& host = report["host"];
  std::string text = fmt::format("aiacc {} on {} ({} {}, {})\n", plain(report["version"]), plain(host["name"]),
                                 plain(host["system"]), plain(host["kernel"]), plain(host["architecture"]));
  text += section("Built with", features(report));
  text += section("Topology", topology(report));
  text += section("Network devices (*: other hosts would use it)", network(report));
  text += section("RDMA devices (*: ranks can use it)", rdma(report));
  text += section("Transports", transports(report));
  text += section("Settings (*: not the default; aiacc-env(7))", settings(report));
  text += section("Limits", limits(report));
  text += "\n" + verdict(report);
  if (count_hurts(report) > 0) text += "more: aiacc-info --doctor\n";
  return text;
}

std::string qos_text(const Json& report) {
  return "Traffic classes between hosts (aiacc-env(7))\n" + aligned(classes(report)) +
         section("Queueing disciplines of the devices", disciplines(report)) +
         section("Marks and priority flow control of RoCE", roce(report)) +
         section("Counters of RDMA that are not 0", rdma_counters(report)) +
         section("What will not take effect, and what is wrong with RDMA", refusals(report));
}

std::string doctor_text(const Json& report) {
  return findings(report, "hurts") + findings(report, "note") + verdict(report);
}

}  // namespace aiacc::tools
