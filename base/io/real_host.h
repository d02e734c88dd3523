// RealHost: the real Host. It learns of ends of children by pidfds, and of stops by SIGCHLD through a signalfd; nothing
// here polls or sleeps.
//
// Children with die_with_parent are killed when the thread that called spawn() ends. adopt_orphans() and
// Process::stopped() block SIGCHLD in the calling thread. The host must outlive its Process objects.
#pragma once

#include <vector>

#include "base/fd.h"
#include "base/io/host.h"
#include "base/io/real_loop.h"

namespace aiacc::io {

class RealProcess;

class RealHost final : public Host, private Watch {
 public:
  explicit RealHost(RealLoop& loop);
  ~RealHost() override;

  std::string name() const override;
  void adopt_orphans() override;
  std::unique_ptr<Process> spawn(const SpawnSpec& spec) override;
  std::vector<ProcessId> descendants() override;
  void signal(ProcessId process, int number) noexcept override;
  char state(ProcessId process) override;
  std::optional<std::string> read_file(const std::string& path) override;

 private:
  friend class RealProcess;
  void watch_children();  // starts handling SIGCHLD
  void ready(Ready) noexcept override;
  void reap_adopted() noexcept;
  void reap_abandoned() noexcept;

  RealLoop& loop_;
  Fd children_;  // signalfd of SIGCHLD, created when first needed
  bool adopts_ = false;
  IntrusiveList<RealProcess> processes_;
  std::vector<ProcessId> abandoned_;  // running children whose Process was destroyed: to be reaped when they end
};

}  // namespace aiacc::io
