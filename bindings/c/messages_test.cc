// sendrecv and recv from any through the C ABI.
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::says;
using test::World;

class Messages : public testing::TestWithParam<int> {};

TEST_P(Messages, PassRoundACircle) {
  const World world(static_cast<std::size_t>(GetParam()));
  const int n = GetParam();
  world.run([&](int rank, aiacc_group_t group) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{700'001}}) {
      // Each rank receives as many elements as its left neighbour sends.
      const int left = (rank + n - 1) % n;
      const std::vector<int> send(count + static_cast<std::size_t>(rank), rank);
      std::vector<int> recv(count + static_cast<std::size_t>(left), -1);
      const auto tag = static_cast<std::uint32_t>(rank);
      ASSERT_AIACC(aiacc_sendrecv(send.data(), send.size(), (rank + 1) % n, tag, recv.data(), recv.size(), left,
                                  static_cast<std::uint32_t>(left), AIACC_INT32, group, nullptr, nullptr));
      EXPECT_EQ(recv, std::vector<int>(recv.size(), left));
    }
  });
}

TEST_P(Messages, ComeFromAny) {
  const World world(static_cast<std::size_t>(GetParam()));
  const int n = GetParam();
  constexpr int kRounds = 20;
  world.run([&](int rank, aiacc_group_t group) {
    if (rank != 0) {
      for (int round = 0; round < kRounds; ++round) {
        const int data[] = {rank, round};
        ASSERT_AIACC(aiacc_send(data, 2, AIACC_INT32, 0, 5, group, nullptr, nullptr));
      }
      return;
    }
    const int own[] = {0, 0};
    ASSERT_AIACC(aiacc_send(own, 2, AIACC_INT32, 0, 5, group, nullptr, nullptr));
    std::vector<int> next(static_cast<std::size_t>(n), 0);
    for (int i = 0; i < 1 + kRounds * (n - 1); ++i) {
      int data[2] = {-1, -1};
      int from = -1;
      aiacc_request_t request = AIACC_NULL;
      ASSERT_AIACC(aiacc_recv_any(data, 2, AIACC_INT32, &from, 5, group, nullptr, i % 2 == 0 ? &request : nullptr));
      if (request != AIACC_NULL) {
        ASSERT_AIACC(aiacc_wait(request));
      }
      ASSERT_EQ(data[0], from);
      ASSERT_EQ(data[1], next[static_cast<std::size_t>(from)]++) << "messages of one rank come in their order";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Messages, testing::Values(1, 2, 3, 7));

TEST(MessagesFromAny, LeaveToARecvWhatItAsksFor) {
  World world(3);
  world.run([](int rank, aiacc_group_t group) {
    if (rank == 0) {
      int any = -1, named = -1, from = -1;
      aiacc_request_t first = AIACC_NULL, second = AIACC_NULL;
      ASSERT_AIACC(aiacc_recv_any(&any, 1, AIACC_INT32, &from, 9, group, nullptr, &first));
      ASSERT_AIACC(aiacc_recv(&named, 1, AIACC_INT32, 1, 9, group, nullptr, &second));
      ASSERT_AIACC(aiacc_barrier(group, nullptr, nullptr));
      ASSERT_AIACC(aiacc_wait(second));
      ASSERT_AIACC(aiacc_wait(first));
      EXPECT_EQ(named, 1);
      EXPECT_EQ(any, 2);
      EXPECT_EQ(from, 2);
      return;
    }
    ASSERT_AIACC(aiacc_barrier(group, nullptr, nullptr));
    if (rank == 1) {
      ASSERT_AIACC(aiacc_send(&rank, 1, AIACC_INT32, 0, 9, group, nullptr, nullptr));
    }
    if (rank == 2) {
      ASSERT_AIACC(aiacc_send(&rank, 1, AIACC_INT32, 0, 9, group, nullptr, nullptr));
    }
  });
}

TEST(MessagesFromAny, OfAnotherLengthAreAMismatch) {
  World world(2);
  world.run([](int rank, aiacc_group_t group) {
    int data[4] = {};
    int from = -1;
    if (rank == 1) {
      EXPECT_AIACC(aiacc_send(data, 3, AIACC_INT32, 0, 1, group, nullptr, nullptr));
      EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_MISMATCH) << "it hears of it as well";
      return;
    }
    EXPECT_EQ(aiacc_recv_any(data, 4, AIACC_INT32, &from, 1, group, nullptr, nullptr), AIACC_ERR_MISMATCH);
    EXPECT_TRUE(says("rank 1 sent 12 bytes") && says("expects 16")) << aiacc_last_error();
  });
}

TEST(MessagesFromAny, EndWithTheirDeadline) {
  World world(2);
  world.run([](int rank, aiacc_group_t group) {
    if (rank == 1) {
      EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_TIMEOUT);
      return;
    }
    aiacc_attr_t attr = {};
    attr.size = sizeof attr;
    attr.timeout_ms = 50;
    int data = 0, from = -1;
    EXPECT_EQ(aiacc_recv_any(&data, 1, AIACC_INT32, &from, 1, group, &attr, nullptr), AIACC_ERR_TIMEOUT);
    EXPECT_TRUE(says("recv of 1 int32 from any rank, tag 1")) << aiacc_last_error();
    EXPECT_EQ(from, -1);
  });
}

// Of two messages the second is received first, so the first is there when a receive asks for it.
void take_second(aiacc_group_t group, std::uint32_t tag) {
  int data = 0;
  aiacc_request_t request = AIACC_NULL;
  ASSERT_AIACC(aiacc_recv(&data, 1, AIACC_INT32, 1, tag, group, nullptr, &request));
  ASSERT_AIACC(aiacc_wait(request));
  EXPECT_EQ(data, static_cast<int>(tag));
}

TEST(MessagesThatAreThere, AreReceivedWithAttributesToo) {
  World world(2);
  world.run([](int rank, aiacc_group_t group) {
    if (rank == 1) {
      for (const int value : {7, 8, 17}) {
        ASSERT_AIACC(
            aiacc_send(&value, 1, AIACC_INT32, 0, static_cast<std::uint32_t>(value % 10), group, nullptr, nullptr));
      }
      return;
    }
    take_second(group, 8);
    aiacc_attr_t attr = {};
    attr.size = sizeof attr;
    for (const int value : {7, 17}) {
      int data = 0;
      aiacc_request_t request = AIACC_NULL;
      ASSERT_AIACC(aiacc_recv(&data, 1, AIACC_INT32, 1, 7, group, &attr, &request));
      ASSERT_AIACC(aiacc_wait_for(request, 20'000));
      EXPECT_EQ(data, value) << "in their order";
    }
  });
}

TEST(MessagesThatAreThere, OfAnotherLengthAreAMismatch) {
  World world(2);
  world.run([](int rank, aiacc_group_t group) {
    int data[4] = {8, 8, 8, 8};
    if (rank == 1) {
      ASSERT_AIACC(aiacc_send(data, 3, AIACC_INT32, 0, 7, group, nullptr, nullptr));
      ASSERT_AIACC(aiacc_send(data, 1, AIACC_INT32, 0, 8, group, nullptr, nullptr));
      EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_MISMATCH) << "it hears of it as well";
      return;
    }
    take_second(group, 8);
    aiacc_request_t request = AIACC_NULL;
    ASSERT_AIACC(aiacc_recv(data, 4, AIACC_INT32, 1, 7, group, nullptr, &request));
    EXPECT_EQ(aiacc_wait_for(request, 20'000), AIACC_ERR_MISMATCH);
    EXPECT_TRUE(says("rank 1 sent 12 bytes") && says("expects 16")) << aiacc_last_error();
  });
}

// A blocking recv takes a message in place if it is there or comes soon, but none that a recv before it waits for.
TEST(MessagesThatBlock, ComeBehindReceivesThatWait) {
  World world(2);
  world.run([](int rank, aiacc_group_t group) {
    for (int round = 0; round < 300; ++round) {
      const std::size_t count = round % 3 == 0 ? 20'000 : 1;  // more than a slab's longest, too
      std::vector<int> first(count, round), second(count, -round), third(count, 7);
      if (rank == 1) {
        ASSERT_AIACC(aiacc_send(first.data(), count, AIACC_INT32, 0, 1, group, nullptr, nullptr));
        ASSERT_AIACC(aiacc_sendrecv(second.data(), count, 0, 1, third.data(), count, 0, 2, AIACC_INT32, group, nullptr,
                                    nullptr));
        ASSERT_EQ(third, std::vector<int>(count, round + 1));
        continue;
      }
      const std::vector<int> answer(count, round + 1);
      aiacc_request_t request = AIACC_NULL;
      ASSERT_AIACC(aiacc_recv(first.data(), count, AIACC_INT32, 1, 1, group, nullptr, &request));
      ASSERT_AIACC(aiacc_recv(second.data(), count, AIACC_INT32, 1, 1, group, nullptr, nullptr));
      ASSERT_AIACC(aiacc_send(answer.data(), count, AIACC_INT32, 1, 2, group, nullptr, nullptr));
      ASSERT_AIACC(aiacc_wait(request));
      ASSERT_EQ(first, std::vector<int>(count, round));
      ASSERT_EQ(second, std::vector<int>(count, -round));
    }
  });
}

TEST(MessagesThatBlock, OfAnotherLengthAreAMismatch) {
  World world(2);
  world.run([](int rank, aiacc_group_t group) {
    int sent[4] = {8, 8, 8, 8}, got[4] = {};
    if (rank == 1) {
      ASSERT_AIACC(aiacc_send(sent, 3, AIACC_INT32, 0, 7, group, nullptr, nullptr));
      EXPECT_EQ(aiacc_barrier(group, nullptr, nullptr), AIACC_ERR_MISMATCH) << "it hears of it as well";
      return;
    }
    EXPECT_EQ(aiacc_sendrecv(sent, 1, 1, 8, got, 4, 1, 7, AIACC_INT32, group, nullptr, nullptr), AIACC_ERR_MISMATCH);
    EXPECT_TRUE(says("rank 1 sent 12 bytes") && says("expects 16")) << aiacc_last_error();
  });
}

TEST(MessagesThatBlock, AreRefusedInACallback) {
  World world(2);
  world.run([](int rank, aiacc_group_t group) {
    struct Seen {
      aiacc_group_t group;
      int peer;
      std::atomic<int> send{-1}, recv{-1};
    } seen{group, 1 - rank};
    aiacc_attr_t attr = {};
    attr.size = sizeof attr;
    attr.callback_arg = &seen;
    attr.callback = [](aiacc_status_t, const char*, void* arg) {
      auto& what = *static_cast<Seen*>(arg);
      int data = 0;
      what.recv = aiacc_recv(&data, 1, AIACC_INT32, what.peer, 1, what.group, nullptr, nullptr);
      what.send = aiacc_send(&data, 1, AIACC_INT32, what.peer, 1, what.group, nullptr, nullptr);
    };
    ASSERT_AIACC(aiacc_barrier(group, &attr, nullptr));
    while (seen.send < 0) std::this_thread::yield();
    EXPECT_EQ(seen.send, AIACC_ERR_INVALID_STATE);
    EXPECT_EQ(seen.recv, AIACC_ERR_INVALID_STATE);
    ASSERT_AIACC(aiacc_barrier(group, nullptr, nullptr));
  });
}

TEST(MessagesArguments, AreRefused) {
  World world(1);
  const aiacc_group_t group = world.group(0);
  int data[8] = {}, other[8] = {}, from = 0;
  const auto refused = [](aiacc_status_t status, const char* word) {
    EXPECT_EQ(status, AIACC_ERR_INVALID_ARGUMENT);
    EXPECT_TRUE(says(word)) << aiacc_last_error();
  };
  const auto call = [&](const int* send, int to, int* recv, int source) {
    return aiacc_sendrecv(send, 4, to, 1, recv, 4, source, 1, AIACC_INT32, group, nullptr, nullptr);
  };
  refused(call(nullptr, 0, other, 0), "send is NULL");
  refused(call(data, 0, nullptr, 0), "recv is NULL");
  refused(call(data, 1, other, 0), "to is 1");
  refused(call(data, 0, other, -1), "from is -1");
  refused(call(data, 0, data + 2, 0), "overlap");
  refused(aiacc_recv_any(data, 4, AIACC_INT32, nullptr, 1, group, nullptr, nullptr), "from is NULL");
  refused(aiacc_recv_any(nullptr, 4, AIACC_INT32, &from, 1, group, nullptr, nullptr), "buffer is NULL");
  data[3] = 5;
  EXPECT_AIACC(call(data, 0, other, 0));
  EXPECT_EQ(other[3], 5);
}

}  // namespace
}  // namespace aiacc
