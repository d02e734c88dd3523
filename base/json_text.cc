// JSON as text. The only unit that includes nlohmann-json, whose header has 25,000 lines and whose symbols stay hidden
// here.
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace aiacc {

namespace {

using Library = nlohmann::ordered_json;

constexpr int kDeepest = 100;

Library to_library(const Json& json) {
  switch (json.kind()) {
    case Json::Kind::kNull: return nullptr;
    case Json::Kind::kBool: return json.as_bool();
    case Json::Kind::kInteger: return json.as_integer();
    case Json::Kind::kDouble: return json.as_double();
    case Json::Kind::kString: return json.as_string();
    case Json::Kind::kArray: {
      Library list = Library::array();
      for (const Json& item : json.items()) list.push_back(to_library(item));
      return list;
    }
    case Json::Kind::kObject: break;
  }
  Library object = Library::object();
  for (const Json::Member& member : json.members()) object[member.first] = to_library(member.second);
  return object;
}

Json from_library(const Library& library) {
  switch (library.type()) {
    case Library::value_t::boolean: return library.get<bool>();
    case Library::value_t::number_integer: return library.get<std::int64_t>();
    case Library::value_t::number_unsigned: {
      const auto value = library.get<std::uint64_t>();
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return static_cast<double>(value);
      }
      return static_cast<std::int64_t>(value);
    }
    case Library::value_t::number_float: return library.get<double>();
    case Library::value_t::string: return library.get<std::string>();
    case Library::value_t::array: {
      Json::Array list;
      for (const Library& item : library) list.push_back(from_library(item));
      return list;
    }
    case Library::value_t::object: {
      Json::Object members;
      for (const auto& [name, value] : library.items()) members.emplace_back(name, from_library(value));
      return members;
    }
    default: return {};
  }
}

}  // namespace

Json Json::parse(std::string_view text) {
  const auto bounded = [](int depth, Library::parse_event_t, Library&) {
    if (depth > kDeepest)
      throw Error(Code::kInvalidArgument, fmt::format("no JSON: it is nested more than {} deep", kDeepest));
    return true;
  };
  try {
    return from_library(Library::parse(text, bounded));
  } catch (const Library::parse_error& error) {
    throw Error(Code::kInvalidArgument,
                fmt::format("no JSON at byte {} of {}: {}", error.byte, text.size(), error.what()));
  } catch (const Library::exception& error) {
    throw Error(Code::kInvalidArgument, fmt::format("no JSON: {}", error.what()));
  }
}

std::string Json::text() const { return to_library(*this).dump(-1, ' ', false, Library::error_handler_t::replace); }

}  // namespace aiacc
