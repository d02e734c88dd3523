#include "runtime/bootstrap/bootstrap_singleton.h"

namespace aiacc {

Task<BootstrapResult> SingletonBootstrap::join(Stop& stop) {
  stop.throw_if_requested();
  BootstrapResult bootstrapped;
  bootstrapped.world = std::make_shared<const View>(0, 0, 0, 0, std::vector<Member>(1));
  bootstrapped.job_name = "singleton";
  bootstrapped.host_name = host_name_;
  co_return bootstrapped;
}

Task<void> SingletonBootstrap::leave(Instant, Stop&) { co_return; }

}  // namespace aiacc
