// aiaccrun, or one of the roles (keeper, agent) that it starts from the same file.
#include "launcher/launch.h"
#include "launcher/roles.h"

int main(int argc, char** argv) {
  using namespace aiacc::launcher;
  if (is_role(argc, argv)) return run_role(argc, argv);
  return launch(argc, argv);
}
