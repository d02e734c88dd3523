// aiaccrun from its arguments to its exit code: options, plan, keeper, head.
#pragma once

namespace aiacc::launcher {

int launch(int argc, char** argv);

}  // namespace aiacc::launcher
