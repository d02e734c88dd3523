// Meshes: axes and products of axes as groups, and invalid arguments.
#include <cstdint>
#include <vector>

#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::expect;
using test::World;

std::int64_t mesh_sum(aiacc_group_t group, std::int64_t value) {
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
    EXPECT_EQ(mesh_sum(along({"data"}), rank), 2 * (rank % 4) + 4);
    EXPECT_EQ(mesh_sum(along({"tensor"}), rank), rank < 4 ? 6 : 22);
    EXPECT_EQ(mesh_sum(along({"pipeline"}), rank), rank);
    EXPECT_EQ(mesh_sum(along({"tensor", "data"}), rank), 28);
    EXPECT_EQ(along({"tensor", "data"}), along({"data", "tensor"})) << "made once";
    const aiacc_group_t kept = along({"tensor"});
    EXPECT_AIACC(aiacc_mesh_free(mesh));
    EXPECT_EQ(aiacc_barrier(kept, nullptr, nullptr), AIACC_ERR_INVALID_HANDLE);
    EXPECT_EQ(aiacc_mesh_free(mesh), AIACC_ERR_INVALID_HANDLE);
    EXPECT_EQ(mesh_sum(all, 1), 8);
  });
}

TEST(Meshes, OfAnOrderVaryFastestInItsFirstAxis) {
  World world(8);
  const int sizes[3] = {2, 0, 2};
  world.run([&](int rank, aiacc_group_t all) {
    aiacc_mesh_t mesh = AIACC_NULL;
    ASSERT_AIACC(aiacc_mesh_create_ordered(all, "tp-dp-pp", 3, sizes, &mesh));
    const auto coordinate = [&](const char* axis) {
      int index = -1;
      EXPECT_AIACC(aiacc_mesh_coordinate(mesh, axis, &index));
      return index;
    };
    EXPECT_EQ(coordinate("tp"), rank % 2);
    EXPECT_EQ(coordinate("dp"), rank / 2 % 2);
    EXPECT_EQ(coordinate("pp"), rank / 4);
    const auto reduced_in = [&](std::vector<const char*> split) {
      aiacc_group_t group = AIACC_NULL;
      EXPECT_AIACC(aiacc_mesh_gradient_group(mesh, split.size(), split.data(), &group));
      return group;
    };
    // A layer's matrix is split along tp, a layer norm is not, and stages of pp have other layers.
    EXPECT_EQ(mesh_sum(reduced_in({"tp", "pp"}), rank), rank + (rank ^ 2));
    EXPECT_EQ(mesh_sum(reduced_in({"pp"}), rank), rank < 4 ? 6 : 22);
    EXPECT_EQ(mesh_sum(reduced_in({}), rank), 28);
    EXPECT_EQ(mesh_sum(reduced_in({"tp", "dp", "pp"}), rank), rank) << "this rank alone";
    const char* const dp[1] = {"dp"};
    aiacc_group_t along = AIACC_NULL;
    EXPECT_AIACC(aiacc_mesh_group(mesh, 1, dp, &along));
    EXPECT_EQ(reduced_in({"pp", "tp"}), along) << "made once";
    EXPECT_AIACC(aiacc_mesh_free(mesh));
  });
}

TEST(Meshes, KnowTheEndsAndNeighboursOfAPipeline) {
  World world(8);
  const int sizes[3] = {2, 4, 1};
  world.run([&](int rank, aiacc_group_t all) {
    aiacc_mesh_t mesh = AIACC_NULL;
    ASSERT_AIACC(aiacc_mesh_create_ordered(all, "tp-pp-dp", 3, sizes, &mesh));
    const auto shifted = [&](const char* axis, int distance) {
      int other = -2;
      EXPECT_AIACC(aiacc_mesh_shift(mesh, axis, distance, &other));
      return other;
    };
    const int stage = rank / 2;
    EXPECT_EQ(shifted("pp", 1), stage < 3 ? rank + 2 : -1);
    EXPECT_EQ(shifted("pp", -1), stage > 0 ? rank - 2 : -1);
    EXPECT_EQ(shifted("pp", 0), rank);
    EXPECT_EQ(shifted("pp", INT32_MAX), -1);
    EXPECT_EQ(shifted("tp", INT32_MIN), -1);
    aiacc_group_t ends = 77;
    EXPECT_AIACC(aiacc_mesh_ends_group(mesh, "pp", &ends));
    const bool at_end = stage == 0 || stage == 3;
    EXPECT_EQ(ends != AIACC_NULL, at_end);
    if (at_end) {
      EXPECT_EQ(mesh_sum(ends, rank), 2 * (rank % 2) + 6);
    }
    aiacc_group_t alone = AIACC_NULL;
    EXPECT_AIACC(aiacc_mesh_ends_group(mesh, "dp", &alone));
    EXPECT_EQ(mesh_sum(alone, rank), rank) << "one rank is both ends";
    aiacc_group_t again = AIACC_NULL;
    EXPECT_AIACC(aiacc_mesh_ends_group(mesh, "pp", &again));
    EXPECT_EQ(again, ends) << "made once";
    EXPECT_AIACC(aiacc_mesh_free(mesh));
    if (at_end) {
      EXPECT_EQ(aiacc_barrier(ends, nullptr, nullptr), AIACC_ERR_INVALID_HANDLE);
    }
    EXPECT_EQ(mesh_sum(all, 1), 8);
  });
}

TEST(Meshes, OfAnOrderAreRefusedWithASentence) {
  World world(4);
  const aiacc_group_t all = world.group(0);
  constexpr auto kBad = AIACC_ERR_INVALID_ARGUMENT;
  const int sizes[2] = {2, 2};
  const int open[2] = {0, 0};
  const int uneven[2] = {3, 0};
  const int negative[2] = {-1, 0};
  aiacc_mesh_t mesh = 77;
  expect(aiacc_mesh_create_ordered(all, nullptr, 2, sizes, &mesh), kBad, "order is NULL");
  expect(aiacc_mesh_create_ordered(all, "tp-dp", 2, nullptr, &mesh), kBad, "sizes is NULL");
  expect(aiacc_mesh_create_ordered(all, "tp-dp", 2, sizes, nullptr), kBad, "mesh is NULL");
  expect(aiacc_mesh_create_ordered(all, "tp-dp-pp", 2, sizes, &mesh), kBad, "names 3 axes, and there are 2 sizes");
  expect(aiacc_mesh_create_ordered(all, "tp-", 2, sizes, &mesh), kBad, "names[1] is empty");
  expect(aiacc_mesh_create_ordered(all, "tp-tp", 2, sizes, &mesh), kBad, "two axes are called 'tp'");
  expect(aiacc_mesh_create_ordered(all, "tp-dp", 2, open, &mesh), kBad, "'tp' and 'dp' are 0: only one");
  expect(aiacc_mesh_create_ordered(all, "tp-dp", 2, uneven, &mesh), kBad, "but 'dp' have 3 ranks together");
  expect(aiacc_mesh_create_ordered(all, "tp-dp", 2, negative, &mesh), kBad, "sizes[0] ('tp') is -1");
  EXPECT_EQ(mesh, 77u);
  ASSERT_AIACC(aiacc_mesh_create_ordered(all, "tp-dp", 2, sizes, &mesh));
  aiacc_group_t group = AIACC_NULL;
  const char* const unknown[1] = {"pp"};
  int rank = 0;
  expect(aiacc_mesh_gradient_group(mesh, 1, unknown, &group), kBad, "no axis 'pp'; it has 'dp' (2), 'tp' (2)");
  expect(aiacc_mesh_gradient_group(mesh, 1, nullptr, &group), kBad, "split is NULL");
  expect(aiacc_mesh_gradient_group(mesh, 0, nullptr, nullptr), kBad, "group is NULL");
  expect(aiacc_mesh_ends_group(mesh, "pp", &group), kBad, "no axis 'pp'");
  expect(aiacc_mesh_ends_group(mesh, "tp", nullptr), kBad, "group is NULL");
  expect(aiacc_mesh_shift(mesh, "tp", 1, nullptr), kBad, "rank is NULL");
  expect(aiacc_mesh_shift(all, "tp", 1, &rank), AIACC_ERR_INVALID_HANDLE, "not the handle of a mesh");
  EXPECT_AIACC(aiacc_mesh_free(mesh));
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
  expect(aiacc_mesh_create(all, 2, names, huge, &mesh), kBad,
         "at least 1152921504606846976 ranks together, but the parent has 4");
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
