// The Python packages of --provide: names under which aiacc stands in for another library, each in a folder that goes in
// front of the ranks' PYTHONPATH. That of gloo, a back end of torch.distributed, has no package: Python runs its sitecustomize.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/environment.h"

namespace aiacc::launcher {

// Puts the packages' folders, first those of the first name, in front of PYTHONPATH. They are found from `program`, the
// file of the aiaccrun on this host. Throws LaunchError if one is missing.
void provide_packages(std::span<const std::string> names, const std::string& program, std::string_view host,
                      Environment& environment);

}  // namespace aiacc::launcher
