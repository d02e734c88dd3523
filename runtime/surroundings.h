// The environment of this process as one context saw it when it was made: its settings, and what launchers left there.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/config.h"
#include "runtime/runtime_config.h"

namespace aiacc {

class Surroundings {
 public:
  // Throws kInvalidArgument for a setting with a bad value.
  static Surroundings now();

  const Config& settings() const noexcept { return settings_; }
  std::optional<std::string> variable(const std::string& name) const;

 private:
  Surroundings(Config settings, std::map<std::string, std::string> variables)
      : settings_(std::move(settings)), variables_(std::move(variables)) {}

  Config settings_;
  std::map<std::string, std::string> variables_;
};

}  // namespace aiacc
