// Chooses where a call runs: on this rank alone, on one host, between hosts, or both.
#pragma once

#include "base/task/task.h"
#include "collectives/operation.h"

namespace aiacc {

class AnyReceives;
class IntraMessages;
class Loopback;
class PairSequences;

// The ways of point-to-point messages in one group.
struct Messengers {
  Loopback& loopback;
  IntraMessages* host;  // null if this rank is alone on its host
  PairSequences& pairs;
  AnyReceives& any_source;
};

// `operation` outlives the task. For a message to or from another host, the operation's sequence is replaced by the
// pair's.
Task<void> run_call(Operation& operation, Messengers messengers);

}  // namespace aiacc
