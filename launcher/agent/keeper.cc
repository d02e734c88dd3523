#include "launcher/agent/keeper.h"

#include "launcher/agent/process_tree.h"
#include "launcher/head/escalation.h"

namespace aiacc::launcher {

Task<io::ExitStatus> keep(Loop& loop, io::Host& host, io::SpawnSpec agent, void (*started)(), Stop& stop) {
  host.adopt_orphans();
  const std::unique_ptr<io::Process> process = host.spawn(agent);
  started();
  const io::ExitStatus status = co_await process->wait(stop);
  co_await end_descendants(loop, host, kShortGrace, stop);
  co_return status;
}

}  // namespace aiacc::launcher
