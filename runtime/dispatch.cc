#include "runtime/dispatch.h"

#include <fmt/format.h>

#include "collectives/host/host_post.h"
#include "collectives/host/select.h"
#include "runtime/alone.h"

namespace aiacc {

Task<void> run_call(Operation& operation, Messengers messengers) {
  const Team& team = operation.team;
  const Call& call = operation.call;
  if (call.kind == Collective::kSend || call.kind == Collective::kRecv) {
    if (call.root == team.rank) return messengers.loopback.run(operation);
    if (messengers.host != nullptr && messengers.host->reaches(call.root)) {
      return call.kind == Collective::kSend ? messengers.host->send(operation) : messengers.host->recv(operation);
    }
  } else {
    if (team.size() == 1) return run_alone(operation);
    if (team.host != nullptr && team.host->is_whole_group()) return host::run(operation);
  }
  throw Error(Code::kUnsupported,
              fmt::format("{}: this version serves groups whose ranks share one host, and this one has {}",
                          call.describe(), team.view->hosts()));
}

}  // namespace aiacc
