// Which algorithm serves a call: alone, on one host, between hosts, or both.
#pragma once

#include "base/task/task.h"
#include "collectives/operation.h"

namespace aiacc {

class HostPost;
class Loopback;
class PairSequences;

// How the messages of one group travel.
struct Messengers {
  Loopback& loopback;
  HostPost* host;  // null if this rank is alone on its host
  PairSequences& pairs;
};

// `operation` outlives the task. Of a message to or from another host its sequence becomes the pair's.
Task<void> run_call(Operation& operation, Messengers messengers);

}  // namespace aiacc
