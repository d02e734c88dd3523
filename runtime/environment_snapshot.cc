#include "runtime/environment_snapshot.h"

#include <vector>

namespace aiacc {

EnvironmentSnapshot EnvironmentSnapshot::now() {
  const std::vector<std::string> environment = process_environment();
  std::map<std::string, std::string> variables;
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return EnvironmentSnapshot(Config::read(environment), std::move(variables));
}

std::optional<std::string> EnvironmentSnapshot::variable(const std::string& name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

}  // namespace aiacc
