// Requests: wait for one, any or all; query and forget; and the attributes of calls that start them.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::expect;
using test::group_of;
using test::says;
using test::World;

aiacc_attr_t attributes() {
  aiacc_attr_t attr = {};
  attr.size = sizeof attr;
  return attr;
}

TEST(Waiting, ForAny) {
  World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    int words[3] = {};
    aiacc_request_t requests[4] = {};
    std::size_t index = 77;
    if (rank == 1) {
      int word = 5;
      for (const std::uint32_t tag : {2, 0, 1}) {
        int go = 0;
        EXPECT_AIACC(aiacc_recv(&go, 1, AIACC_INT32, 0, 9, group, nullptr, nullptr));
        EXPECT_AIACC(aiacc_send(&word, 1, AIACC_INT32, 0, tag, group, nullptr, nullptr));
      }
      return;
    }
    for (std::uint32_t tag = 0; tag < 3; ++tag) {
      EXPECT_AIACC(aiacc_recv(&words[tag], 1, AIACC_INT32, 1, tag, group, nullptr, &requests[tag + 1]));
    }
    EXPECT_EQ(aiacc_wait_any(4, requests, 5, &index), AIACC_PENDING);
    EXPECT_EQ(aiacc_wait_any(4, requests, 0, &index), AIACC_PENDING);
    EXPECT_EQ(index, 77u);
    for (const std::size_t expected : {3, 1, 2}) {
      int word = 0;
      EXPECT_AIACC(aiacc_send(&word, 1, AIACC_INT32, 1, 9, group, nullptr, nullptr));
      EXPECT_AIACC(aiacc_wait_any(4, requests, AIACC_FOREVER, &index));
      EXPECT_EQ(index, expected);
      EXPECT_EQ(requests[index], AIACC_NULL);
      EXPECT_EQ(words[expected - 1], 5);
    }
    EXPECT_AIACC(aiacc_wait_any(4, requests, AIACC_FOREVER, &index)) << "nothing is left";
    EXPECT_EQ(index, 4u);
    EXPECT_AIACC(aiacc_wait_any(0, nullptr, 0, &index));
    EXPECT_EQ(index, 0u);
  });
}

TEST(Waiting, ForAll) {
  World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    std::vector<std::vector<int>> data(8, std::vector<int>(4000, rank + 1));
    std::vector<aiacc_request_t> requests(10);
    for (std::size_t i = 0; i < data.size(); ++i) {
      EXPECT_AIACC(aiacc_allreduce(data[i].data(), data[i].data(), 4000, AIACC_INT32, AIACC_SUM, group, nullptr,
                                   &requests[i + 1]));
    }
    EXPECT_AIACC(aiacc_wait_all(requests.size(), requests.data(), AIACC_FOREVER));
    for (const auto& each : data) EXPECT_EQ(each.back(), 3);
    EXPECT_EQ(std::count(requests.begin(), requests.end(), AIACC_NULL), 10);
    EXPECT_AIACC(aiacc_wait_all(requests.size(), requests.data(), 0));
    EXPECT_AIACC(aiacc_wait_all(0, nullptr, AIACC_FOREVER));
  });
}

TEST(Waiting, ForAllKeepsErrorsUntilAllHaveEnded) {
  World world(2);
  std::atomic<bool> go{false};
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_t wrong = group_of(all, {0, 1});
    int one[2] = {1, 1};
    int word = 7;
    aiacc_request_t requests[3] = {};
    EXPECT_AIACC(aiacc_barrier(all, nullptr, &requests[0]));
    EXPECT_AIACC(aiacc_allreduce(one, one, rank == 0 ? 1 : 2, AIACC_INT32, AIACC_SUM, wrong, nullptr, &requests[1]));
    if (rank == 1) {
      EXPECT_EQ(aiacc_wait_all(2, requests, AIACC_FOREVER), AIACC_ERR_MISMATCH);
      while (!go) std::this_thread::yield();
      EXPECT_AIACC(aiacc_send(&word, 1, AIACC_INT32, 0, 0, all, nullptr, nullptr));
      return;
    }
    EXPECT_AIACC(aiacc_recv(&word, 1, AIACC_INT32, 1, 0, all, nullptr, &requests[2]));
    while (aiacc_request_error(requests[1], std::array<const char*, 1>{}.data()) == AIACC_PENDING)
      std::this_thread::yield();
    while (requests[0] != AIACC_NULL) EXPECT_EQ(aiacc_wait_all(3, requests, 1), AIACC_PENDING);
    EXPECT_NE(requests[1], AIACC_NULL) << "its error was not told yet";
    go = true;
    EXPECT_EQ(aiacc_wait_all(3, requests, AIACC_FOREVER), AIACC_ERR_MISMATCH);
    EXPECT_TRUE(says("allreduce of 2 int32")) << aiacc_last_error();
    for (const aiacc_request_t request : requests) EXPECT_EQ(request, AIACC_NULL);
  });
}

TEST(Waiting, ForRequestsOfSeveralContexts) {
  World one(2);
  World other(2);
  one.run([&](int rank, aiacc_group_t group) {
    int words[2] = {rank, rank};
    aiacc_request_t requests[2] = {};
    EXPECT_AIACC(aiacc_allreduce(&words[0], &words[0], 1, AIACC_INT32, AIACC_SUM, group, nullptr, &requests[0]));
    EXPECT_AIACC(
        aiacc_allreduce(&words[1], &words[1], 1, AIACC_INT32, AIACC_SUM, other.group(rank), nullptr, &requests[1]));
    std::size_t index = 0;
    EXPECT_AIACC(aiacc_wait_any(2, requests, AIACC_FOREVER, &index));
    EXPECT_AIACC(aiacc_wait_any(2, requests, AIACC_FOREVER, &index));
    EXPECT_EQ(words[0] + words[1], 2);
  });
}

// By turns of one and the other, some over at once and some not; the requests of either count as one context's.
TEST(Waiting, ForAllOfSeveralContextsInTurns) {
  World one(2);
  World other(2);
  std::atomic<int> looked{0};
  one.run([&](int rank, aiacc_group_t group) {
    const std::array<aiacc_group_t, 2> groups = {group, other.group(rank)};
    std::vector<int> in(32, -1), out(32, rank);
    std::vector<aiacc_request_t> requests(64);
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_AIACC(aiacc_recv(&in[i], 1, AIACC_INT32, 1 - rank, static_cast<std::uint32_t>(i), groups[i % 2], nullptr,
                              &requests[i]));
    }
    EXPECT_EQ(aiacc_wait_all(requests.size(), requests.data(), 0), AIACC_PENDING);
    ++looked;
    while (looked < 2) std::this_thread::yield();
    for (std::size_t i = 32; i-- > 0;) {
      EXPECT_AIACC(aiacc_send(&out[i], 1, AIACC_INT32, 1 - rank, static_cast<std::uint32_t>(i), groups[i % 2], nullptr,
                              &requests[32 + i]));
    }
    EXPECT_AIACC(aiacc_wait_all(requests.size(), requests.data(), AIACC_FOREVER));
    EXPECT_EQ(in, std::vector<int>(32, 1 - rank));
    EXPECT_EQ(requests, std::vector<aiacc_request_t>(64, AIACC_NULL));
  });
}

// A send within a host ends while it is submitted, and its request is one all the same.
TEST(Requests, OfWhatEndsAtOnceAreAsOthers) {
  World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    int word = rank;
    if (rank == 1) {
      for (std::uint32_t tag = 0; tag < 6; ++tag) {
        EXPECT_AIACC(aiacc_recv(&word, 1, AIACC_INT32, 0, tag, group, nullptr, nullptr));
      }
      return;
    }
    aiacc_request_t requests[6] = {};
    for (std::uint32_t tag = 0; tag < 6; ++tag) {
      EXPECT_AIACC(aiacc_send(&word, 1, AIACC_INT32, 1, tag, group, nullptr, &requests[tag]));
    }
    const char* sentence = nullptr;
    std::uint64_t first = 0, second = 0;
    EXPECT_EQ(aiacc_request_error(requests[0], &sentence), AIACC_OK);
    EXPECT_STREQ(sentence, "");
    EXPECT_AIACC(aiacc_request_sequence(requests[0], &first));
    EXPECT_AIACC(aiacc_request_sequence(requests[1], &second));
    EXPECT_EQ(second, first + 1);
    EXPECT_AIACC(aiacc_wait(requests[0]));
    expect(aiacc_wait(requests[0]), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
    EXPECT_AIACC(aiacc_test(requests[1]));
    expect(aiacc_request_sequence(requests[1], &second), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
    EXPECT_AIACC(aiacc_request_free(requests[2]));
    expect(aiacc_request_free(requests[2]), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
    std::size_t index = 7;
    EXPECT_AIACC(aiacc_wait_any(3, requests + 3, 0, &index));
    EXPECT_LT(index, 3u);
    EXPECT_AIACC(aiacc_wait_all(3, requests + 3, 0));
    EXPECT_AIACC(aiacc_wait_any(3, requests + 3, 0, &index));
    EXPECT_EQ(index, 3u) << "none is left";
  });
}

// Receives that have ended, of a world each. The first world is over then, and its request holds what is left of it.
TEST(Waiting, ForARequestTwiceOfAContextThatIsOver) {
  std::optional<World> over(std::in_place, 2);
  World other(2);
  int word = 0;
  aiacc_request_t requests[3] = {};
  const auto received = [&word](World& world, aiacc_request_t* request) {
    world.run([&](int rank, aiacc_group_t group) {
      int go = 0;
      if (rank == 1) {
        EXPECT_AIACC(aiacc_recv(&go, 1, AIACC_INT32, 0, 1, group, nullptr, nullptr));
        EXPECT_AIACC(aiacc_send(&go, 1, AIACC_INT32, 0, 0, group, nullptr, nullptr));
        return;
      }
      EXPECT_AIACC(aiacc_recv(&word, 1, AIACC_INT32, 1, 0, group, nullptr, request));
      EXPECT_AIACC(aiacc_send(&go, 1, AIACC_INT32, 1, 1, group, nullptr, nullptr));
      const char* sentence = nullptr;
      while (aiacc_request_error(*request, &sentence) == AIACC_PENDING) std::this_thread::yield();
    });
  };
  received(other, &requests[0]);
  received(*over, &requests[1]);
  requests[2] = requests[1];
  over.reset();
  expect(aiacc_wait_all(3, requests, AIACC_FOREVER), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
  EXPECT_AIACC(aiacc_barrier(other.group(0), nullptr, &requests[0]));
  EXPECT_AIACC(aiacc_barrier(other.group(1), nullptr, nullptr));
  EXPECT_AIACC(aiacc_wait(requests[0]));
}

TEST(Waiting, IsRefusedWithASentence) {
  World world(1);
  aiacc_request_t requests[2] = {AIACC_NULL, 0xdead};
  std::size_t index = 0;
  constexpr auto kBad = AIACC_ERR_INVALID_ARGUMENT;
  expect(aiacc_wait_any(1, nullptr, 0, &index), kBad, "requests is NULL");
  expect(aiacc_wait_any(2, requests, 0, nullptr), kBad, "index is NULL");
  expect(aiacc_wait_any(2, requests, -2, &index), kBad, "timeout_ms is -2");
  expect(aiacc_wait_any(2, requests, 0, &index), AIACC_ERR_INVALID_HANDLE, "requests[1]: 0xdead is not the handle");
  expect(aiacc_wait_all(2, requests, 0), AIACC_ERR_INVALID_HANDLE, "requests[1]");
  expect(aiacc_wait_all(2, nullptr, 0), kBad, "requests is NULL");
  const char* sentence = nullptr;
  std::uint64_t sequence = 0;
  expect(aiacc_request_free(world.group(0)), AIACC_ERR_INVALID_HANDLE, "not the handle of a request");
  expect(aiacc_request_error(AIACC_NULL, &sentence), AIACC_ERR_INVALID_HANDLE, "not the handle of a request");
  expect(aiacc_request_sequence(12, &sequence), AIACC_ERR_INVALID_HANDLE, "not the handle of a request");
  aiacc_request_t request = AIACC_NULL;
  ASSERT_AIACC(aiacc_barrier(world.group(0), nullptr, &request));
  expect(aiacc_request_error(request, nullptr), kBad, "sentence is NULL");
  expect(aiacc_request_sequence(request, nullptr), kBad, "sequence is NULL");
  EXPECT_AIACC(aiacc_wait(request));
}

TEST(Requests, AreLookedAt) {
  World world(2);
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_t group = group_of(all, {0, 1});
    aiacc_request_t good = AIACC_NULL;
    aiacc_request_t bad = AIACC_NULL;
    float data[3] = {};
    EXPECT_AIACC(aiacc_barrier(group, nullptr, &good));
    EXPECT_AIACC(aiacc_allreduce(data, data, rank == 0 ? 2 : 3, AIACC_FLOAT32, AIACC_SUM, group, nullptr, &bad));
    const char* sentence = nullptr;
    aiacc_status_t status = AIACC_PENDING;
    while ((status = aiacc_request_error(bad, &sentence)) == AIACC_PENDING) EXPECT_STREQ(sentence, "");
    EXPECT_EQ(status, AIACC_ERR_MISMATCH);
    EXPECT_NE(std::string(sentence).find("allreduce of 3 fp32"), std::string::npos) << sentence;
    EXPECT_EQ(aiacc_request_error(good, &sentence), AIACC_OK);
    EXPECT_STREQ(sentence, "");
    std::uint64_t sequence = 0;
    EXPECT_AIACC(aiacc_request_sequence(good, &sequence));
    EXPECT_EQ(sequence, 1u);
    EXPECT_AIACC(aiacc_request_sequence(bad, &sequence));
    EXPECT_TRUE(sequence == 2u || sequence == 0u)
        << sequence << "; 0: the other rank ended the group before it was begun";
    EXPECT_EQ(aiacc_wait(bad), AIACC_ERR_MISMATCH);
    EXPECT_AIACC(aiacc_wait(good));
  });
}

TEST(Requests, AreForgottenAndTheOperationGoesOn) {
  World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    std::vector<std::vector<int>> data(50, std::vector<int>(20'000, rank + 1));
    for (auto& each : data) {
      aiacc_request_t request = AIACC_NULL;
      EXPECT_AIACC(
          aiacc_allreduce(each.data(), each.data(), each.size(), AIACC_INT32, AIACC_SUM, group, nullptr, &request));
      EXPECT_AIACC(aiacc_request_free(request));
      EXPECT_EQ(aiacc_wait(request), AIACC_ERR_INVALID_HANDLE);
    }
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));  // the operations of a group on one host end in order
    for (const auto& each : data) EXPECT_EQ(each.back(), 3);
  });
}

TEST(Requests, ABarrierNamesAllWhoAreMissing) {
  World world(5);
  std::atomic<int> begun{0};
  std::atomic<int> failed{0};
  world.run([&](int rank, aiacc_group_t group) {
    aiacc_attr_t attr = attributes();
    attr.timeout_ms = rank == 0 ? 100 : 100'000;
    aiacc_request_t request = AIACC_NULL;
    if (rank == 0) {
      while (begun.load() < 2) std::this_thread::yield();  // ranks 2 and 4 are there before the time-out begins
    } else if (rank == 1 || rank == 3) {
      while (failed.load() < 3) std::this_thread::yield();
    } else {
      EXPECT_AIACC(aiacc_barrier(group, &attr, &request));
      ++begun;
    }
    EXPECT_EQ(request == AIACC_NULL ? aiacc_barrier(group, &attr, nullptr) : aiacc_wait(request), AIACC_ERR_TIMEOUT)
        << aiacc_last_error();
    EXPECT_TRUE(says("ranks 1, 3 have not arrived")) << aiacc_last_error();
    ++failed;
    int ranks[5] = {-7, -7, -7, -7, -7};
    std::size_t count = 0;
    EXPECT_AIACC(aiacc_last_error_ranks(ranks, 5, &count));
    EXPECT_EQ(count, 2u);
    EXPECT_EQ(ranks[0], 1);
    EXPECT_EQ(ranks[1], 3);
    EXPECT_EQ(ranks[2], -7);
    EXPECT_AIACC(aiacc_last_error_ranks(nullptr, 0, &count));
    EXPECT_EQ(count, 2u);
    EXPECT_EQ(aiacc_last_error_ranks(nullptr, 1, &count), AIACC_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(aiacc_last_error_ranks(ranks, 5, nullptr), AIACC_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(aiacc_last_error_rank(), 1);
  });
}

TEST(Attributes, OfOlderAndNewerCallers) {
  World world(1);
  struct Newer {
    aiacc_attr_t known;
    std::uint64_t unknown;
  } newer = {};
  newer.known.size = sizeof newer;
  EXPECT_AIACC(aiacc_barrier(world.group(0), &newer.known, nullptr));
  newer.unknown = 1;
  expect(aiacc_barrier(world.group(0), &newer.known, nullptr), AIACC_ERR_UNSUPPORTED, "older than the header");
  aiacc_attr_t attr = attributes();
  attr.size = offsetof(aiacc_attr_t, callback);  // the size before callbacks existed
  attr.callback = [](aiacc_status_t, const char*, void*) { ADD_FAILURE() << "what an older caller cannot have set"; };
  attr.memory_kind = 77;
  EXPECT_AIACC(aiacc_barrier(world.group(0), &attr, nullptr));
  attr.size = 8;
  expect(aiacc_barrier(world.group(0), &attr, nullptr), AIACC_ERR_INVALID_ARGUMENT, "sizeof(aiacc_attr_t)");
  attr.size = SIZE_MAX;
  expect(aiacc_barrier(world.group(0), &attr, nullptr), AIACC_ERR_INVALID_ARGUMENT, "sizeof(aiacc_attr_t)");
  attr = attributes();
  attr.memory_kind = 3;
  expect(aiacc_barrier(world.group(0), &attr, nullptr), AIACC_ERR_UNSUPPORTED, "memory_kind");
}

}  // namespace
}  // namespace aiacc
