// Meshes: the ranks of a group by coordinates. Part of aiacc.hpp.
#ifndef AIACC_MESH_HPP
#define AIACC_MESH_HPP

#include <aiacc/aiacc.h>
#include <aiacc/error.hpp>
#include <aiacc/group.hpp>

#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace aiacc {
inline namespace v0 {

// The ranks of a group as a grid with named axes; the last axis varies fastest.
class Mesh {
 public:
  using Axis = std::pair<const char *, int>;

  Mesh(const Group &parent, std::span<const Axis> axes) {
    std::vector<const char *> names;
    std::vector<int> sizes;
    for (const Axis &axis : axes) {
      names.push_back(axis.first);
      sizes.push_back(axis.second);
    }
    check(aiacc_mesh_create(parent.handle(), axes.size(), names.data(), sizes.data(), &handle_));
  }
  Mesh(const Group &parent, std::initializer_list<Axis> axes) : Mesh(parent, std::span(axes.begin(), axes.size())) {}
  // Axes in an order as Megatron writes it, the first of which varies fastest: ordered(world, "tp-dp-pp", {2, 0, 4}). One size may
  // be 0: as many as the others leave.
  static Mesh ordered(const Group &parent, const char *order, std::initializer_list<int> sizes) {
    Mesh made;
    check(aiacc_mesh_create_ordered(parent.handle(), order, sizes.size(), sizes.begin(), &made.handle_));
    return made;
  }
  Mesh(Mesh &&other) noexcept : handle_(std::exchange(other.handle_, AIACC_NULL)) {}
  Mesh &operator=(Mesh &&other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Mesh() {
    if (handle_ != AIACC_NULL) aiacc_mesh_free(handle_);
  }

  // The group of this rank and those whose coordinates differ along these axes only; valid as long as the mesh.
  Group group(std::initializer_list<const char *> axes) const {
    aiacc_group_t group = AIACC_NULL;
    check(aiacc_mesh_group(handle_, axes.size(), axes.begin(), &group));
    return Group::named(group);
  }
  // The group in which the gradient of a parameter is reduced that ranks along the axes `split` have split between them.
  Group gradient_group(std::initializer_list<const char *> split) const {
    aiacc_group_t group = AIACC_NULL;
    check(aiacc_mesh_gradient_group(handle_, split.size(), split.begin(), &group));
    return Group::named(group);
  }
  // The first and the last rank of a row, as of a pipeline; nullopt on the ranks between them.
  std::optional<Group> ends(const char *axis) const {
    aiacc_group_t group = AIACC_NULL;
    check(aiacc_mesh_ends_group(handle_, axis, &group));
    if (group == AIACC_NULL) return std::nullopt;
    return Group::named(group);
  }
  // The parent's number of the rank so much further along an axis; -1 beyond the ends.
  int shift(const char *axis, int distance) const {
    int rank = -1;
    check(aiacc_mesh_shift(handle_, axis, distance, &rank));
    return rank;
  }
  int coordinate(const char *axis) const {
    int index = 0;
    check(aiacc_mesh_coordinate(handle_, axis, &index));
    return index;
  }

 private:
  Mesh() = default;
  aiacc_mesh_t handle_ = AIACC_NULL;
};

}  // namespace v0
}  // namespace aiacc

#endif
