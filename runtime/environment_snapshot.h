// EnvironmentSnapshot: the environment of this process when a context was created: its settings and the variables of
// launchers.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/config.h"
#include "runtime/runtime_config.h"

namespace aiacc {

class EnvironmentSnapshot {
 public:
  // Throws kInvalidArgument for a setting with a bad value.
  static EnvironmentSnapshot now();

  RuntimeConfig runtime_config() const {
    return RuntimeConfig::from(settings_, [this](const std::string& name) { return variable(name); });
  }
  const Config& settings() const noexcept { return settings_; }
  std::optional<std::string> variable(const std::string& name) const;

 private:
  EnvironmentSnapshot(Config settings, std::map<std::string, std::string> variables)
      : settings_(std::move(settings)), variables_(std::move(variables)) {}

  Config settings_;
  std::map<std::string, std::string> variables_;
};

}  // namespace aiacc
