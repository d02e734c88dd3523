#include "runtime/group/dispatch.h"

#include "collectives/hier/select.h"
#include "collectives/intra/select.h"
#include "runtime/group/alone.h"
#include "runtime/group/messages.h"

namespace aiacc {

Task<void> run_call(Operation& operation, Messengers messengers) {
  const Team& team = operation.team;
  const Call& call = operation.call;
  if (is_message(call.kind)) return run_message(operation, messengers);
  if (team.size() == 1) return run_alone(operation);
  if (team.view->hosts() == 1) return intra::run(operation);
  return hier::run(operation);
}

}  // namespace aiacc
