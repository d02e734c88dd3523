#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace aiacc {

namespace {

bool is_tail(char c) noexcept { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// U+061C, U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069 control the bidirectional algorithm (Unicode annex 9).
// U+2028 and U+2029 end a line or a paragraph.
bool turns_or_breaks(std::string_view character) noexcept {
  const auto at = [character](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character == "\xD8\x9C") return true;
  if (character.size() != 3 || at(0) != 0xE2) return false;
  if (at(1) == 0x80) return at(2) == 0x8E || at(2) == 0x8F || (at(2) >= 0xA8 && at(2) <= 0xAE);
  return at(1) == 0x81 && at(2) >= 0xA6 && at(2) <= 0xA9;
}

}  // namespace

std::size_t printable_length(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7F ? 1 : 0;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(length), is_tail)) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  if (lead == 0xC2 && second < 0xA0) return 0;   // C1 control characters
  if (lead == 0xE0 && second < 0xA0) return 0;   // overlong encodings
  if (lead == 0xED && second >= 0xA0) return 0;  // surrogates
  if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90)) return 0;
  return turns_or_breaks(text.substr(0, length)) ? 0 : length;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = printable_length(text);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string_view shortened(std::string_view text, std::size_t bytes) noexcept {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && is_tail(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

}  // namespace aiacc
