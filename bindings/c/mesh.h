// The object behind a mesh handle.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/c/state.h"

namespace aiacc::abi {

struct MeshEntry {
  MeshEntry(std::shared_ptr<RealContext> of, const Group& on, aiacc_group_t named);
  // The coordinate on `axis` of the rank with number `of_rank` in the mesh.
  int coordinate(std::size_t axis, int of_rank) const noexcept;
  // The distance in ranks of two neighbours along `axis`.
  int stride(std::size_t axis) const noexcept;

  std::shared_ptr<RealContext> context;
  aiacc_group_t parent;  // may be freed before the mesh
  int rank;              // in the parent
  int size;
  std::vector<std::string> names;
  std::vector<int> sizes;

  std::mutex mutex;                                   // guards `groups`
  std::map<std::vector<bool>, aiacc_group_t> groups;  // by their axes
  std::map<std::size_t, aiacc_group_t> ends;          // of rows, by their axis
};

}  // namespace aiacc::abi
