// Makes text safe to print in a line for the user. Text from elsewhere (a file name, an entry of a list, the output of
// a starter, a peer's host name) can contain any bytes: a terminal executes some of them, and some change the order in
// which the rest is shown. Logs, the last error of the C ABI and aiaccrun's own lines pass through printable().
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace aiacc {

// The number of bytes of the UTF-8 character with which `text` begins; 0 if it is not valid or not printable: a control
// character (C0 or C1), a line or paragraph separator, or one that changes the direction of writing.
std::size_t printable_length(std::string_view text) noexcept;

// `text` with unprintable bytes as \xNN, so that it stays one line.
std::string printable(std::string_view text);

// At most `bytes` bytes of `text`, without a broken character at the end.
std::string_view shortened(std::string_view text, std::size_t bytes) noexcept;

}  // namespace aiacc
