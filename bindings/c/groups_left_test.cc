// Groups of a job that some members have left already: what they said last, and calls that they do not make.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::group_of;
using test::World;

// The world has ended, so its last barrier holds nobody back. Two ranks leave, and the third one has not yet begun anything in a group
// of them.
TEST(GroupsLeft, WhatMembersSaidLastIsReceivedAfterTheyHaveLeft) {
  constexpr std::size_t kLengths[] = {1, 5'000, 200'000, 2'000'000};
  World world(3);
  world.forget();
  std::atomic<int> ready{0}, left{0};
  std::atomic<bool> ended{false};
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_t group = group_of(all, {0, 1, 2});
    ++ready;
    if (rank == 2) {
      while (ready.load() < 3) std::this_thread::yield();
      EXPECT_AIACC(aiacc_group_abort(all, "its end"));
      ended = true;
      while (left.load() < 2) std::this_thread::yield();
    } else {
      while (!ended) std::this_thread::yield();
    }
    aiacc_attr_t attr = {};
    attr.size = sizeof attr;
    attr.timeout_ms = 60'000;
    for (const std::size_t length : kLengths) {
      std::vector<std::uint8_t> bytes(length, rank == 2 ? 0 : static_cast<std::uint8_t>(40 + rank));
      if (rank != 2) {
        EXPECT_AIACC(aiacc_send(bytes.data(), length, AIACC_UINT8, 2, rank == 0 ? 7 : 0, group, &attr, nullptr));
        continue;
      }
      for (const int from : {0, 1}) {
        EXPECT_AIACC(aiacc_recv(bytes.data(), length, AIACC_UINT8, from, from == 0 ? 7 : 0, group, &attr, nullptr));
        EXPECT_EQ(static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), 40 + from)), length);
      }
    }
    EXPECT_AIACC(aiacc_context_destroy(world.context(rank)));
    ++left;
  });
}

TEST(GroupsLeft, AMemberThatHasLeftTheJobWithoutACallIsNamed) {
  World world(2);
  world.forget();
  std::atomic<int> ready{0};
  std::atomic<bool> left{false};
  world.run([&](int rank, aiacc_group_t all) {
    const aiacc_group_t group = group_of(all, {0, 1});
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
    ++ready;
    while (ready.load() < 2) std::this_thread::yield();
    if (rank == 1) {
      EXPECT_AIACC(aiacc_group_abort(all, "its end"));  // so that no last barrier holds it back
    } else {
      while (!left) std::this_thread::yield();
      aiacc_attr_t attr = {};
      attr.size = sizeof attr;
      attr.timeout_ms = 60'000;
      EXPECT_EQ(aiacc_barrier(group, &attr, nullptr), AIACC_ERR_MISMATCH) << aiacc_last_error();
      EXPECT_EQ(aiacc_last_error_rank(), 1) << aiacc_last_error();
    }
    EXPECT_AIACC(aiacc_context_destroy(world.context(rank)));
    left = true;
  });
}

}  // namespace
}  // namespace aiacc
