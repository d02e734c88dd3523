// RealHost: Host over the kernel. Ends of children are told by pidfds, stops by SIGCHLD through a signalfd; nothing here
// polls or sleeps.
//
// The thread that calls spawn() is the one whose end kills children that die with their parent. adopt_orphans() and
// Process::stopped() block SIGCHLD in the calling thread. The host outlives its processes' objects.
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
  void watch_children();  // from now on SIGCHLD is looked at
  void ready(Ready) noexcept override;
  void reap_strangers() noexcept;
  void reap_abandoned() noexcept;

  RealLoop& loop_;
  Fd children_;  // signalfd of SIGCHLD, once somebody needs it
  bool adopts_ = false;
  IntrusiveList<RealProcess> processes_;
  std::vector<ProcessId> abandoned_;  // their Process was destroyed while they ran: zombies of ours when they end
};

}  // namespace aiacc::io
