// Ranks of one job, for tests of bootstrap providers.
#pragma once

#include <vector>

#include "base/io/real_loop.h"
#include "runtime/bootstrap/bootstrap.h"

namespace aiacc {
namespace conformance {

// Ranks of one job whose providers share a loop.
class BootstrapWorld {
 public:
  virtual ~BootstrapWorld() = default;
  virtual int size() const = 0;
  virtual Bootstrap& provider(int rank) = 0;
  virtual Loop& loop() = 0;
  // Drives until all have ended; rethrows the first error.
  virtual void run(std::vector<Task<void>> tasks) = 0;
  // Ends the rank's process without an orderly shutdown. False if this provider's ranks cannot die one by one.
  virtual bool kill(int rank) = 0;
};

}  // namespace conformance

// Worlds on one real loop.
class RealWorld : public conformance::BootstrapWorld {
 public:
  Loop& loop() override { return loop_; }
  void run(std::vector<Task<void>> tasks) override {
    for (Task<void>& task : tasks) task.start();
    for (Task<void>& task : tasks) loop_.run_until([&task] { return task.done(); });
    for (Task<void>& task : tasks) task.take();
  }
  bool kill(int) override { return false; }

 protected:
  io::RealLoop loop_;
};

}  // namespace aiacc
