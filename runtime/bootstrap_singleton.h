// The provider of a world of one: nobody to meet.
#pragma once

#include "base/task/task.h"
#include "runtime/bootstrap.h"

namespace aiacc {

class SingletonBootstrap final : public Bootstrap {
 public:
  explicit SingletonBootstrap(std::string host_name) : host_name_(std::move(host_name)) {}
  Task<Birth> join(Stop& stop) override;
  void observe(BirthObserver&) noexcept override {}
  Task<void> leave(Stop& stop) override;

 private:
  std::string host_name_;
};

}  // namespace aiacc
