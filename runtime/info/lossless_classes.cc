#include "runtime/info/lossless_classes.h"

#include <fmt/format.h>

namespace aiacc::info {
namespace {

Finding finding_of(const std::string& setting, const io::TrafficMarks& marks, const LosslessDevice& one) {
  Finding found{Finding::Level::kNote, setting, {}, {}};
  if (!one.priority) {
    found.sentence =
        fmt::format("it says lossless=yes, but {} says nothing of priority flow control (PFC)", one.device);
    found.cure =
        "leave lossless=yes out, unless another device on the way has it: what is lost is sent again either way";
    return found;
  }
  const std::string which =
      marks.dscp ? fmt::format("priority {}, which its packets have (DSCP {})", *one.priority, *marks.dscp)
                 : fmt::format("priority {}, which its packets have", *one.priority);
  if (one.on) {
    found.sentence = fmt::format("{} has PFC on {}", one.device, which);
    found.cure = "give RDMA another priority: TCP that fills a lossless one has the network pause all that shares it";
  } else {
    found.sentence = fmt::format("it says lossless=yes, but {} has no PFC on {}: a full switch loses some of them",
                                 one.device, which);
    found.cure =
        fmt::format("dcb pfc set dev {} prio-pfc {}:on, and the same at the switches, or leave lossless=yes out",
                    one.device, *one.priority);
  }
  return found;
}

}  // namespace

std::vector<LosslessDevice> lossless_on(const io::TrafficMarks& marks, std::span<const std::string> devices,
                                        const AskDevice& ask) {
  std::vector<LosslessDevice> all;
  if (!marks.is_lossless()) return all;
  for (const std::string& device : devices) {
    const io::PriorityPause pause = ask(device);
    LosslessDevice& one = all.emplace_back(LosslessDevice{device, {}, false});
    if (!pause.enabled) continue;
    one.priority = marks.dscp ? pause.priority_of(*marks.dscp) : marks.priority.value_or(0);
    one.on = *one.priority < 8 && pause.on(*one.priority);
  }
  return all;
}

Findings judge(const std::string& setting, const io::TrafficMarks& marks, std::span<const LosslessDevice> devices) {
  Findings findings;
  for (const LosslessDevice& one : devices) findings.push_back(finding_of(setting, marks, one));
  return findings;
}

}  // namespace aiacc::info
