// TimelineNames: what the spans of a gradient are called. Horovod's names where the file was asked for by HOROVOD_TIMELINE, so that
// what reads its timelines finds them.
#pragma once

namespace aiacc {

struct TimelineNames {
  const char* pack = "pack";
  const char* wait = "wait";
  const char* negotiate = "negotiate";
  const char* queue = "queue";
  const char* reduce = "reduce";
  const char* unpack = "unpack";
  const char* round = "round";
  const char* round_begins = nullptr;  // a mark, too

  static constexpr TimelineNames of_horovod() {
    return {"MEMCPY_IN_FUSION_BUFFER",  "WAIT_FOR_DATA", "NEGOTIATE_ALLREDUCE", "QUEUE", "ALLREDUCE",
            "MEMCPY_OUT_FUSION_BUFFER", "round",         "CYCLE_START"};
  }
};

}  // namespace aiacc
