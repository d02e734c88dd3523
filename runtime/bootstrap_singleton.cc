#include "runtime/bootstrap_singleton.h"

namespace aiacc {

Task<Birth> SingletonBootstrap::join(Stop& stop) {
  stop.throw_if_requested();
  Birth birth;
  birth.world = std::make_shared<const View>(0, 0, 0, 0, std::vector<Member>(1));
  birth.job_name = "singleton";
  birth.host_name = host_name_;
  co_return birth;
}

Task<void> SingletonBootstrap::leave(Stop&) { co_return; }

}  // namespace aiacc
