#include "runtime/surroundings.h"

#include <vector>

namespace aiacc {

Surroundings Surroundings::now() {
  const std::vector<std::string> environment = process_environment();
  std::map<std::string, std::string> variables;
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return Surroundings(Config::read(environment), std::move(variables));
}

std::optional<std::string> Surroundings::variable(const std::string& name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

}  // namespace aiacc
