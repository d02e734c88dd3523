// Meshes: the ranks of a group as a grid with named axes; axes and products of axes are groups.
#include "bindings/c/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "bindings/c/guard.h"
#include "bindings/c/submit.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace aiacc::abi {

int MeshEntry::coordinate(std::size_t axis, int of_rank) const noexcept {
  for (std::size_t later = sizes.size() - 1; later > axis; --later) of_rank /= sizes[later];
  return of_rank % sizes[axis];
}

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

void read_axes(MeshEntry& mesh, std::span<const char* const> names, std::span<const int> sizes) {
  std::int64_t ranks = 1;
  for (std::size_t axis = 0; axis < names.size(); ++axis) {
    if (names[axis] == nullptr || *names[axis] == '\0')
      throw Error(Code::kInvalidArgument, fmt::format("names[{}] is empty: every axis has a name", axis));
    if (std::find(mesh.names.begin(), mesh.names.end(), names[axis]) != mesh.names.end())
      throw Error(Code::kInvalidArgument, fmt::format("two axes are called '{}'", names[axis]));
    if (sizes[axis] < 1)
      throw Error(Code::kInvalidArgument,
                  fmt::format("sizes[{}] ('{}') is {}: an axis has at least 1", axis, names[axis], sizes[axis]));
    mesh.names.emplace_back(names[axis]);
    mesh.sizes.push_back(sizes[axis]);
    ranks = std::min<std::int64_t>(ranks * sizes[axis], INT32_MAX);
  }
  if (ranks != mesh.size) {
    throw Error(Code::kInvalidArgument, fmt::format("the axes {} have {} ranks together, but the parent has {}",
                                                    listed(mesh), ranks, mesh.size));
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
  return order;
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_mesh_create(aiacc_group_t parent, size_t axes, const char* const* names, const int* sizes,
                                 aiacc_mesh_t* mesh) {
  return guarded([&] {
    const auto pin = pinned(parent);
    if (mesh == nullptr) throw Error(Code::kInvalidArgument, "mesh is NULL: pass where the handle shall go");
    if (axes == 0 || axes > kMostAxes)
      throw Error(Code::kInvalidArgument, fmt::format("axes is {}: a mesh has 1 to {} axes", axes, kMostAxes));
    if (names == nullptr || sizes == nullptr)
      throw Error(Code::kInvalidArgument, fmt::format("{} is NULL: pass one for each of the {} axes",
                                                      names == nullptr ? "names" : "sizes", axes));
    auto entry = std::make_unique<MeshEntry>(pin->context, pin->group, parent);
    read_axes(*entry, std::span(names, axes), std::span(sizes, axes));
    const std::uint64_t handle = state().meshes.insert(std::move(entry));
    try {
      state().made.add(*pin->context, handle);
    } catch (...) {
      state().meshes.find(handle).remove();
      throw;
    }
    *mesh = handle;
  });
}

aiacc_status_t aiacc_mesh_group(aiacc_mesh_t mesh, size_t axes, const char* const* names, aiacc_group_t* group) {
  return guarded([&] {
    const MeshPin pin = pinned_mesh(mesh);
    if (group == nullptr) throw Error(Code::kInvalidArgument, "group is NULL: pass where the handle shall go");
    if (axes == 0 || names == nullptr)
      throw Error(Code::kInvalidArgument, fmt::format("no axis is named: the mesh has {}", listed(*pin)));
    std::vector<bool> chosen(pin->names.size());
    for (std::size_t i = 0; i < axes; ++i) {
      const std::size_t axis = axis_of(*pin, names[i]);
      if (chosen[axis]) throw Error(Code::kInvalidArgument, fmt::format("axis '{}' is named twice", names[i]));
      chosen[axis] = true;
    }
    std::lock_guard lock(pin->mutex);
    const auto known = pin->groups.find(chosen);
    if (known != pin->groups.end() && state().groups.find(known->second)) {
      *group = known->second;
      return;
    }
    const auto parent = pinned(pin->parent);
    Group& made = pin->context->make_group(parent->group, order_of(*pin, chosen));
    *group = pin->groups[chosen] = name_group(pin->context, made);
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
    for (const auto& [axes, group] : pin->groups) {
      auto held = state().groups.find(group);
      if (held) free_group(std::move(held), group);
    }
    pin->context->collect_groups();
  });
}

}  // extern "C"
