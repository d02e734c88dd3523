// Strings of JSON: quoting what may come from anywhere (file names, environment variables), and back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace aiacc {

// In quotes. What is no UTF-8 becomes U+FFFD.
void write_json_string(std::string_view text, std::string& into);

void append_utf8(std::uint32_t code_point, std::string& into);

}  // namespace aiacc
