// Ranks that disagree, do not call, or are late; and that an error ends one group and no other.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/abi_world.h"
#include "tests/variable.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using test::says;
using test::World;

aiacc_attr_t within_ms(std::int64_t timeout_ms, const char* name = nullptr) {
  aiacc_attr_t attr = {};
  attr.size = sizeof attr;
  attr.timeout_ms = timeout_ms;
  attr.name = name;
  return attr;
}

class Failures : public testing::TestWithParam<int> {
 protected:
  // After an error, ranks destroy a world's contexts without waiting for each other.
  std::size_t ranks() const { return static_cast<std::size_t>(GetParam()); }
};

TEST_P(Failures, DifferentCallsAreAMismatchOnAllRanks) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{2'000'000}}) {
    World world(ranks());
    const int odd = GetParam() - 1;
    world.run([&](int rank, aiacc_group_t group) {
      std::vector<float> data(count + 1, 1.0f);
      const std::size_t mine = rank == odd ? count + 1 : count;
      EXPECT_EQ(aiacc_allreduce(data.data(), data.data(), mine, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr),
                AIACC_ERR_MISMATCH)
          << aiacc_last_error();
      EXPECT_TRUE(says(std::to_string(count).c_str()) && says(std::to_string(count + 1).c_str())) << aiacc_last_error();
      EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_ABORTED);
      EXPECT_TRUE(says("aborted earlier") && says(std::to_string(count + 1).c_str())) << aiacc_last_error();
    });
  }
}

TEST_P(Failures, DifferentCollectivesTypesOperatorsAndRoots) {
  struct Case {
    const char* word;
    std::function<aiacc_status_t(float* data, bool odd, aiacc_group_t group)> call;
  };
  const std::vector<Case> cases = {
      {"barrier",
       [](float* data, bool odd, aiacc_group_t group) {
         return odd ? aiacc_barrier(group, nullptr, nullptr)
                    : aiacc_broadcast(data, 8, AIACC_FLOAT32, 0, group, nullptr, nullptr);
       }},
      {"int32",
       [](float* data, bool odd, aiacc_group_t group) {
         return aiacc_allreduce(data, data, 8, odd ? AIACC_INT32 : AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr);
       }},
      {"max",
       [](float* data, bool odd, aiacc_group_t group) {
         return aiacc_allreduce(data, data, 8, AIACC_FLOAT32, odd ? AIACC_MAX : AIACC_SUM, group, nullptr, nullptr);
       }},
      {"root",
       [](float* data, bool odd, aiacc_group_t group) {
         return aiacc_broadcast(data, 8, AIACC_FLOAT32, odd ? 1 : 0, group, nullptr, nullptr);
       }},
  };
  for (const Case& one : cases) {
    World world(ranks());
    world.run([&](int rank, aiacc_group_t group) {
      float data[8] = {};
      aiacc_status_t status = one.call(data, rank == 1, group);
      if (status == AIACC_OK)
        status = aiacc_barrier(group, nullptr, nullptr);  // a root of a few bytes hears of it here
      EXPECT_EQ(status, AIACC_ERR_MISMATCH) << one.word << ": " << aiacc_last_error();
      EXPECT_TRUE(says(one.word)) << aiacc_last_error();
    });
  }
}

TEST_P(Failures, AMissingRankIsNamedAtTheDeadline) {
  World world(ranks());
  const int missing = GetParam() - 1;
  std::atomic<int> begun{0};
  std::atomic<int> failed{0};
  world.run([&](int rank, aiacc_group_t group) {
    float data[100] = {};
    if (rank == missing) {
      while (failed.load() < GetParam() - 1) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(aiacc_allreduce(data, data, 100, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr), AIACC_ERR_TIMEOUT);
      EXPECT_TRUE(says("has not arrived")) << "the first error, for the first call after it: " << aiacc_last_error();
      EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_ABORTED);
      EXPECT_TRUE(says("has not arrived")) << aiacc_last_error();
      return;
    }
    // Only rank 0 has a short time-out, which begins when the others have arrived; they get its abort.
    const aiacc_attr_t attr = within_ms(rank == 0 ? 100 : 100'000, "gradients");
    aiacc_status_t status = AIACC_OK;
    if (rank == 0) {
      while (begun.load() < GetParam() - 2) std::this_thread::sleep_for(1ms);
      status = aiacc_allreduce(data, data, 100, AIACC_FLOAT32, AIACC_SUM, group, &attr, nullptr);
    } else {
      aiacc_request_t request = AIACC_NULL;
      EXPECT_AIACC(aiacc_allreduce(data, data, 100, AIACC_FLOAT32, AIACC_SUM, group, &attr, &request));
      ++begun;
      status = aiacc_wait(request);
    }
    EXPECT_EQ(status, AIACC_ERR_TIMEOUT);
    EXPECT_TRUE(says("'gradients'") && says(("rank " + std::to_string(missing) + " has not arrived").c_str()) &&
                says("allreduce of 100 fp32"))
        << aiacc_last_error();
    ++failed;
  });
}

TEST_P(Failures, RunningOperationsEndWithTheFirstError) {
  World world(ranks());
  std::atomic<bool> over{false};
  world.run([&](int rank, aiacc_group_t group) {
    std::vector<float> data(300'000, 1.0f);
    std::vector<float> more(10, 1.0f);
    if (rank == 0) {
      aiacc_request_t first = AIACC_NULL;
      aiacc_request_t second = AIACC_NULL;
      const aiacc_attr_t attr = within_ms(100);
      EXPECT_AIACC(
          aiacc_allreduce(data.data(), data.data(), data.size(), AIACC_FLOAT32, AIACC_SUM, group, &attr, &first));
      EXPECT_AIACC(aiacc_allreduce(more.data(), more.data(), 10, AIACC_FLOAT32, AIACC_SUM, group, nullptr, &second));
      EXPECT_EQ(aiacc_wait(second), AIACC_ERR_TIMEOUT) << aiacc_last_error();
      EXPECT_EQ(aiacc_wait(first), AIACC_ERR_TIMEOUT) << aiacc_last_error();
      over = true;
      return;
    }
    while (!over) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_TIMEOUT) << aiacc_last_error();
  });
}

TEST_P(Failures, AnErrorEndsOneGroupOnly) {
  World broken(ranks());
  World whole(ranks());
  broken.run([&](int rank, aiacc_group_t group) {
    float data[2] = {1, 2};
    EXPECT_EQ(aiacc_allreduce(data, data, rank == 0 ? 1 : 2, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr),
              AIACC_ERR_MISMATCH);
    float one = 1;
    EXPECT_AIACC(aiacc_allreduce(&one, &one, 1, AIACC_FLOAT32, AIACC_SUM, whole.group(rank), nullptr, nullptr));
    EXPECT_EQ(one, static_cast<float>(GetParam()));
    int size = 0;
    EXPECT_AIACC(aiacc_size(group, &size));
    EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_ABORTED);
  });
}

TEST_P(Failures, ArgumentErrorsLeaveTheGroupUsable) {
  World world(ranks());
  world.run([&](int rank, aiacc_group_t group) {
    float data[4] = {1, 1, 1, 1};
    if (rank == 0) {
      EXPECT_EQ(aiacc_allreduce(data, nullptr, 4, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr),
                AIACC_ERR_INVALID_ARGUMENT);
    }
    EXPECT_AIACC(aiacc_allreduce(data, data, 4, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr));
    EXPECT_EQ(data[3], static_cast<float>(GetParam()));
  });
}

// Rank 0 times out in the middle of an operation, while the ranks store into each other's memory; on a machine that is
// too fast for that, it times out because rank 1 does not call. All ranks get this as the reason.
TEST_P(Failures, NobodyTouchesABufferAfterItsError) {
  World world(ranks());
  std::atomic<bool> over{false};
  world.run([&](int rank, aiacc_group_t group) {
    void* memory = nullptr;
    constexpr std::size_t kCount = 1'000'000;
    constexpr int kTries = 200;
    ASSERT_AIACC(aiacc_mem_alloc(world.context(rank), kCount * sizeof(float), &memory));
    auto* data = static_cast<float*>(memory);
    std::fill(data, data + kCount, 1.0f);
    const aiacc_attr_t attr = within_ms(rank == 0 ? 1 : 100'000);
    aiacc_status_t status = AIACC_OK;
    for (int i = 0; status == AIACC_OK; ++i) {
      while (rank == 1 && i == kTries && !over) std::this_thread::sleep_for(1ms);
      status = aiacc_allreduce(data, data, kCount, AIACC_FLOAT32, AIACC_MAX, group, &attr, nullptr);
    }
    if (rank == 0) over = true;
    EXPECT_EQ(status, AIACC_ERR_TIMEOUT) << "rank " << rank << ": " << aiacc_last_error();
    EXPECT_TRUE(says("was not complete after")) << aiacc_last_error();
    std::fill(data, data + kCount, 7.0f);
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(std::count(data, data + kCount, 7.0f), static_cast<std::ptrdiff_t>(kCount));
    EXPECT_AIACC(aiacc_mem_free(memory));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Failures, testing::Values(2, 3, 5, 8));

TEST(Lateness, IsReportedOnceWithWhoIsMissing) {
  const test::Variable late_after("AIACC_LATE_AFTER", "50ms");
  World world(2);
  testing::internal::CaptureStderr();
  world.run([&](int rank, aiacc_group_t group) {
    if (rank == 1) std::this_thread::sleep_for(300ms);
    const aiacc_attr_t attr = within_ms(0, "slow one");
    EXPECT_AIACC(aiacc_barrier(group, &attr, nullptr));
  });
  const std::string report = testing::internal::GetCapturedStderr();
  const std::size_t first = report.find("rank 1 has not arrived");
  EXPECT_NE(first, std::string::npos) << report;
  EXPECT_NE(report.find("'slow one'"), std::string::npos) << report;
  EXPECT_EQ(report.find("rank 1 has not arrived", first + 1), std::string::npos) << "once: " << report;
}

TEST(Requests, AreWaitedForByManyThreads) {
  World world(2);
  constexpr std::size_t kRequests = 300;
  world.run([&](int rank, aiacc_group_t group) {
    std::vector<std::vector<int>> data(kRequests);
    std::vector<aiacc_request_t> requests(kRequests);
    std::atomic<std::size_t> started{0};
    std::atomic<std::size_t> completed{0};
    std::vector<std::thread> waiters;
    for (int t = 0; t < 4; ++t) {
      waiters.emplace_back([&, t] {
        for (std::size_t i = static_cast<std::size_t>(t) / 2; i < kRequests; i += 2) {  // two threads for each request
          while (started.load() <= i) std::this_thread::yield();
          aiacc_status_t status = AIACC_PENDING;
          while (status == AIACC_PENDING) {
            status = t % 2 == 0 ? aiacc_wait_for(requests[i], 1) : aiacc_test(requests[i]);
            if (status == AIACC_PENDING) std::this_thread::yield();
          }
          if (status == AIACC_OK) {
            EXPECT_EQ(data[i].back(), 3);
            ++completed;
          } else {
            EXPECT_EQ(status, AIACC_ERR_INVALID_HANDLE) << aiacc_last_error();  // the other thread took the request
          }
        }
      });
    }
    for (std::size_t i = 0; i < kRequests; ++i) {
      data[i].assign(1 + i * 7 % 900, rank + 1);
      EXPECT_AIACC(aiacc_allreduce(data[i].data(), data[i].data(), data[i].size(), AIACC_INT32, AIACC_SUM, group,
                                   nullptr, &requests[i]));
      started = i + 1;
    }
    for (std::thread& waiter : waiters) waiter.join();
    EXPECT_EQ(completed, kRequests) << "each status went to exactly one thread";
  });
}

TEST(Requests, OutliveTheirContext) {
  World world(2);
  world.forget();
  world.run([&](int rank, aiacc_group_t group) {
    aiacc_request_t request = AIACC_NULL;
    EXPECT_AIACC(aiacc_barrier(group, nullptr, &request));
    EXPECT_AIACC(aiacc_context_destroy(world.context(rank)));
    EXPECT_AIACC(aiacc_wait(request)) << "destroying waits for what runs";
  });
}

TEST(Worlds, ManyComeAndGoSideBySide) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 5; ++i) {
        World world(3);
        world.run([&](int rank, aiacc_group_t group) {
          int sum = rank;
          EXPECT_AIACC(aiacc_allreduce(&sum, &sum, 1, AIACC_INT32, AIACC_SUM, group, nullptr, nullptr));
          EXPECT_EQ(sum, 3);
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace aiacc
