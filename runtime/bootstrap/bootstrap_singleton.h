// SingletonBootstrap: the provider for a world of one rank.
#pragma once

#include "base/task/task.h"
#include "runtime/bootstrap/bootstrap.h"

namespace aiacc {

class SingletonBootstrap final : public Bootstrap {
 public:
  explicit SingletonBootstrap(std::string host_name) : host_name_(std::move(host_name)) {}
  Task<BootstrapResult> join(Stop& stop) override;
  void observe(BootstrapObserver&) noexcept override {}
  Task<void> leave(Instant end, Stop& stop) override;

 private:
  std::string host_name_;
};

}  // namespace aiacc
