// Meshes: the ranks of a group as a grid with named axes; axes and products of axes are groups.
#include "bindings/c/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "bindings/c/guard.h"
#include "bindings/c/submit.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/groups.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace aiacc::abi {

int MeshEntry::stride(std::size_t axis) const noexcept {
  int ranks = 1;
  for (std::size_t later = axis + 1; later < sizes.size(); ++later) ranks *= sizes[later];
  return ranks;
}

MeshEntry::MeshEntry(std::shared_ptr<RealContext> of, const Group& on, aiacc_group_t named)
    : context(std::move(of)), parent(named), rank(on.rank()), size(on.size()) {}

int MeshEntry::coordinate(std::size_t axis, int of_rank) const noexcept { return of_rank / stride(axis) % sizes[axis]; }

}  // namespace aiacc::abi

namespace {

using MeshPin = HandleTable<MeshEntry>::Pin;

constexpr std::size_t kMostAxes = 16;

MeshPin pinned_mesh(aiacc_mesh_t mesh) {
  MeshPin pin = state().meshes.find(mesh);
  if (pin) return pin;
  refuse_forked();
  throw Error(Code::kInvalidHandle, is_kind(mesh, HandleKind::kMesh)
                                        ? fmt::format("mesh {:#x} does not exist any more", mesh)
                                        : fmt::format("{:#x} is not the handle of a mesh", mesh));
}

std::string listed(const MeshEntry& mesh) {
  std::string text;
  for (std::size_t axis = 0; axis < mesh.names.size(); ++axis) {
    text += fmt::format("{}'{}' ({})", axis == 0 ? "" : ", ", mesh.names[axis], mesh.sizes[axis]);
  }
  return text;
}

std::size_t axis_of(const MeshEntry& mesh, const char* name) {
  if (name == nullptr) throw Error(Code::kInvalidArgument, "the name of an axis is NULL");
  const auto found = std::find(mesh.names.begin(), mesh.names.end(), name);
  if (found == mesh.names.end()) {
    throw Error(Code::kInvalidArgument, fmt::format("the mesh has no axis '{}'; it has {}", name, listed(mesh)));
  }
  return static_cast<std::size_t>(found - mesh.names.begin());
}

struct Axis {
  std::string name;
  int size;
};

// In the order of the caller's arrays, for sentences about them.
std::vector<Axis> named_axes(std::span<const char* const> names, std::span<const int> sizes) {
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < names.size(); ++i) axes.push_back({names[i] == nullptr ? "" : names[i], sizes[i]});
  return axes;
}

std::vector<Axis> ordered_axes(std::string_view order, std::span<const int> sizes) {
  std::vector<Axis> axes;
  const auto names = static_cast<std::size_t>(std::count(order.begin(), order.end(), '-')) + 1;
  if (names != sizes.size()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("order '{}' names {} axes, and there are {} sizes", order, names, sizes.size()));
  }
  for (const int size : sizes) {
    const std::size_t end = std::min(order.find('-'), order.size());
    axes.push_back({std::string(order.substr(0, end)), size});
    order.remove_prefix(std::min(end + 1, order.size()));
  }
  return axes;
}

// The axis of size 0, if there is one, gets what the others leave of `ranks`. What is wrong otherwise is found by read_axes().
void infer_size(std::vector<Axis>& axes, int ranks) {
  Axis* open = nullptr;
  std::int64_t others = 1;
  for (Axis& axis : axes) {
    if (axis.size == 0) {
      if (open != nullptr) {
        throw Error(
            Code::kInvalidArgument,
            fmt::format("the sizes of '{}' and '{}' are 0: only one size can be left open", open->name, axis.name));
      }
      open = &axis;
    } else {
      others = std::min<std::int64_t>(others * std::max(axis.size, 1), INT32_MAX);
    }
  }
  if (open == nullptr) return;
  if (ranks % others != 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("the axes but '{}' have {} ranks together, which does not divide the parent's {}",
                            open->name, others, ranks));
  }
  open->size = static_cast<int>(ranks / others);
}

void read_axes(MeshEntry& mesh, std::span<const Axis> axes) {
  std::int64_t ranks = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Axis& axis = axes[i];
    if (axis.name.empty())
      throw Error(Code::kInvalidArgument, fmt::format("names[{}] is empty: every axis has a name", i));
    if (std::find(mesh.names.begin(), mesh.names.end(), axis.name) != mesh.names.end())
      throw Error(Code::kInvalidArgument, fmt::format("two axes are called '{}'", axis.name));
    if (axis.size < 1)
      throw Error(Code::kInvalidArgument,
                  fmt::format("sizes[{}] ('{}') is {}: an axis has at least 1", i, axis.name, axis.size));
    mesh.names.push_back(axis.name);
    mesh.sizes.push_back(axis.size);
    // Larger than any group is large enough to say; the product goes no further, so that it does not overflow.
    if (ranks <= INT32_MAX) ranks *= axis.size;
  }
  if (ranks != mesh.size) {
    throw Error(Code::kInvalidArgument,
                fmt::format("the axes {} have {}{} ranks together, but the parent has {}", listed(mesh),
                            ranks > INT32_MAX ? "at least " : "", ranks, mesh.size));
  }
}

// The ranks whose coordinates differ from this rank's on the chosen axes only, in the order of the parent group.
GroupOrder order_of(const MeshEntry& mesh, const std::vector<bool>& chosen) {
  GroupOrder order;
  order.sort = GroupOrder::Sort::kMesh;
  const auto same_elsewhere = [&](int rank) {
    for (std::size_t axis = 0; axis < chosen.size(); ++axis) {
      if (!chosen[axis] && mesh.coordinate(axis, rank) != mesh.coordinate(axis, mesh.rank)) return false;
    }
    return true;
  };
  for (int rank = 0; rank < mesh.size; ++rank) {
    if (same_elsewhere(rank)) order.ranks.push_back(rank);
  }
  for (std::size_t axis = 0; axis < chosen.size(); ++axis) {
    if (chosen[axis]) order.name += (order.name.empty() ? "" : "*") + mesh.names[axis];
  }
  if (order.name.empty()) order.name = "one rank of a mesh";
  return order;
}

aiacc_group_t make_group(const MeshEntry& mesh, const GroupOrder& order) {
  const auto parent = pinned(mesh.parent);
  return name_group(mesh.context, mesh.context->make_group(parent->group, order));
}

// The first and last rank of this rank's row.
GroupOrder ends_of(const MeshEntry& mesh, std::size_t axis) {
  const int stride = mesh.stride(axis);
  const int first = mesh.rank - mesh.coordinate(axis, mesh.rank) * stride;
  GroupOrder order;
  order.sort = GroupOrder::Sort::kMesh;
  order.ranks.push_back(first);
  if (mesh.sizes[axis] > 1) order.ranks.push_back(first + (mesh.sizes[axis] - 1) * stride);
  order.name = "ends of " + mesh.names[axis];
  return order;
}

// Makes the group of the chosen axes if it is not there.
aiacc_group_t group_along(MeshEntry& mesh, const std::vector<bool>& chosen) {
  std::lock_guard lock(mesh.mutex);
  const auto known = mesh.groups.find(chosen);
  if (known != mesh.groups.end() && state().groups.find(known->second)) return known->second;
  return mesh.groups[chosen] = make_group(mesh, order_of(mesh, chosen));
}

std::vector<bool> chosen_axes(const MeshEntry& mesh, std::size_t axes, const char* const* names) {
  std::vector<bool> chosen(mesh.names.size());
  for (std::size_t i = 0; i < axes; ++i) {
    const std::size_t axis = axis_of(mesh, names[i]);
    if (chosen[axis]) throw Error(Code::kInvalidArgument, fmt::format("axis '{}' is named twice", names[i]));
    chosen[axis] = true;
  }
  return chosen;
}

void check_group_out(const aiacc_group_t* group) {
  if (group == nullptr) throw Error(Code::kInvalidArgument, "group is NULL: pass where the handle shall go");
}

void check_new_mesh(const aiacc_mesh_t* mesh, std::size_t axes) {
  if (mesh == nullptr) throw Error(Code::kInvalidArgument, "mesh is NULL: pass where the handle shall go");
  if (axes == 0 || axes > kMostAxes)
    throw Error(Code::kInvalidArgument, fmt::format("axes is {}: a mesh has 1 to {} axes", axes, kMostAxes));
}

// `entry` has its axes.
aiacc_mesh_t name_mesh(std::unique_ptr<MeshEntry> entry) {
  const std::shared_ptr<RealContext> context = entry->context;
  const std::uint64_t handle = state().meshes.insert(std::move(entry));
  try {
    state().made.add(*context, handle);
  } catch (...) {
    state().meshes.find(handle).remove();
    throw;
  }
  return handle;
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_mesh_create(aiacc_group_t parent, size_t axes, const char* const* names, const int* sizes,
                                 aiacc_mesh_t* mesh) {
  return guarded([&] {
    const auto pin = pinned(parent);
    check_new_mesh(mesh, axes);
    if (names == nullptr || sizes == nullptr)
      throw Error(Code::kInvalidArgument, fmt::format("{} is NULL: pass one for each of the {} axes",
                                                      names == nullptr ? "names" : "sizes", axes));
    auto entry = std::make_unique<MeshEntry>(pin->context, pin->group, parent);
    read_axes(*entry, named_axes(std::span(names, axes), std::span(sizes, axes)));
    *mesh = name_mesh(std::move(entry));
  });
}

aiacc_status_t aiacc_mesh_create_ordered(aiacc_group_t parent, const char* order, size_t axes, const int* sizes,
                                         aiacc_mesh_t* mesh) {
  return guarded([&] {
    const auto pin = pinned(parent);
    check_new_mesh(mesh, axes);
    if (order == nullptr || sizes == nullptr)
      throw Error(Code::kInvalidArgument, fmt::format("{} is NULL: pass names as \"tp-dp-pp\" and a size for each",
                                                      order == nullptr ? "order" : "sizes"));
    std::vector<Axis> given = ordered_axes(order, std::span(sizes, axes));
    auto entry = std::make_unique<MeshEntry>(pin->context, pin->group, parent);
    infer_size(given, entry->size);
    read_axes(*entry, given);
    std::reverse(entry->names.begin(), entry->names.end());  // the last axis of a mesh varies fastest
    std::reverse(entry->sizes.begin(), entry->sizes.end());
    *mesh = name_mesh(std::move(entry));
  });
}

aiacc_status_t aiacc_mesh_group(aiacc_mesh_t mesh, size_t axes, const char* const* names, aiacc_group_t* group) {
  return guarded([&] {
    const MeshPin pin = pinned_mesh(mesh);
    check_group_out(group);
    if (axes == 0 || names == nullptr)
      throw Error(Code::kInvalidArgument, fmt::format("no axis is named: the mesh has {}", listed(*pin)));
    *group = group_along(*pin, chosen_axes(*pin, axes, names));
  });
}

aiacc_status_t aiacc_mesh_gradient_group(aiacc_mesh_t mesh, size_t axes, const char* const* split,
                                         aiacc_group_t* group) {
  return guarded([&] {
    const MeshPin pin = pinned_mesh(mesh);
    check_group_out(group);
    if (axes > 0 && split == nullptr)
      throw Error(Code::kInvalidArgument, fmt::format("split is NULL: pass the names of {} axes", axes));
    std::vector<bool> chosen = chosen_axes(*pin, axes, split);
    chosen.flip();
    *group = group_along(*pin, chosen);
  });
}

aiacc_status_t aiacc_mesh_ends_group(aiacc_mesh_t mesh, const char* axis, aiacc_group_t* group) {
  return guarded([&] {
    const MeshPin pin = pinned_mesh(mesh);
    check_group_out(group);
    const std::size_t along = axis_of(*pin, axis);
    const int at = pin->coordinate(along, pin->rank);
    if (at != 0 && at != pin->sizes[along] - 1) {
      *group = AIACC_NULL;
      return;
    }
    std::lock_guard lock(pin->mutex);
    const auto known = pin->ends.find(along);
    if (known != pin->ends.end() && state().groups.find(known->second)) {
      *group = known->second;
      return;
    }
    *group = pin->ends[along] = make_group(*pin, ends_of(*pin, along));
  });
}

aiacc_status_t aiacc_mesh_shift(aiacc_mesh_t mesh, const char* axis, int distance, int* rank) {
  return guarded([&] {
    const MeshPin pin = pinned_mesh(mesh);
    if (rank == nullptr) throw Error(Code::kInvalidArgument, "rank is NULL: pass where the number shall go");
    const std::size_t along = axis_of(*pin, axis);
    const std::int64_t at = std::int64_t{pin->coordinate(along, pin->rank)} + distance;
    *rank = at < 0 || at >= pin->sizes[along] ? -1 : pin->rank + distance * pin->stride(along);
  });
}

aiacc_status_t aiacc_mesh_coordinate(aiacc_mesh_t mesh, const char* axis, int* index) {
  return guarded([&] {
    const MeshPin pin = pinned_mesh(mesh);
    if (index == nullptr) throw Error(Code::kInvalidArgument, "index is NULL: pass where the number shall go");
    *index = pin->coordinate(axis_of(*pin, axis), pin->rank);
  });
}

aiacc_status_t aiacc_mesh_free(aiacc_mesh_t mesh) {
  return guarded([&] {
    MeshPin pin = pinned_mesh(mesh);
    if (!pin.remove()) throw Error(Code::kInvalidHandle, fmt::format("mesh {:#x} does not exist any more", mesh));
    state().made.drop(*pin->context, mesh);
    std::lock_guard lock(pin->mutex);
    const auto free_if_there = [](aiacc_group_t group) {
      auto held = state().groups.find(group);
      if (held) free_group(std::move(held), group);
    };
    for (const auto& [axes, group] : pin->groups) free_if_there(group);
    for (const auto& [axis, group] : pin->ends) free_if_there(group);
    pin->context->collect_groups();
  });
}

}  // extern "C"
