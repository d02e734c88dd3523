// Parses option values: numbers, times, variables, choices. Each function throws UsageError, whose sentence contains
// `typed`, the option as the user wrote it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/options.h"

namespace aiacc::launcher {

int parse_count(std::string_view typed, std::string_view text);
int parse_limit(std::string_view typed, std::string_view text);       // 0 and more
int parse_input_rank(std::string_view typed, std::string_view text);  // kNoRank for "none"
Duration parse_seconds(std::string_view typed, std::string_view text);
CooldownRange parse_cooldown(std::string_view typed, std::string_view first, std::string_view longest);
Forward parse_forward(std::string_view typed, std::string_view text);
MapBy parse_map_by(std::string_view typed, std::string_view text);
BindTo parse_bind_to(std::string_view typed, std::string_view text);
CompatEnv parse_compat_env(std::string_view typed, std::string_view text);
std::vector<std::string> parse_provide(std::string_view typed, std::string_view text);

}  // namespace aiacc::launcher
