#include "base/topology/topology.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "base/topology/quota.h"

namespace aiacc {

namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Tree = std::unique_ptr<hwloc_topology, DestroyTopology>;

// Discovers only what a plan needs, because caches, devices and other objects cost start-up time.
Tree make_tree() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw system_error("hwloc cannot be initialised", errno);
  Tree tree(raw);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  return tree;
}

void load_tree(const Tree& tree, const char* what) {
  if (hwloc_topology_load(tree.get()) != 0) throw system_error(fmt::format("hwloc cannot load {}", what), errno);
}

void restrict_tree(const Tree& tree, const io::CpuList& allowed) {
  if (allowed.empty()) return;
  const hwloc_bitmap_t set = hwloc_bitmap_alloc();
  for (const unsigned pu : allowed) hwloc_bitmap_set(set, pu);
  const int failed = hwloc_topology_restrict(tree.get(), set, 0);
  hwloc_bitmap_free(set);
  if (failed != 0) throw Error(Code::kInvalidArgument, "no processing unit of the topology is allowed");
}

// By default hwloc respects the cpuset of the control group, but not the inherited mask. The calling thread's mask is
// used: RESTRICT_TO_CPUBINDING would take the union over all threads, also those of a profiler or a sanitizer. A
// synthetic machine (HWLOC_SYNTHETIC) has no mask: all of it is usable.
void restrict_to_own_mask(const Tree& tree) {
  const hwloc_bitmap_t set = hwloc_bitmap_alloc();
  const bool known = hwloc_get_cpubind(tree.get(), set, HWLOC_CPUBIND_THREAD) == 0;
  const bool failed = known && hwloc_topology_restrict(tree.get(), set, 0) != 0;
  hwloc_bitmap_free(set);
  if (failed) throw Error(Code::kSystem, "this thread's CPU mask names no processing unit of the machine");
}

// Numbers objects 0, 1, 2 … in the order of their first use.
class Numbering {
 public:
  unsigned of(hwloc_obj_t object) {
    return numbers_.try_emplace(object, static_cast<unsigned>(numbers_.size())).first->second;
  }
  unsigned count() const { return static_cast<unsigned>(numbers_.size()); }

 private:
  std::map<hwloc_obj_t, unsigned> numbers_;  // never iterated, because its order depends on addresses
};

// The first NUMA domain with the unit. Two kinds of memory beside the same cores are one domain here; domains without
// units (device memory) are left out.
hwloc_obj_t domain_of(const Tree& tree, unsigned pu) {
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(tree.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    if (hwloc_bitmap_isset(node->cpuset, pu) != 0) return node;
  }
  return nullptr;
}

std::optional<std::string> read_whole(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

class TopologyReader {
 public:
  static Topology read(const Tree& tree) {
    Topology topology;
    Numbering cores, domains, packages;
    bool core_missing = false;
    bool package_missing = false;
    hwloc_obj_t pu = nullptr;
    while ((pu = hwloc_get_next_obj_by_type(tree.get(), HWLOC_OBJ_PU, pu)) != nullptr) {
      const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(tree.get(), HWLOC_OBJ_CORE, pu);
      const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(tree.get(), HWLOC_OBJ_PACKAGE, pu);
      core_missing |= core == nullptr;
      package_missing |= package == nullptr;
      const unsigned number = cores.of(core != nullptr ? core : pu);
      if (number == topology.cores_.size()) topology.cores_.emplace_back();
      Topology::Core& mine = topology.cores_[number];
      mine.pus.push_back(pu->os_index);
      mine.numa = domains.of(domain_of(tree, pu->os_index));
      mine.package = packages.of(package);
    }
    AIACC_INVARIANT(!topology.cores_.empty(), "hwloc shows no processing unit");
    for (Topology::Core& core : topology.cores_) std::sort(core.pus.begin(), core.pus.end());
    std::stable_sort(topology.cores_.begin(), topology.cores_.end(),
                     [](const Topology::Core& a, const Topology::Core& b) {
                       return std::pair(a.package, a.numa) < std::pair(b.package, b.numa);
                     });
    topology.numa_domains_ = domains.count();
    topology.packages_ = packages.count();
    if (core_missing) {
      topology.notes_.push_back(
          {Topology::Note::Level::kCore,
           "this machine shows no cores (a virtual one?), each processing unit counts as a core"});
    }
    if (package_missing) {
      topology.notes_.push_back({Topology::Note::Level::kPackage,
                                 "this machine shows no packages (a virtual one?), all of it counts as one package"});
    }
    return topology;
  }
};

Topology Topology::load() {
  const Tree tree = make_tree();
  load_tree(tree, "the topology of this machine");
  restrict_to_own_mask(tree);
  Topology topology = TopologyReader::read(tree);
  topology.quota_ = read_cpu_quota(read_whole);
  return topology;
}

Topology Topology::synthetic(const std::string& description, const CpuList& allowed) {
  const Tree tree = make_tree();
  if (hwloc_topology_set_synthetic(tree.get(), description.c_str()) != 0) {
    throw Error(Code::kInvalidArgument, fmt::format("'{}' is no description of a topology", description));
  }
  load_tree(tree, "a synthetic topology");
  restrict_tree(tree, allowed);
  return TopologyReader::read(tree);
}

Topology Topology::from_xml(const std::string& xml, const CpuList& allowed) {
  const Tree tree = make_tree();
  const int length = static_cast<int>(xml.size()) + 1;  // hwloc counts the terminating zero
  if (hwloc_topology_set_xmlbuffer(tree.get(), xml.c_str(), length) != 0) {
    throw Error(Code::kInvalidArgument, "the text is no topology in hwloc's XML");
  }
  load_tree(tree, "a topology from XML");
  restrict_tree(tree, allowed);
  return TopologyReader::read(tree);
}

Topology::CpuList Topology::pus() const {
  CpuList all;
  for (const Core& core : cores_) all.insert(all.end(), core.pus.begin(), core.pus.end());
  std::sort(all.begin(), all.end());
  return all;
}

bool Topology::quota_below_mask() const { return quota_ && quota_->cpus < static_cast<double>(pus().size()); }

unsigned Topology::usable_cores() const {
  const unsigned cores = static_cast<unsigned>(cores_.size());
  if (!quota_below_mask()) return cores;
  return std::clamp(static_cast<unsigned>(quota_->cpus), 1u, cores);
}

std::string format_cpus(const io::CpuList& cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", cpus[first]) : fmt::format("{}-{}", cpus[first], cpus[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace aiacc
