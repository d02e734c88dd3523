#include "base/json_text.h"

#include <fmt/format.h>

namespace aiacc {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The length of the UTF-8 sequence (RFC 3629) at the begin of `text`; 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool second = follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF);  // no surrogates
    return second && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool second = follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

void write_json_string(std::string_view text, std::string& into) {
  into += '"';
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const char c = text.front();
    if (length == 0) {
      into += kReplacement;
    } else if (c == '"' || c == '\\') {
      into += '\\';
      into += c;
    } else if (c == '\n') {
      into += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      into += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      into += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  into += '"';
}

void append_utf8(std::uint32_t code, std::string& into) {
  const auto tail = [&](int shift) { into += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    into += static_cast<char>(code);
  } else if (code < 0x800) {
    into += static_cast<char>(0xC0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    into += static_cast<char>(0xE0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    into += static_cast<char>(0xF0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace aiacc
