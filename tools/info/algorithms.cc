#include "tools/info/algorithms.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.h"
#include "collectives/hier/select.h"
#include "collectives/inter/algorithms.h"
#include "collectives/inter/selector.h"
#include "runtime/bootstrap/algorithm_table_file.h"
#include "runtime/runtime_config.h"

namespace aiacc::tools {

namespace {

constexpr int kLongest = 40;  // a tebibyte
constexpr std::uint64_t kFirstOfLadder = 64, kLastOfLadder = 64 << 20, kStepOfLadder = 16;

std::string columns(std::string_view mark, std::string_view name, std::string_view rest) {
  return fmt::format("  {} {:<19} {}\n", mark, name, rest);
}

double predicted_us(const inter::AlgorithmInfo& algorithm, const inter::Shape& shape) {
  return inter::NetworkModel().time_us(algorithm.cost(shape));
}

}  // namespace

AlgorithmsReport::AlgorithmsReport(const InfoOptions& options) : options_(options) {
  const RuntimeConfig config = RuntimeConfig::from(Config::read(process_environment()));
  rules_ = config.algorithms;
  AlgorithmTableFile file = read_algorithm_table(config);
  complaint_ = std::move(file.complaint);
  if (!file.text.empty()) table_ = inter::AlgorithmTable::parse("AIACC_ALGORITHM_TABLE", file.text);
}

inter::Shape AlgorithmsReport::shape_of(aiacc::Collective kind, std::uint64_t bytes) const {
  const inter::Shape whole{.kind = kind, .ranks = options_.ranks, .bytes = bytes, .wide_bytes = bytes};
  const auto most = static_cast<std::size_t>((options_.ranks + options_.hosts - 1) / options_.hosts);
  return hier::shape_between(whole, options_.hosts, most, options_.ranks % options_.hosts == 0);
}

const inter::AlgorithmInfo& AlgorithmsReport::chosen(const inter::Shape& shape) const {
  const inter::AlgorithmInfo* const permitted = inter::permitted_algorithm(shape, rules_, table());
  return permitted != nullptr ? *permitted : inter::usual_algorithm(shape);
}

std::string AlgorithmsReport::text_for_any_length(aiacc::Collective kind) const {
  const inter::Shape shortest = shape_of(kind, 1), longest = shape_of(kind, std::uint64_t{1} << kLongest);
  std::string text;
  if (shortest.ranks != longest.ranks) text = inter::describe_choices(shortest, rules_, table()) + "\n";
  text += inter::describe_choices(longest, rules_, table()) + "\n";
  for (const inter::AlgorithmInfo* algorithm : inter::algorithms_of(kind)) {
    bool is_chosen = false, can_serve = false;
    for (int exponent = 0; exponent <= kLongest; ++exponent) {
      const inter::Shape shape = shape_of(kind, std::uint64_t{1} << exponent);
      is_chosen = is_chosen || &chosen(shape) == algorithm;
      can_serve = can_serve || algorithm->obstacle(shape).empty();
    }
    const std::string_view obstacle = algorithm->obstacle(longest);
    std::string use = is_chosen ? "chosen" : rules_.permits(*algorithm) ? "not chosen" : "not permitted";
    if (!can_serve) use = "cannot serve";
    if (!obstacle.empty()) use += fmt::format("; {}", obstacle);
    text += columns(is_chosen ? "*" : " ", algorithm->name, use);
  }
  return text;
}

std::string AlgorithmsReport::text_for(aiacc::Collective kind, std::uint64_t bytes) const {
  const inter::Shape shape = shape_of(kind, bytes);
  const inter::AlgorithmInfo& taken = chosen(shape);
  const std::string length =
      shape.kind == aiacc::Collective::kBarrier ? "" : fmt::format(" of {}", text_of_bytes(bytes));
  const std::string combined =
      shape.combined > 1 ? fmt::format(", one of each host, {} blocks at once", shape.combined) : "";
  std::string text = fmt::format("{}{} between {} ranks{}: {} ({})\n", inter::name_of(shape.kind), length, shape.ranks,
                                 combined, taken.name, inter::reason_of_choice(shape, rules_, table()));
  for (const inter::AlgorithmInfo* algorithm : inter::algorithms_of(shape.kind)) {
    const std::string_view obstacle = algorithm->obstacle(shape);
    text += columns(algorithm == &taken ? "*" : " ", algorithm->name,
                    obstacle.empty() ? fmt::format("{:.1f} us predicted", predicted_us(*algorithm, shape))
                                     : fmt::format("cannot serve; {}", obstacle));
  }
  return text;
}

aiacc::Json AlgorithmsReport::json_for(aiacc::Collective kind, std::uint64_t bytes) const {
  const inter::Shape shape = shape_of(kind, bytes);
  Json::Array algorithms;
  for (const inter::AlgorithmInfo* algorithm : inter::algorithms_of(shape.kind)) {
    const std::string_view obstacle = algorithm->obstacle(shape);
    algorithms.push_back(
        Json::Object{{"name", algorithm->name},
                     {"permitted", rules_.permits(*algorithm)},
                     {"obstacle", obstacle.empty() ? Json() : Json(obstacle)},
                     {"predicted_us", obstacle.empty() ? Json(predicted_us(*algorithm, shape)) : Json()}});
  }
  return Json::Object{{"collective", inter::name_of(shape.kind)},
                      {"ranks", shape.ranks},
                      {"bytes", static_cast<std::int64_t>(bytes)},
                      {"bytes_between_hosts", static_cast<std::int64_t>(shape.bytes)},
                      {"chosen", chosen(shape).name},
                      {"reason", inter::reason_of_choice(shape, rules_, table())},
                      {"algorithms", std::move(algorithms)}};
}

std::string AlgorithmsReport::text() const {
  const int per_host = (options_.ranks + options_.hosts - 1) / options_.hosts;
  std::string text =
      fmt::format("Algorithms between {} hosts with {} each (*: chosen; predictions are for 100 Gbit/s and 5 us)\n",
                  options_.hosts, per_host == 1 ? "one rank" : fmt::format("{} ranks", per_host));
  if (!complaint_.empty()) text += complaint_ + "\n";
  for (const inter::NamedCollective& each : inter::named_collectives()) {
    text += "\n" + (options_.bytes == 0 ? text_for_any_length(each.kind) : text_for(each.kind, options_.bytes));
  }
  return text;
}

aiacc::Json AlgorithmsReport::json() const {
  Json::Array all;
  for (const inter::NamedCollective& each : inter::named_collectives()) {
    if (options_.bytes != 0) {
      all.push_back(json_for(each.kind, options_.bytes));
      continue;
    }
    for (std::uint64_t bytes = kFirstOfLadder; bytes <= kLastOfLadder; bytes *= kStepOfLadder) {
      all.push_back(json_for(each.kind, bytes));
    }
  }
  return all;
}

}  // namespace aiacc::tools
