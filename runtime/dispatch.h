// Which algorithm serves a call: alone, on one host, or over messages.
#pragma once

#include "base/task/task.h"
#include "collectives/operation.h"

namespace aiacc {

class HostPost;
class Loopback;

// How the messages of one group travel.
struct Messengers {
  Loopback& loopback;
  HostPost* host;  // null if this rank is alone on its host
};

// `operation` outlives the task.
Task<void> run_call(Operation& operation, Messengers messengers);

}  // namespace aiacc
