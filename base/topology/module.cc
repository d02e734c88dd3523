// The module aiacc-topology.so: the topology of this machine as JSON, for processes that do not load hwloc.
#include <hwloc.h>

#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "base/topology/topology.h"

namespace aiacc {

namespace {

Json quota_json(const Topology& topology) {
  if (!topology.quota()) return {};
  return Json::Object{{"cpus", topology.quota()->cpus}, {"where", topology.quota()->where}};
}

Json describe() {
  const Topology topology = Topology::load();
  Json::Array cores;
  for (const Topology::Core& core : topology.cores()) {
    cores.push_back(Json::Object{{"units", format_cpus(core.pus)}, {"numa", core.numa}, {"package", core.package}});
  }
  Json::Array notes;
  for (const Topology::Note& note : topology.notes()) notes.emplace_back(note.sentence);
  return Json::Object{{"hwloc", HWLOC_VERSION},
                      {"packages", topology.packages()},
                      {"numa_domains", topology.numa_domains()},
                      {"cores", std::move(cores)},
                      {"units", format_cpus(topology.pus())},
                      {"unit_count", topology.pus().size()},
                      {"usable_cores", topology.usable_cores()},
                      {"quota", quota_json(topology)},
                      {"notes", std::move(notes)}};
}

}  // namespace

}  // namespace aiacc

// The caller must free() the text; null if memory is exhausted.
extern "C" __attribute__((visibility("default"))) char* aiacc_topology_describe() {
  try {
    return strdup(aiacc::describe().text().c_str());
  } catch (...) {
    const aiacc::Json missing = aiacc::Json::Object{{"missing", aiacc::as_error(std::current_exception()).message()}};
    return strdup(missing.text().c_str());
  }
}
