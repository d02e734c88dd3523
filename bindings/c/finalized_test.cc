// What is left of models' handles after aiacc_finalize and aiacc_context_destroy: each call on one is refused with a sentence, and
// what was outstanding has ended. (aiacc_barrier and groups: arguments_test.cc.)
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "include/aiacc/gradient.h"
#include "include/aiacc/kv.h"
#include "include/aiacc/softmax.h"
#include "include/aiacc/syncbn.h"
#include "tests/abi_world.h"
#include "tests/variable.h"

namespace aiacc {
namespace {

using test::expect;
using test::Variable;
using test::World;

// A process has one default context, so the test has a process of its own.
void in_child_alone(const std::function<void()>& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    {
      const Variable agent("AIACC_AGENT", nullptr), own("AIACC_SIZE", nullptr), torch("WORLD_SIZE", nullptr);
      const Variable open_mpi("OMPI_COMM_WORLD_SIZE", nullptr), pmi("PMI_SIZE", nullptr);
      body();
    }
    const bool failed = testing::Test::HasFailure();
    fflush(stdout);
    _exit(failed ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

constexpr aiacc_kv_key_t kNumbered{nullptr, 7};

struct Handles {
  aiacc_kv_t kv = AIACC_NULL;
  aiacc_syncbn_t syncbn = AIACC_NULL;
  aiacc_gradient_t engine = AIACC_NULL;
};

struct OneChannel {
  aiacc_syncbn_batch_t batch{};
  aiacc_syncbn_layer_t layer{};
  double saved[8] = {};
  float x[2] = {1, 2}, y[2] = {};
  OneChannel() {
    batch.size = sizeof batch;
    batch.dtype = AIACC_FLOAT32;
    batch.samples = 2;
    batch.channels = batch.positions = 1;
    layer.size = sizeof layer;
    layer.epsilon = 1e-5;
  }
};

Handles make_handles(aiacc_group_t group) {
  Handles made;
  EXPECT_AIACC(aiacc_kv_create(group, nullptr, &made.kv));
  EXPECT_AIACC(aiacc_syncbn_create(group, nullptr, &made.syncbn));
  EXPECT_AIACC(aiacc_gradient_create(group, nullptr, &made.engine));
  const float first = 1;
  EXPECT_AIACC(aiacc_kv_init(made.kv, kNumbered, AIACC_FLOAT32, 1, 1, &first, nullptr, nullptr));
  OneChannel norm;
  EXPECT_AIACC(aiacc_syncbn_forward(made.syncbn, &norm.batch, &norm.layer, norm.x, norm.y, norm.saved));
  return made;
}

void expect_gone(const Handles& of) {
  constexpr auto kGone = AIACC_ERR_INVALID_HANDLE;
  constexpr const char* kSays = "does not exist any more";
  float value = 1;
  const int64_t row = 0;
  aiacc_request_t request = AIACC_NULL;
  const aiacc_kv_t kv = of.kv;
  expect(aiacc_kv_init(kv, {"new", 0}, AIACC_FLOAT32, 1, 1, &value, nullptr, nullptr), kGone, kSays);
  for (aiacc_request_t* const started : {static_cast<aiacc_request_t*>(nullptr), &request}) {
    expect(aiacc_kv_push(kv, kNumbered, 1, &value, nullptr, started), kGone, kSays);
    expect(aiacc_kv_pull(kv, kNumbered, 1, &value, nullptr, started), kGone, kSays);
    expect(aiacc_kv_pushpull(kv, kNumbered, 1, &value, &value, nullptr, started), kGone, kSays);
    expect(aiacc_kv_push_rows(kv, kNumbered, 1, &row, &value, nullptr, started), kGone, kSays);
    expect(aiacc_kv_pull_rows(kv, kNumbered, 1, &row, &value, nullptr, started), kGone, kSays);
  }
  EXPECT_EQ(request, AIACC_NULL) << "nothing has started";
  EXPECT_EQ(value, 1.0F);
  aiacc_kv_updater_t updater{};
  updater.size = sizeof updater;
  updater.kind = AIACC_KV_SUM;
  expect(aiacc_kv_set_updater(kv, &updater), kGone, kSays);
  expect(aiacc_kv_roles(kv, nullptr, nullptr, nullptr, nullptr), kGone, kSays);
  expect(aiacc_kv_set_wire(kv, AIACC_KV_WIRE_PLAIN, 0), kGone, kSays);
  expect(aiacc_kv_save(kv, "/nowhere"), kGone, kSays);
  expect(aiacc_kv_load(kv, "/nowhere"), kGone, kSays);
  expect(aiacc_kv_free(kv), kGone, kSays);
  OneChannel norm;
  expect(aiacc_syncbn_forward(of.syncbn, &norm.batch, &norm.layer, norm.x, norm.y, norm.saved), kGone, kSays);
  expect(aiacc_syncbn_backward(of.syncbn, &norm.batch, nullptr, norm.saved, norm.x, norm.y, norm.x, nullptr, nullptr),
         kGone, kSays);
  expect(aiacc_syncbn_join(of.syncbn), kGone, kSays);
  expect(aiacc_syncbn_free(of.syncbn), kGone, kSays);
  expect(aiacc_gradient_submit(of.engine, 0, nullptr, nullptr, &request), kGone, kSays);
  expect(aiacc_gradient_submit_rows(of.engine, 0, 0, nullptr, nullptr, &request), kGone, kSays);
  expect(aiacc_gradient_rows(of.engine, 0, nullptr, nullptr, nullptr), kGone, kSays);
  expect(aiacc_gradient_wait(of.engine), kGone, kSays);
  expect(aiacc_gradient_free(of.engine), kGone, kSays);
}

TEST(Finalized, CallsOnModelsHandlesAreRefused) {
  in_child_alone([] {
    const auto refused = [](const char* when) {
      uint64_t handle = AIACC_NULL;
      expect(aiacc_kv_create(AIACC_WORLD, nullptr, &handle), AIACC_ERR_INVALID_STATE, when);
      expect(aiacc_syncbn_create(AIACC_WORLD, nullptr, &handle), AIACC_ERR_INVALID_STATE, when);
      expect(aiacc_gradient_create(AIACC_WORLD, nullptr, &handle), AIACC_ERR_INVALID_STATE, when);
      aiacc_softmax_shard_t shard{};
      shard.size = sizeof shard;
      shard.dtype = AIACC_FLOAT32;
      shard.rows = shard.classes = shard.all_classes = 1;
      float logit = 1;
      double loss = -1;
      const int64_t label = 0;
      int64_t first = -1;
      size_t classes = 0;
      expect(aiacc_softmax_loss(&shard, &logit, &label, &loss, AIACC_WORLD, nullptr), AIACC_ERR_INVALID_STATE, when);
      expect(aiacc_softmax_split(10, AIACC_WORLD, &first, &classes), AIACC_ERR_INVALID_STATE, when);
      EXPECT_EQ(handle, AIACC_NULL);
      EXPECT_EQ(loss, -1);
    };
    refused("before aiacc_init");
    ASSERT_AIACC(aiacc_init(nullptr));
    const Handles first = make_handles(AIACC_WORLD);
    EXPECT_AIACC(aiacc_finalize());
    refused("after aiacc_finalize");
    expect_gone(first);
    ASSERT_AIACC(aiacc_init(nullptr));
    const Handles second = make_handles(AIACC_WORLD);
    expect_gone(first);  // they name nothing of the next world
    float value = 0;
    EXPECT_AIACC(aiacc_kv_pull(second.kv, kNumbered, 1, &value, nullptr, nullptr));
    EXPECT_EQ(value, 1.0F);
    EXPECT_AIACC(aiacc_finalize());
    expect_gone(second);
  });
}

// One rank's push waits for its round when both leave.
TEST(Finalized, APushThatIsOutstandingHasEnded) {
  World world(2);
  std::vector<Handles> made(2);
  std::vector<aiacc_request_t> pushes(2, AIACC_NULL);
  const float gradient = 1;
  world.run([&](int rank, aiacc_group_t group) {
    Handles& mine = made[static_cast<std::size_t>(rank)];
    mine = make_handles(group);
    if (rank == 0) {
      EXPECT_AIACC(aiacc_kv_push(mine.kv, kNumbered, 1, &gradient, nullptr, &pushes[0]));
    }
    EXPECT_AIACC(aiacc_context_destroy(world.context(rank)));
    if (rank == 0) expect(aiacc_wait(pushes[0]), AIACC_ERR_ABORTED, "the key-value store");
    expect_gone(mine);
  });
  world.forget();
}

}  // namespace
}  // namespace aiacc
