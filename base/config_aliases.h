// Variables of Horovod and of AIACC-Training 1 (PERSEUS_*), in one table: those that mean a setting of aiacc set it, and
// the others are told to have no effect. A variable AIACC_* overrides them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace aiacc {

struct ConfigAlias {
  // The setting's value for the alias's. Nothing: aiacc cannot do that. Empty: it asks for nothing.
  using Translate = std::optional<std::string> (*)(std::string_view);

  std::string_view name;
  std::string_view setting;  // AIACC_*; empty, or not in config_table(): no effect
  Translate translate;       // null without a setting
  std::string_view example;  // a value that is translated, for tests; empty without a setting
  std::string_view help;     // whole sentences: what its values become, or why it has no effect
};

std::span<const ConfigAlias> config_aliases();

// The list of these variables in aiacc-env(7), in mdoc. A test compares the page with it.
std::string config_aliases_mdoc();

}  // namespace aiacc
