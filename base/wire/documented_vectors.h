// The test vectors of docs/wire-protocol.md. For tests only.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <span>
#include <string>

#include "base/wire/codec.h"

namespace aiacc::wire {

inline std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(byte >> 4)];
    text += "0123456789abcdef"[std::to_integer<int>(byte & std::byte{15})];
  }
  return text;
}

inline Bytes bytes_of_hex(const std::string& digits) {
  Bytes bytes;
  for (std::size_t at = 0; at + 1 < digits.size(); at += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(at, 2), nullptr, 16)));
  }
  return bytes;
}

// The vectors of the section under that heading ("## Rendezvous"): hexadecimal digits by name. Lines are "    name =
// hex", continued by lines of hex alone. nullopt if AIACC_SOURCE, the source directory, is not set.
inline std::optional<std::map<std::string, std::string>> documented_vectors(const std::string& section) {
  const char* source = std::getenv("AIACC_SOURCE");  // NOLINT(concurrency-mt-unsafe)
  if (source == nullptr) return std::nullopt;
  std::ifstream page(std::filesystem::path(source) / "docs/wire-protocol.md");
  std::map<std::string, std::string> vectors;
  std::string name;
  bool here = false;
  const std::regex begins("^    ([a-z ]+[a-z]) = ([0-9a-f]*)$"), goes_on("^     +([0-9a-f]+)$");
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) here = line == "## " + section;
    std::smatch match;
    if (here && std::regex_match(line, match, begins)) {
      name = match[1];
      vectors[name] = match[2];
    } else if (here && std::regex_match(line, match, goes_on) && !name.empty()) {
      vectors[name] += match[1];
    } else {
      name.clear();
    }
  }
  return vectors;
}

}  // namespace aiacc::wire
