#include "collectives/inter/select.h"

#include "collectives/inter/algorithms.h"
#include "collectives/inter/coded_allreduce.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/point_to_point.h"
#include "collectives/inter/selector.h"

namespace aiacc::inter {
namespace {

const AlgorithmInfo& algorithm_for(const Operation& op) {
  const Shape shape = shape_of(op);
  return op.team.selector == nullptr ? usual_algorithm(shape) : op.team.selector->choose(shape, position_in(op) == 0);
}

}  // namespace

Task<void> run(Operation& op) {
  switch (op.call.kind) {
    case Collective::kSend: return send(op);
    case Collective::kRecv: return recv(op);
    case Collective::kAllreduce:
      if (fits_coded_allreduce(op)) return coded_allreduce(op);
      break;
    default: break;
  }
  if (algorithms_of(op.call.kind).empty()) throw Error(Code::kInternal, "a collective that this build does not know");
  return algorithm_for(op).run(op);
}

}  // namespace aiacc::inter
