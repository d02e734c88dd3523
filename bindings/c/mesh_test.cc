// Meshes: axes and products of axes as groups, and invalid arguments.
#include <cstdint>
#include <vector>

#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::expect;
using test::World;

std::int64_t sum(aiacc_group_t group, std::int64_t value) {
  EXPECT_AIACC(aiacc_allreduce(&value, &value, 1, AIACC_INT64, AIACC_SUM, group, nullptr, nullptr));
  return value;
}

TEST(Meshes, HaveAxesAndProductsOfAxesAsGroups) {
  World world(8);
  const char* const names[3] = {"data", "pipeline", "tensor"};
  const int sizes[3] = {2, 1, 4};
  world.run([&](int rank, aiacc_group_t all) {
    aiacc_mesh_t mesh = AIACC_NULL;
    ASSERT_AIACC(aiacc_mesh_create(all, 3, names, sizes, &mesh));
    int index = -1;
    EXPECT_AIACC(aiacc_mesh_coordinate(mesh, "data", &index));
    EXPECT_EQ(index, rank / 4);
    EXPECT_AIACC(aiacc_mesh_coordinate(mesh, "pipeline", &index));
    EXPECT_EQ(index, 0);
    EXPECT_AIACC(aiacc_mesh_coordinate(mesh, "tensor", &index));
    EXPECT_EQ(index, rank % 4);
    const auto along = [&](std::vector<const char*> axes) {
      aiacc_group_t group = AIACC_NULL;
      EXPECT_AIACC(aiacc_mesh_group(mesh, axes.size(), axes.data(), &group));
      return group;
    };
    EXPECT_EQ(sum(along({"data"}), rank), 2 * (rank % 4) + 4);
    EXPECT_EQ(sum(along({"tensor"}), rank), rank < 4 ? 6 : 22);
    EXPECT_EQ(sum(along({"pipeline"}), rank), rank);
    EXPECT_EQ(sum(along({"tensor", "data"}), rank), 28);
    EXPECT_EQ(along({"tensor", "data"}), along({"data", "tensor"})) << "made once";
    const aiacc_group_t kept = along({"tensor"});
    EXPECT_AIACC(aiacc_mesh_free(mesh));
    EXPECT_EQ(aiacc_barrier(kept, nullptr, nullptr), AIACC_ERR_INVALID_HANDLE);
    EXPECT_EQ(aiacc_mesh_free(mesh), AIACC_ERR_INVALID_HANDLE);
    EXPECT_EQ(sum(all, 1), 8);
  });
}

TEST(Meshes, AreRefusedWithASentence) {
  World world(4);
  const aiacc_group_t all = world.group(0);
  constexpr auto kBad = AIACC_ERR_INVALID_ARGUMENT;
  const char* const names[2] = {"a", "b"};
  const char* const same[2] = {"a", "a"};
  const char* const empty[2] = {"a", ""};
  const int sizes[2] = {2, 2};
  const int wrong[2] = {2, 3};
  const int huge[2] = {1 << 30, 1 << 30};
  const int none[2] = {4, 0};
  aiacc_mesh_t mesh = 77;
  expect(aiacc_mesh_create(AIACC_NULL, 2, names, sizes, &mesh), AIACC_ERR_INVALID_HANDLE, "AIACC_NULL");
  expect(aiacc_mesh_create(all, 2, names, sizes, nullptr), kBad, "mesh is NULL");
  expect(aiacc_mesh_create(all, 0, names, sizes, &mesh), kBad, "axes is 0");
  expect(aiacc_mesh_create(all, 2, nullptr, sizes, &mesh), kBad, "names is NULL");
  expect(aiacc_mesh_create(all, 2, names, nullptr, &mesh), kBad, "sizes is NULL");
  expect(aiacc_mesh_create(all, 2, same, sizes, &mesh), kBad, "two axes are called 'a'");
  expect(aiacc_mesh_create(all, 2, empty, sizes, &mesh), kBad, "names[1] is empty");
  expect(aiacc_mesh_create(all, 2, names, wrong, &mesh), kBad, "6 ranks together, but the parent has 4");
  expect(aiacc_mesh_create(all, 2, names, huge, &mesh), kBad, "but the parent has 4");
  expect(aiacc_mesh_create(all, 2, names, none, &mesh), kBad, "sizes[1] ('b') is 0");
  EXPECT_EQ(mesh, 77u);
  ASSERT_AIACC(aiacc_mesh_create(all, 2, names, sizes, &mesh));
  aiacc_group_t group = AIACC_NULL;
  const char* const unknown[1] = {"c"};
  int index = 0;
  expect(aiacc_mesh_group(mesh, 1, unknown, &group), kBad, "no axis 'c'; it has 'a' (2), 'b' (2)");
  expect(aiacc_mesh_group(mesh, 2, same, &group), kBad, "named twice");
  expect(aiacc_mesh_group(mesh, 0, names, &group), kBad, "no axis is named");
  expect(aiacc_mesh_group(mesh, 1, names, nullptr), kBad, "group is NULL");
  expect(aiacc_mesh_coordinate(mesh, nullptr, &index), kBad, "NULL");
  expect(aiacc_mesh_coordinate(mesh, "a", nullptr), kBad, "index is NULL");
  expect(aiacc_mesh_coordinate(all, "a", &index), AIACC_ERR_INVALID_HANDLE, "not the handle of a mesh");
  EXPECT_AIACC(aiacc_mesh_free(mesh));
  expect(aiacc_mesh_coordinate(mesh, "a", &index), AIACC_ERR_INVALID_HANDLE, "any more");
}

}  // namespace
}  // namespace aiacc
