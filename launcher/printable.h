// What may stand in a line for the user: a file name, an entry of a list or the last words of a starter can hold any bytes, and a
// terminal obeys some of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace aiacc::launcher {

// The bytes of the character with which `text` begins, in UTF-8; 0 if it is none, or one that a terminal would obey.
std::size_t printable_length(std::string_view text) noexcept;

// `text` with all that is not printable as \xNN, so that it stays one line.
std::string printable(std::string_view text);

// At most `bytes` of it, and no broken character at the end.
std::string_view shortened(std::string_view text, std::size_t bytes) noexcept;

}  // namespace aiacc::launcher
