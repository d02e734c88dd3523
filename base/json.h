// JSON (RFC 8259) as a value: for the report of aiacc_info, and for tools that print and read it. Objects keep the
// order of their members.
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

  // Throws kInvalidArgument with the position and the kind of the error.
  static Json parse(std::string_view text);
  // On one line. Bytes that are not UTF-8 become U+FFFD; numbers that JSON cannot represent become null.
  std::string text() const;

  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kDouble, kString, kArray, kObject };
  Kind kind() const noexcept { return static_cast<Kind>(value_.index()); }  // in the order of the alternatives
  bool is_null() const noexcept { return kind() == Kind::kNull; }
  // The value; false, 0 or "" if it has another type.
  bool as_bool() const noexcept;
  std::int64_t as_integer() const noexcept;
  double as_double() const noexcept;
  std::string as_string() const;
  const Array& items() const noexcept;
  const Object& members() const noexcept;
  // The member of that name; null if there is none, or if this is not an object.
  const Json& operator[](std::string_view name) const noexcept;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

}  // namespace aiacc
