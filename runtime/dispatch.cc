#include "runtime/dispatch.h"

#include "collectives/host/host_post.h"
#include "collectives/host/select.h"
#include "collectives/hosts/select.h"
#include "collectives/net/point_to_point.h"
#include "runtime/alone.h"
#include "runtime/pair_sequences.h"
#include "transports/exchange.h"

namespace aiacc {

Task<void> run_call(Operation& operation, Messengers messengers) {
  const Team& team = operation.team;
  const Call& call = operation.call;
  if (call.kind == Collective::kSend || call.kind == Collective::kRecv) {
    const bool sends = call.kind == Collective::kSend;
    if (call.root == team.rank) return messengers.loopback.run(operation);
    if (messengers.host != nullptr && messengers.host->reaches(call.root)) {
      return sends ? messengers.host->send(operation) : messengers.host->recv(operation);
    }
    operation.sequence = messengers.pairs.next(call) | Exchange::kPairSequence;
    return sends ? net::send(operation) : net::recv(operation);
  }
  if (team.size() == 1) return run_alone(operation);
  if (team.view->hosts() == 1) return host::run(operation);
  return hosts::run(operation);
}

}  // namespace aiacc
