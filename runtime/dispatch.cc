#include "runtime/dispatch.h"

#include "collectives/host/select.h"
#include "collectives/hosts/select.h"
#include "runtime/alone.h"
#include "runtime/messages.h"

namespace aiacc {

Task<void> run_call(Operation& operation, Messengers messengers) {
  const Team& team = operation.team;
  const Call& call = operation.call;
  if (is_message(call.kind)) return run_message(operation, messengers);
  if (team.size() == 1) return run_alone(operation);
  if (team.view->hosts() == 1) return host::run(operation);
  return hosts::run(operation);
}

}  // namespace aiacc
