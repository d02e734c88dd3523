// The traffic classes between hosts: what is set for each, what this host grants of it, and which queueing disciplines its devices have.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/io/traffic_marks.h"
#include "base/json.h"
#include "runtime/info/finding.h"
#include "runtime/info/lossless_classes.h"

namespace aiacc::info {

struct ClassReport {
  std::string name;     // "control"
  std::string setting;  // "AIACC_TC_CTRL"
  io::TrafficMarks marks;
  std::string connection;  // the class whose connections its messages take: its own name, or another one's
  std::string refused;     // what this host does not grant, a sentence; or ""
  std::vector<LosslessDevice> lossless = {};  // of a class that is said to be lossless, the devices to other hosts
};

struct QueueingDiscipline {
  std::string device;
  std::string kind;  // of the root: "fq", "pfifo_fast", "noqueue"
};

// What mark_traffic says about a connection with these marks. A test gives another one.
using TryMarks = std::function<std::string(const io::TrafficMarks&)>;
std::string try_on_a_socket(const io::TrafficMarks& marks);

// `devices`: those by which other hosts reach this one.
std::vector<ClassReport> traffic_classes(const ConfigValues& values, std::span<const std::string> devices = {},
                                         const TryMarks& try_marks = try_on_a_socket);
std::vector<QueueingDiscipline> queueing_disciplines();  // empty if the kernel does not tell
// The root disciplines among the messages of a dump by rtnetlink. Messages that are cut off end it.
std::vector<QueueingDiscipline> read_disciplines(std::span<const std::byte> dump,
                                                 const std::function<std::string(unsigned)>& name_of_device);

Json to_json(const std::vector<ClassReport>& classes, const std::vector<QueueingDiscipline>& disciplines);
Findings judge(const std::vector<ClassReport>& classes);

}  // namespace aiacc::info
