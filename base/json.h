// JSON (RFC 8259) as a value: what aiacc_info gives, what tools print and read back. Objects keep the order of their members.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace aiacc {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null
  Json(std::same_as<bool> auto value) : value_(value) {}
  Json(std::integral auto value) requires(!std::same_as<decltype(value), bool>)
      : value_(static_cast<std::int64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  // Throws kInvalidArgument with the place and what is wrong there.
  static Json parse(std::string_view text);
  // On one line. Bytes that are no UTF-8 become U+FFFD; numbers that JSON cannot say become null.
  std::string text() const;

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
  // The value, or that of the type's zero if it is something else.
  bool as_bool() const noexcept;
  std::int64_t as_integer() const noexcept;
  double as_double() const noexcept;
  std::string as_string() const;
  const Array& items() const noexcept;
  const Object& members() const noexcept;
  // The member of that name; null if there is none, or this is no object.
  const Json& operator[](std::string_view name) const noexcept;

 private:
  void write(std::string& into) const;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

}  // namespace aiacc
