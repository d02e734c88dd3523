#include "base/json.h"

#include <cmath>

namespace aiacc {

namespace {

template <class T, class Value>
T value_or_zero(const Value& value) {
  const T* found = std::get_if<T>(&value);
  return found == nullptr ? T{} : *found;
}

}  // namespace

bool Json::as_bool() const noexcept { return value_or_zero<bool>(value_); }

std::int64_t Json::as_integer() const noexcept {
  if (const double* real = std::get_if<double>(&value_)) {
    return std::abs(*real) < 9e18 ? static_cast<std::int64_t>(*real) : 0;
  }
  return value_or_zero<std::int64_t>(value_);
}

double Json::as_double() const noexcept {
  if (const std::int64_t* whole = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*whole);
  return value_or_zero<double>(value_);
}

std::string Json::as_string() const { return value_or_zero<std::string>(value_); }

const Json::Array& Json::items() const noexcept {
  static const Array kNone;
  const Array* items = std::get_if<Array>(&value_);
  return items == nullptr ? kNone : *items;
}

const Json::Object& Json::members() const noexcept {
  static const Object kNone;
  const Object* members = std::get_if<Object>(&value_);
  return members == nullptr ? kNone : *members;
}

const Json& Json::operator[](std::string_view name) const noexcept {
  static const Json kNull;
  for (const Member& member : members()) {
    if (member.first == name) return member.second;
  }
  return kNull;
}

}  // namespace aiacc
