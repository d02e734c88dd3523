// The C ABI refuses wrong arguments, handles and states, each with its status and a sentence, and the group is usable
// afterwards.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>

#include "tests/abi_world.h"
#include "tests/variable.h"

namespace aiacc {
namespace {

using test::expect;
using test::Variable;
using test::World;

TEST(Arguments, AreRefusedBeforeAnythingStarts) {
  World world(1);
  const aiacc_group_t group = world.group(0);
  float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float other[8] = {};
  aiacc_request_t request = 77;
  constexpr auto kBad = AIACC_ERR_INVALID_ARGUMENT;
  const auto dtype = [](int value) { return static_cast<aiacc_dtype_t>(value); };
  const auto op = [](int value) { return static_cast<aiacc_op_t>(value); };

  expect(aiacc_allreduce(nullptr, other, 8, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr), kBad, "send is NULL");
  expect(aiacc_allreduce(data, nullptr, 8, AIACC_FLOAT32, AIACC_SUM, group, nullptr, &request), kBad, "recv is NULL");
  EXPECT_EQ(request, 77u) << "no request is made";
  expect(aiacc_allreduce(data, other, 8, dtype(13), AIACC_SUM, group, nullptr, nullptr), kBad, "dtype 13");
  expect(aiacc_allreduce(data, other, 8, dtype(-1), AIACC_SUM, group, nullptr, nullptr), kBad, "dtype -1");
  expect(aiacc_allreduce(data, other, 8, AIACC_FLOAT32, op(8), group, nullptr, nullptr), kBad, "op 8");
  expect(aiacc_allreduce(data, other, 8, AIACC_FLOAT32, AIACC_BXOR, group, nullptr, nullptr), kBad, "bitwise");
  expect(aiacc_allreduce(data, data + 1, 4, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr), kBad, "overlap");
  expect(aiacc_allreduce(data, other, SIZE_MAX / 2, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr), kBad, "count");
  expect(aiacc_allreduce(data, other, static_cast<size_t>(-1), AIACC_INT8, AIACC_SUM, group, nullptr, nullptr), kBad,
         "count");
  expect(aiacc_reduce(data, other, 8, AIACC_FLOAT32, AIACC_SUM, 1, group, nullptr, nullptr), kBad, "root is 1");
  expect(aiacc_reduce(data, other, 8, AIACC_FLOAT32, AIACC_SUM, -1, group, nullptr, nullptr), kBad, "root is -1");
  expect(aiacc_broadcast(data, 8, AIACC_FLOAT32, 5, group, nullptr, nullptr), kBad, "root is 5");
  expect(aiacc_broadcast(nullptr, 8, AIACC_FLOAT32, 0, group, nullptr, nullptr), kBad, "buffer is NULL");
  expect(aiacc_allgather(data, data + 1, 4, AIACC_FLOAT32, group, nullptr, nullptr), kBad, "overlap");
  expect(aiacc_reduce_scatter(data, data + 1, 4, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr), kBad, "overlap");
  expect(aiacc_send(data, 8, AIACC_FLOAT32, 3, 0, group, nullptr, nullptr), kBad, "to is 3");
  expect(aiacc_recv(data, 8, AIACC_FLOAT32, -2, 0, group, nullptr, nullptr), kBad, "from is -2");
  expect(aiacc_rank(group, nullptr), kBad, "rank is NULL");

  aiacc_attr_t attr = {};
  expect(aiacc_barrier(group, &attr, nullptr), kBad, "sizeof(aiacc_attr_t)");
  attr.size = sizeof attr;
  attr.timeout_ms = -5;
  expect(aiacc_barrier(group, &attr, nullptr), kBad, "timeout_ms");
  attr.timeout_ms = 0;
  attr.prescale = std::numeric_limits<double>::infinity();
  expect(aiacc_barrier(group, &attr, nullptr), kBad, "prescale");
  attr.prescale = 0;
  for (const int traffic_class : {-1, 5}) {
    attr.traffic_class = traffic_class;
    expect(aiacc_barrier(group, &attr, nullptr), kBad,
           "values are 0 (AIACC_TRAFFIC_DEFAULT) to 4 (AIACC_TRAFFIC_BACKGROUND)");
    expect(aiacc_send(data, 8, AIACC_FLOAT32, 0, 0, group, &attr, &request), kBad, "traffic_class in aiacc_attr_t is");
  }
  EXPECT_EQ(aiacc_last_error_rank(), -1);

  EXPECT_AIACC(aiacc_allreduce(data, other, 8, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr));
  EXPECT_TRUE(std::equal(std::begin(data), std::end(data), std::begin(other))) << "the group is usable";
}

TEST(Arguments, HandlesAreFoundOut) {
  World world(1);
  constexpr auto kBad = AIACC_ERR_INVALID_HANDLE;
  int number = 0;
  expect(aiacc_rank(AIACC_NULL, &number), kBad, "AIACC_NULL");
  expect(aiacc_rank(0xdeadbeefULL, &number), kBad, "not the handle of a group");
  expect(aiacc_rank(world.context(0), &number), kBad, "not the handle of a group");
  expect(aiacc_rank(world.group(0) + (1ULL << 24), &number), kBad, "any more");
  expect(aiacc_test(world.group(0)), kBad, "not the handle of a request");
  expect(aiacc_wait(AIACC_NULL), kBad, "not the handle of a request");
  aiacc_group_t group;
  expect(aiacc_context_world(world.group(0), &group), kBad, "not the handle of a context");
  expect(aiacc_context_destroy(world.group(0)), kBad, "not the handle of a context");

  aiacc_request_t request = AIACC_NULL;
  ASSERT_AIACC(aiacc_barrier(world.group(0), nullptr, &request));
  EXPECT_AIACC(aiacc_wait(request));
  expect(aiacc_wait(request), kBad, "does not exist any more");
  expect(aiacc_test(request), kBad, "does not exist any more");
  expect(aiacc_wait_for(request, -1), AIACC_ERR_INVALID_ARGUMENT, "timeout_ms");
}

TEST(Arguments, ADestroyedContextIsGone) {
  World world(1);
  const aiacc_group_t group = world.group(0);
  world.forget();
  EXPECT_AIACC(aiacc_context_destroy(world.context(0)));
  int number = 0;
  expect(aiacc_size(group, &number), AIACC_ERR_INVALID_HANDLE, "any more");
  expect(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_INVALID_HANDLE, "any more");
  expect(aiacc_context_destroy(world.context(0)), AIACC_ERR_INVALID_HANDLE, "any more");
}

TEST(Arguments, Memory) {
  World world(1);
  void* memory = nullptr;
  expect(aiacc_mem_alloc(world.context(0), 0, &memory), AIACC_ERR_INVALID_ARGUMENT, "bytes is 0");
  expect(aiacc_mem_alloc(world.context(0), 8, nullptr), AIACC_ERR_INVALID_ARGUMENT, "memory is NULL");
  expect(aiacc_mem_alloc(world.group(0), 8, &memory), AIACC_ERR_INVALID_HANDLE, "context");
  int local = 0;
  expect(aiacc_mem_free(&local), AIACC_ERR_INVALID_ARGUMENT, "not allocated");
  ASSERT_AIACC(aiacc_mem_alloc(world.context(0), 100, &memory));
  std::memset(memory, 1, 100);
  EXPECT_AIACC(aiacc_mem_free(memory));
  expect(aiacc_mem_free(memory), AIACC_ERR_INVALID_ARGUMENT, "freed already");
  EXPECT_AIACC(aiacc_mem_free(nullptr));
}

TEST(Arguments, LocalWorlds) {
  aiacc_context_t contexts[1];
  expect(aiacc_context_create_local(0, contexts), AIACC_ERR_INVALID_ARGUMENT, "n is 0");
  expect(aiacc_context_create_local(1, nullptr), AIACC_ERR_INVALID_ARGUMENT, "contexts is NULL");
  expect(aiacc_context_create_local(100'000, contexts), AIACC_ERR_INVALID_ARGUMENT, "n is 100000");
}

TEST(Arguments, Names) {
  EXPECT_STREQ(aiacc_version(), "0.1.0");
  EXPECT_STREQ(aiacc_status_name(AIACC_ERR_PEER_FAILED), "peer failed");
  EXPECT_STREQ(aiacc_status_name(static_cast<aiacc_status_t>(99)), "unknown code");
  EXPECT_EQ(aiacc_dtype_size(AIACC_BFLOAT16), 2u);
  EXPECT_EQ(aiacc_dtype_size(static_cast<aiacc_dtype_t>(99)), 0u);
}

// Initialising and finalizing the default context. Each test has a process of its own, because a process has only one.
class DefaultContext : public testing::Test {
 protected:
  // Runs `body` in a child process and expects that it prints nothing and exits with 0.
  template <class Body>
  void in_child(Body&& body) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      {
        const Variable agent("AIACC_AGENT", nullptr), own("AIACC_SIZE", nullptr), torch("WORLD_SIZE", nullptr);
        const Variable open_mpi("OMPI_COMM_WORLD_SIZE", nullptr), pmi("PMI_SIZE", nullptr);
        body();
      }
      const bool failed = HasFailure();
      fflush(stdout);
      _exit(failed ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
};

TEST_F(DefaultContext, CallsBeforeInitAndAfterFinalize) {
  in_child([] {
    int number = -1;
    EXPECT_EQ(aiacc_initialized(), 0);
    expect(aiacc_rank(AIACC_WORLD, &number), AIACC_ERR_INVALID_STATE, "before aiacc_init");
    expect(aiacc_barrier(AIACC_WORLD, nullptr, nullptr), AIACC_ERR_INVALID_STATE, "before aiacc_init");
    expect(aiacc_finalize(), AIACC_ERR_INVALID_STATE, "before aiacc_init");
    aiacc_group_t group = AIACC_NULL;
    expect(aiacc_group_create(AIACC_WORLD, 1, &number, nullptr, &group), AIACC_ERR_INVALID_STATE, "before aiacc_init");
    expect(aiacc_group_split(AIACC_WORLD, 1, 0, nullptr, &group), AIACC_ERR_INVALID_STATE, "before aiacc_init");
    void* memory = nullptr;
    expect(aiacc_mem_alloc(AIACC_NULL, 8, &memory), AIACC_ERR_INVALID_STATE, "before aiacc_init");
    ASSERT_AIACC(aiacc_init(nullptr));
    EXPECT_EQ(aiacc_initialized(), 1);
    expect(aiacc_init(nullptr), AIACC_ERR_INVALID_STATE, "already");
    EXPECT_AIACC(aiacc_rank(AIACC_WORLD, &number));
    EXPECT_EQ(number, 0);
    EXPECT_AIACC(aiacc_size(AIACC_WORLD, &number));
    EXPECT_EQ(number, 1);
    EXPECT_AIACC(aiacc_mem_alloc(AIACC_NULL, 8, &memory));
    EXPECT_AIACC(aiacc_barrier(AIACC_WORLD, nullptr, nullptr));
    EXPECT_AIACC(aiacc_group_split(AIACC_WORLD, 1, 0, nullptr, &group));
    EXPECT_AIACC(aiacc_finalize());
    EXPECT_EQ(aiacc_initialized(), 0);
    expect(aiacc_group_free(group), AIACC_ERR_INVALID_HANDLE, "any more");
    expect(aiacc_barrier(AIACC_WORLD, nullptr, nullptr), AIACC_ERR_INVALID_STATE, "after aiacc_finalize");
    expect(aiacc_finalize(), AIACC_ERR_INVALID_STATE, "already");
    EXPECT_AIACC(aiacc_mem_free(memory)) << "belongs to the caller, also after finalize";
    ASSERT_AIACC(aiacc_init(nullptr)) << "a world of one may begin again";
    EXPECT_AIACC(aiacc_finalize());
  });
}

TEST_F(DefaultContext, AForkedChildIsToldSo) {
  in_child([this] {
    ASSERT_AIACC(aiacc_init(nullptr));
    aiacc_request_t request = AIACC_NULL;
    // Starts the helper thread, which a forked child does not have.
    ASSERT_AIACC(aiacc_barrier(AIACC_WORLD, nullptr, &request));
    const int of_one = 0;
    const int sizes = 1;
    const char* const axis = "all";
    aiacc_group_t made = AIACC_NULL;
    aiacc_mesh_t mesh = AIACC_NULL;
    ASSERT_AIACC(aiacc_group_create(AIACC_WORLD, 1, &of_one, nullptr, &made));
    ASSERT_AIACC(aiacc_mesh_create(AIACC_WORLD, 1, &axis, &sizes, &mesh));
    in_child([&] {
      int number = 0;
      EXPECT_EQ(aiacc_initialized(), 0);
      expect(aiacc_rank(AIACC_WORLD, &number), AIACC_ERR_INVALID_STATE, "forked child");
      expect(aiacc_barrier(AIACC_WORLD, nullptr, nullptr), AIACC_ERR_INVALID_STATE, "forked child");
      expect(aiacc_wait(request), AIACC_ERR_INVALID_STATE, "forked child");
      const int self = 0;
      aiacc_group_t group = AIACC_NULL;
      const char* sentence = nullptr;
      expect(aiacc_group_create(AIACC_WORLD, 1, &self, nullptr, &group), AIACC_ERR_INVALID_STATE, "forked child");
      expect(aiacc_group_free(made), AIACC_ERR_INVALID_STATE, "forked child");
      expect(aiacc_mesh_group(mesh, 1, &axis, &group), AIACC_ERR_INVALID_STATE, "forked child");
      expect(aiacc_wait_all(1, &request, 0), AIACC_ERR_INVALID_STATE, "forked child");
      expect(aiacc_request_error(request, &sentence), AIACC_ERR_INVALID_STATE, "forked child");
      expect(aiacc_finalize(), AIACC_ERR_INVALID_STATE, "forked child");
      expect(aiacc_init(nullptr), AIACC_ERR_INVALID_STATE, "forked child");
      void* memory = nullptr;
      expect(aiacc_mem_alloc(AIACC_NULL, 8, &memory), AIACC_ERR_INVALID_STATE, "forked child");
    });
    EXPECT_AIACC(aiacc_wait(request));
    EXPECT_AIACC(aiacc_finalize());
  });
}

// A caller that was compiled with the first version's attributes, and a caller of a later version.
TEST_F(DefaultContext, AttributesOfOtherVersions) {
  in_child([] {
    struct {
      aiacc_init_attr_t known;
      std::uint64_t later;
    } attr = {};
    attr.known.size = 23;
    expect(aiacc_init(&attr.known), AIACC_ERR_INVALID_ARGUMENT, "size in aiacc_init_attr_t is 23");
    attr.known.size = sizeof attr;
    attr.later = 1;
    expect(aiacc_init(&attr.known), AIACC_ERR_UNSUPPORTED, "something that aiacc");
    attr.later = 0;
    EXPECT_AIACC(aiacc_init(&attr.known));
    EXPECT_AIACC(aiacc_finalize());
  });
  in_child([] {
    aiacc_init_attr_t attr = {};
    attr.size = offsetof(aiacc_init_attr_t, store);
    attr.store = reinterpret_cast<const aiacc_store_t*>(1);  // beyond the caller's attributes
    EXPECT_AIACC(aiacc_init(&attr));
    EXPECT_AIACC(aiacc_finalize());
  });
}

TEST_F(DefaultContext, AStoreNeedsAllItsFunctions) {
  in_child([] {
    aiacc_store_t store = {};
    aiacc_init_attr_t attr = {};
    attr.size = sizeof attr;
    attr.world_size_set = 1;
    attr.world_size = 2;
    attr.store = &store;
    expect(aiacc_init(&attr), AIACC_ERR_INVALID_ARGUMENT, "sizeof(aiacc_store_t)");
    store.size = sizeof store;
    expect(aiacc_init(&attr), AIACC_ERR_INVALID_ARGUMENT, "put in aiacc_store_t is NULL");
    store.put = [](void*, const char*, const void*, size_t) { return 42; };
    expect(aiacc_init(&attr), AIACC_ERR_INVALID_ARGUMENT, "get in aiacc_store_t is NULL");
    store.get = [](void*, const char*, void*, size_t, size_t*, int64_t) { return 42; };
    expect(aiacc_init(&attr), AIACC_ERR_INVALID_ARGUMENT, "wait in aiacc_store_t is NULL");
    store.wait = [](void*, const char* const*, size_t, int64_t) { return 42; };
    expect(aiacc_init(&attr), AIACC_ERR_SYSTEM, "returned 42");
  });
}

TEST_F(DefaultContext, GivenIdentity) {
  in_child([] {
    aiacc_init_attr_t attr = {};
    expect(aiacc_init(&attr), AIACC_ERR_INVALID_ARGUMENT, "sizeof(aiacc_init_attr_t)");
    attr.size = sizeof attr;
    attr.world_size_set = 1;
    expect(aiacc_init(&attr), AIACC_ERR_INVALID_ARGUMENT, "world_size");
    attr.rank = 1;
    attr.world_size = 2;
    expect(aiacc_init(&attr), AIACC_ERR_INVALID_STATE, "aiaccrun");
    attr.rank = 0;
    attr.world_size = 1;
    attr.timeout_ms = -1;
    expect(aiacc_init(&attr), AIACC_ERR_INVALID_ARGUMENT, "timeout_ms");
    attr.timeout_ms = 1000;
    EXPECT_AIACC(aiacc_init(&attr));
    EXPECT_AIACC(aiacc_finalize());
    const Variable rank("OMPI_COMM_WORLD_RANK", "1"), size("OMPI_COMM_WORLD_SIZE", "4");
    expect(aiacc_init(nullptr), AIACC_ERR_INVALID_STATE, "OMPI_COMM_WORLD_SIZE=4");
    const Variable alone("AIACC_SINGLETON", "1");
    EXPECT_AIACC(aiacc_init(nullptr));
  });
}

}  // namespace
}  // namespace aiacc
