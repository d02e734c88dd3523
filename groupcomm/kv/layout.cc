#include "groupcomm/kv/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace aiacc::kv {
namespace {

constexpr std::uint64_t kAlignRows = 64;  // of rows of one element: parts begin at whole words of 2-bit elements

void cut(std::vector<PartPlace>& parts, std::uint64_t first, std::uint64_t end, std::uint64_t most, int server) {
  for (; first < end; first += most) parts.push_back({first, std::min(most, end - first), server});
}

}  // namespace

std::string key_of(std::int64_t number) { return fmt::format("i{}", number); }
std::string key_of(std::string_view name) { return fmt::format("s{}", name); }

std::string describe_key(std::string_view key) {
  if (key.empty()) return "an empty key";
  return key.front() == 'i' ? fmt::format("key {}", key.substr(1)) : fmt::format("key '{}'", key.substr(1));
}

std::string Shape::describe() const {
  return row_elements == 1 ? fmt::format("{} {}", rows, name_of(type))
                           : fmt::format("{} rows of {} {}", rows, row_elements, name_of(type));
}

int home_of(std::string_view key, int servers) noexcept {
  return static_cast<int>(Hash64().add(key).value() % static_cast<std::uint64_t>(servers));
}

std::vector<PartPlace> lay_out(std::string_view key, const Shape& shape, const LayoutRules& rules) {
  const int home = home_of(key, rules.servers);
  if (shape.row_bytes() > rules.part_bytes) {
    throw Error(Code::kUnsupported, fmt::format("{} has rows of {} bytes: at most {} are possible", describe_key(key),
                                                shape.row_bytes(), rules.part_bytes));
  }
  std::vector<PartPlace> parts;
  if (shape.elements() == 0) return {{0, shape.rows, home}};
  std::uint64_t most = rules.part_bytes / shape.row_bytes();
  const std::uint64_t align = shape.row_elements == 1 ? kAlignRows : 1;
  if (most > align) most -= most % align;
  if (shape.elements() <= rules.split_elements) {
    cut(parts, 0, shape.rows, most, home);
    return parts;
  }
  const auto servers = static_cast<std::uint64_t>(rules.servers);
  std::uint64_t each = (shape.rows + servers - 1) / servers;
  each = (each + align - 1) / align * align;
  for (std::uint64_t i = 0; i < servers; ++i) {
    const std::uint64_t first = std::min(i * each, shape.rows), end = std::min(first + each, shape.rows);
    cut(parts, first, end, most, static_cast<int>((static_cast<std::uint64_t>(home) + i) % servers));
  }
  return parts;
}

}  // namespace aiacc::kv
