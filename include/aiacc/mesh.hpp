// Meshes: the ranks of a group by coordinates. Part of aiacc.hpp.
#ifndef AIACC_MESH_HPP
#define AIACC_MESH_HPP

#include <aiacc/aiacc.h>
#include <aiacc/error.hpp>
#include <aiacc/group.hpp>

#include <initializer_list>
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
  int coordinate(const char *axis) const {
    int index = 0;
    check(aiacc_mesh_coordinate(handle_, axis, &index));
    return index;
  }

 private:
  aiacc_mesh_t handle_ = AIACC_NULL;
};

}  // namespace v0
}  // namespace aiacc

#endif
