#include "collectives/inter/selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/quantity.h"
#include "collectives/inter/algorithm_table.h"
#include "collectives/inter/algorithms.h"
#include "collectives/inter/select.h"

namespace aiacc::inter {

namespace {

// Null: the table does not say, or its choice is not permitted.
const AlgorithmInfo* tabled_algorithm(const Shape& shape, const AlgorithmRules& rules,
                                      const AlgorithmTable* table) noexcept {
  const AlgorithmInfo* const found = table == nullptr ? nullptr : table->find(shape);
  return found != nullptr && rules.permits(*found) ? found : nullptr;
}

bool can_serve(const AlgorithmInfo& algorithm, const Shape& shape, const AlgorithmRules& rules) noexcept {
  return algorithm.kind == shape.kind && rules.permits(algorithm) && algorithm.obstacle(shape).empty();
}

bool takes_preferred(const Shape& shape, const AlgorithmRules& rules) noexcept {
  return shape.preferred != nullptr && shape.ranks > 1 && shape.bytes > kRecursiveDoublingBytes &&
         can_serve(*shape.preferred, shape, rules);
}

}  // namespace

const AlgorithmInfo* permitted_algorithm(const Shape& shape, const AlgorithmRules& rules,
                                         const AlgorithmTable* table) noexcept {
  if (takes_preferred(shape, rules)) return shape.preferred;
  if (const AlgorithmInfo* const found = tabled_algorithm(shape, rules, table)) return found;
  const AlgorithmInfo& usual = usual_algorithm(shape);
  if (shape.ranks == 1 || rules.permits(usual)) return &usual;
  return cheapest_algorithm(shape, rules.permitted(shape.kind));
}

std::vector<const AlgorithmInfo*> alternatives(const Shape& shape, const AlgorithmRules& rules,
                                               const AlgorithmTable* table, std::size_t most) {
  constexpr NetworkModel kUsual;
  constexpr double kTimesFastest = 2;
  const auto time_us = [&](const AlgorithmInfo* one) { return kUsual.time_us(one->cost(shape)); };
  std::vector<const AlgorithmInfo*> found;
  for (const AlgorithmInfo* algorithm : algorithms_of(shape.kind)) {
    if (can_serve(*algorithm, shape, rules)) found.push_back(algorithm);
  }
  if (found.empty()) return found;
  std::stable_sort(found.begin(), found.end(), [&](auto* one, auto* two) { return time_us(one) < time_us(two); });
  const double longest_us = kTimesFastest * time_us(found.front());
  const AlgorithmInfo* const chosen = permitted_algorithm(shape, rules, table);
  std::erase_if(found, [&](auto* one) { return one == chosen || time_us(one) > longest_us; });
  found.resize(std::min(found.size(), most));
  return found;
}

std::string_view reason_of_choice(const Shape& shape, const AlgorithmRules& rules,
                                  const AlgorithmTable* table) noexcept {
  if (algorithms_of(shape.kind).size() == 1) return "the only one";
  if (tabled_algorithm(shape, rules, table) != nullptr) return "AIACC_ALGORITHM_TABLE";
  if (rules.restricts(shape.kind)) {
    return permitted_algorithm(shape, rules) != nullptr ? "AIACC_ALGORITHM"
                                                        : "no algorithm of AIACC_ALGORITHM can serve";
  }
  return is_measured(usual_algorithm(shape)) ? "measured thresholds" : "the least predicted time";
}

const AlgorithmInfo& Selector::choose(const Shape& shape, bool tells) {
  if (table_ == nullptr && shape.preferred == nullptr && !rules_.restricts(shape.kind)) return usual_algorithm(shape);
  const AlgorithmInfo* const permitted = permitted_algorithm(shape, rules_, table_);
  if (permitted != nullptr) return *permitted;
  const AlgorithmInfo& usual = usual_algorithm(shape);
  const std::uint32_t bit = std::uint32_t{1} << static_cast<unsigned>(shape.kind);
  if (tells && (told_ & bit) == 0) {
    told_ |= bit;
    tell_why_none(shape, usual);
  }
  return usual;
}

namespace {

// Why these are chosen; with costs, the predicted times of a short call.
std::string reason_of(Shape shape, const AlgorithmRules& rules, bool takes_tree) {
  if (rules.restricts(shape.kind)) return "AIACC_ALGORITHM";
  if (algorithms_of(shape.kind).size() == 1) return "the only one";
  if (is_measured(shape.kind)) return takes_tree ? "measured; double-tree predicted" : "measured";
  shape.bytes = shape.wide_bytes = 1024;
  std::string times;
  for (const AlgorithmInfo* algorithm : algorithms_of(shape.kind)) {
    if (!algorithm->obstacle(shape).empty()) continue;
    times += fmt::format("{}{} {:.0f} us", times.empty() ? "" : ", ", algorithm->name,
                         NetworkModel().time_us(algorithm->cost(shape)));
  }
  return fmt::format("predicted; at 1K: {}", times);
}

}  // namespace

std::string describe_choices(const Shape& of_any_length, const AlgorithmRules& rules, const AlgorithmTable* table) {
  Shape shape = of_any_length;
  const std::size_t most = shape.longest_of_combined;
  const int longest = most > 0 ? std::bit_width(most) - 1 : 40;  // a tebibyte
  const std::size_t widening = std::max<std::size_t>(1, shape.bytes == 0 ? 1 : shape.wide_bytes / shape.bytes);
  bool uses_table = false, takes_tree = false;
  const auto chosen_for = [&](int exponent) {
    shape.bytes = (std::size_t{1} << exponent) * shape.combined;
    shape.wide_bytes = shape.bytes * widening;
    const AlgorithmInfo* const tabled = tabled_algorithm(shape, rules, table);
    uses_table = uses_table || tabled != nullptr;
    if (tabled != nullptr) return fmt::format("{}*", tabled->name);
    const AlgorithmInfo* const permitted = permitted_algorithm(shape, rules);
    const AlgorithmInfo& taken = permitted != nullptr ? *permitted : usual_algorithm(shape);
    takes_tree = takes_tree || !is_measured(taken);
    return std::string(taken.name);
  };
  std::string text;
  std::string present = chosen_for(0);
  for (int exponent = 1; exponent <= longest; ++exponent) {
    std::string next = chosen_for(exponent);
    if (next == present) continue;
    text += fmt::format("{} up to {}, ", present, text_of_bytes(std::uint64_t{1} << (exponent - 1)));
    present = std::move(next);
  }
  const bool one = text.empty();
  const std::string limit =
      most > 0 ? fmt::format(", one of each host, for blocks of up to {}", text_of_bytes(most)) : "";
  return fmt::format("{} between {} ranks{}: {}{}{} ({}{})", name_of(shape.kind), shape.ranks, limit, text, present,
                     one ? "" : " above", uses_table ? "*: AIACC_ALGORITHM_TABLE; else " : "",
                     reason_of(shape, rules, takes_tree));
}

void Selector::tell_new_choices(const Shape& shape) {
  // Calls that exchange blocks reduce nothing.
  const unsigned demands = shape.narrows || shape.skips_host ? 1 : shape.ordered ? 2 : shape.takes_partials ? 3 : 0;
  const std::uint64_t bit = std::uint64_t{1} << (4 * static_cast<unsigned>(shape.kind) + demands);
  if ((told_choices_ & bit) != 0 || algorithms_of(shape.kind).empty()) return;
  told_choices_ |= bit;
  listener_.chosen(describe_choices(shape, rules_, table_));
}

void Selector::tell_why_none(const Shape& shape, const AlgorithmInfo& instead) {
  std::string reasons;
  for (const AlgorithmInfo* algorithm : algorithms_of(shape.kind)) {
    if (!rules_.permits(*algorithm)) continue;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", algorithm->name, algorithm->obstacle(shape));
  }
  listener_.no_permitted_algorithm(
      fmt::format("AIACC_ALGORITHM permits no algorithm that can serve {} of {} between {} ranks ({}), so {} serves it "
                  "and others like it",
                  name_of(shape.kind), text_of_bytes(shape.bytes), shape.ranks, reasons, instead.name));
}

}  // namespace aiacc::inter
