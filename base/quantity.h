// Times and sizes as users write them: "30", "1.5m", "200ms"; "4096", "64K", "1.5GiB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace aiacc {

// A number with one of ns, us, ms, s, m, h, d; seconds without a unit. nullopt: not a time, or more than 290 years.
std::optional<Duration> parse_duration(std::string_view text);
std::string text_of(Duration span);  // the largest unit in which it is whole: "90s", "2m", "0s"

// A number with one of K, M, G, T (powers of 1024; "KiB" and "KB" mean the same); bytes without one. nullopt: not a size.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
std::string text_of_bytes(std::uint64_t bytes);  // the largest unit in which it is whole: "64K", "4097"

// A whole number without other characters.
std::optional<std::int64_t> parse_integer(std::string_view text);
// yes, no, true, false, on, off, 1, 0.
std::optional<bool> parse_flag(std::string_view text);

}  // namespace aiacc
