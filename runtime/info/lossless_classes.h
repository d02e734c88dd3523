// Whether this host's devices do what the setting of a traffic class says of the network, that it loses none of its packets: whether
// priority flow control (PFC) is on for the priority that they have.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/io/priority_pause.h"
#include "base/io/traffic_marks.h"
#include "runtime/info/finding.h"

namespace aiacc::info {

struct LosslessDevice {
  std::string device;
  std::optional<int> priority;  // of the class's packets there; nullopt: the device says nothing of PFC
  bool on = false;              // PFC, for that priority
};

// What the device's driver says. A test gives another one.
using AskDevice = std::function<io::PriorityPause(const std::string& device)>;

// Empty unless the class is said to be lossless.
std::vector<LosslessDevice> lossless_on(const io::TrafficMarks& marks, std::span<const std::string> devices,
                                        const AskDevice& ask = io::priority_pause);
// `setting`: that of the class, which the findings are about.
Findings judge(const std::string& setting, const io::TrafficMarks& marks, std::span<const LosslessDevice> devices);

}  // namespace aiacc::info
