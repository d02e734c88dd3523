// Callbacks: they run once, may start operations, and do not starve threads that share their core.
#include <sched.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::group_of;
using test::World;

aiacc_attr_t call_attributes() {
  aiacc_attr_t attr = {};
  attr.size = sizeof attr;
  return attr;
}

struct Notified {
  std::atomic<int> calls{0};
  aiacc_status_t status = AIACC_PENDING;
  std::string sentence;

  static void function(aiacc_status_t status, const char* error, void* arg) {
    auto& self = *static_cast<Notified*>(arg);
    self.status = status;
    self.sentence = error;
    ++self.calls;
  }
  aiacc_attr_t attr() {
    aiacc_attr_t attr = call_attributes();
    attr.callback = function;
    attr.callback_arg = this;
    return attr;
  }
  void wait() const {
    while (calls.load() == 0) std::this_thread::yield();
  }
};

TEST(Callbacks, AreCalledOnceWithStatusAndSentence) {
  World world(2);
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_t group = group_of(all, {0, 1});
    Notified good;
    Notified bad;
    Notified late;
    const aiacc_attr_t of_good = good.attr();
    const aiacc_attr_t of_bad = bad.attr();
    const aiacc_attr_t of_late = late.attr();
    std::vector<int> data(30'000, rank);
    aiacc_request_t request = AIACC_NULL;
    EXPECT_AIACC(
        aiacc_allreduce(data.data(), data.data(), data.size(), AIACC_INT32, AIACC_SUM, group, &of_good, nullptr))
        << "detached: it does not block";
    good.wait();
    EXPECT_EQ(good.status, AIACC_OK);
    EXPECT_EQ(good.sentence, "");
    EXPECT_EQ(data.back(), 1);
    EXPECT_AIACC(aiacc_reduce(data.data(), data.data(), 5, AIACC_INT32, AIACC_SUM, rank, group, &of_bad, &request));
    EXPECT_EQ(aiacc_wait(request), AIACC_ERR_MISMATCH) << "with a request: both";
    bad.wait();
    EXPECT_EQ(bad.status, AIACC_ERR_MISMATCH);
    EXPECT_NE(bad.sentence.find("root"), std::string::npos) << bad.sentence;
    EXPECT_AIACC(aiacc_barrier(group, &of_late, nullptr)) << "the error is the callback's";
    late.wait();
    EXPECT_EQ(late.status, AIACC_ERR_ABORTED);
    EXPECT_AIACC(aiacc_barrier(all, nullptr, nullptr));
    EXPECT_EQ(good.calls + bad.calls + late.calls, 3);
  });
}

struct Chain {
  aiacc_group_t group = AIACC_NULL;
  std::atomic<int> left{0};
  int word = 1;
  std::vector<aiacc_status_t> refused;
  std::string sentence;

  static void next(aiacc_status_t status, const char* error, void* arg) {
    auto& self = *static_cast<Chain*>(arg);
    EXPECT_EQ(status, AIACC_OK) << error;
    if (self.left == 3) {
      std::size_t index = 0;
      aiacc_request_t request = AIACC_NULL;
      aiacc_group_t group = AIACC_NULL;
      self.refused.push_back(aiacc_barrier(self.group, nullptr, nullptr));
      self.sentence = aiacc_last_error();
      EXPECT_AIACC(aiacc_group_create(self.group, 1, &self.word_rank, nullptr, &group));
      EXPECT_AIACC(aiacc_barrier(group, nullptr, &request));
      self.refused.push_back(aiacc_wait(request));
      self.refused.push_back(aiacc_wait_all(1, &request, AIACC_FOREVER));
      self.refused.push_back(aiacc_wait_any(1, &request, AIACC_FOREVER, &index));
      self.refused.push_back(aiacc_group_split(self.group, 0, 0, nullptr, &group));
      self.refused.push_back(aiacc_finalize());
      self.refused.push_back(aiacc_context_destroy(self.context));
      while (aiacc_test(request) == AIACC_PENDING) std::this_thread::yield();
    }
    if (--self.left > 0) self.step();
  }
  void step() {
    aiacc_attr_t attr = call_attributes();
    attr.callback = next;
    attr.callback_arg = this;
    EXPECT_AIACC(aiacc_allreduce(&word, &word, 1, AIACC_INT32, AIACC_SUM, group, &attr, nullptr));
  }
  int word_rank = 0;
  aiacc_context_t context = AIACC_NULL;
};

TEST(Callbacks, MayStartOperationsAndNotBlock) {
  World world(2);
  std::vector<Chain> chains(2);
  world.run([&](int rank, aiacc_group_t all) {
    Chain& chain = chains[static_cast<std::size_t>(rank)];
    chain.group = group_of(all, {0, 1});
    chain.word_rank = rank;
    chain.context = world.context(rank);
    chain.left = 10;
    chain.step();
    while (chain.left > 0) std::this_thread::yield();
    EXPECT_EQ(chain.word, 1024);
    EXPECT_EQ(chain.refused, std::vector<aiacc_status_t>(7, AIACC_ERR_INVALID_STATE));
    EXPECT_NE(chain.sentence.find("inside a completion callback"), std::string::npos) << chain.sentence;
  });
}

TEST(Callbacks, AreWaitedForByTheEndOfTheContext) {
  World world(2);
  world.forget();
  std::vector<Chain> chains(2);
  world.run([&](int rank, aiacc_group_t all) {
    Chain& chain = chains[static_cast<std::size_t>(rank)];
    chain.group = group_of(all, {0, 1});
    chain.left = 2;
    chain.step();
    EXPECT_AIACC(aiacc_context_destroy(world.context(rank)));
    EXPECT_EQ(chain.left, 0);
    EXPECT_EQ(chain.word, 4);
  });
}

// Binds all threads of the process to one core.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &before_)) continue;
      CPU_SET(core, &one);
      break;
    }
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_;
};

TEST(Threads, EightOnEightGroupsMakeProgressOnOneCore) {
  const OneCore one_core;
  World world(2);
  constexpr int kThreads = 8;
  constexpr int kRounds = 40;
  world.run([&](int rank, aiacc_group_t all) {
    std::vector<aiacc_group_t> groups;
    for (int i = 0; i < kThreads; ++i) groups.push_back(group_of(all, {0, 1}));
    Chain chain;
    chain.group = group_of(all, {0, 1});
    chain.left = 20;
    chain.context = world.context(rank);
    chain.word_rank = rank;
    chain.word = 0;
    chain.step();
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const aiacc_group_t group = groups[static_cast<std::size_t>(i)];
        for (int round = 0; round < kRounds; ++round) {
          const std::size_t count = round % 4 == 0 ? 5000 : 2;
          std::vector<int> data(count, rank + round);
          aiacc_request_t request = AIACC_NULL;
          const bool blocks = (i + round) % 2 == 0;
          EXPECT_AIACC(aiacc_allreduce(data.data(), data.data(), count, AIACC_INT32, AIACC_SUM, group, nullptr,
                                       blocks ? nullptr : &request));
          if (!blocks) {
            EXPECT_AIACC(aiacc_wait(request));
          }
          EXPECT_EQ(data.back(), 2 * round + 1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    while (chain.left > 0) std::this_thread::yield();
  });
}

}  // namespace
}  // namespace aiacc
