// Messages between two ranks of a host: every size and place of memory, any order of tags, more than the ring holds.
#include "collectives/host/channel.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "collectives/host/select.h"
#include "tests/host_world.h"

namespace aiacc::host {
namespace {

using namespace std::chrono_literals;

Call message(Collective kind, int peer, std::uint32_t tag, std::size_t count, DType type = DType::kInt32) {
  Call call;
  call.kind = kind;
  call.root = peer;
  call.tag = tag;
  call.count = count;
  call.reduction.type = type;
  return call;
}

// Operations that run side by side, with the memory that they use.
class Batch {
 public:
  explicit Batch(Rank& rank)
      : rank_(rank), deadline_(rank.loop, after(rank.loop.now(), 60s), stop_, "the messages do not arrive") {}

  void send(int to, std::uint32_t tag, std::size_t count, int value, bool shared = false) {
    std::int32_t* data = memory(count, shared);
    for (std::size_t i = 0; i < count; ++i) data[i] = value + static_cast<std::int32_t>(i);
    start(message(Collective::kSend, to, tag, count), {reinterpret_cast<std::byte*>(data), count * 4}, {});
  }
  std::int32_t* recv(int from, std::uint32_t tag, std::size_t count) {
    std::int32_t* data = memory(count, false);
    start(message(Collective::kRecv, from, tag, count), {}, {reinterpret_cast<std::byte*>(data), count * 4});
    return data;
  }
  void finish() {
    for (Task<void>& task : tasks_) rank_.loop.run_until([&task] { return task.done(); });
    for (Task<void>& task : tasks_) task.take();
    tasks_.clear();
  }

 private:
  std::int32_t* memory(std::size_t count, bool shared) {
    if (shared) {
      const HostRange range = rank_.domain.allocate(count * 4);
      return reinterpret_cast<std::int32_t*>(rank_.domain.view(rank_.rank(), range.offset));
    }
    return memory_.emplace_back(count + 1).data();
  }
  void start(const Call& call, Buffer send, Buffer recv) {
    operations_.push_back(std::make_unique<Operation>(Operation{rank_.team, call, 0, stop_, send, recv}));
    tasks_.push_back(run(*operations_.back()));
    tasks_.back().start();
  }

  Rank& rank_;
  Stop stop_;
  Deadline deadline_;
  std::vector<std::vector<std::int32_t>> memory_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Task<void>> tasks_;
};

void expect_message(const std::int32_t* data, std::size_t count, int value) {
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], value + static_cast<std::int32_t>(i)) << "element " << i;
}

TEST(Channel, CarriesEverySizeFromEveryMemory) {
  run_ranks(2, [](Rank& rank) {
    int value = 0;
    for (const std::size_t count : {0, 1, 255, 256, 257, 16'384, 16'385, 100'000}) {
      for (const bool shared : {false, true}) {
        Batch batch(rank);
        value += 1'000'000;
        if (rank.rank() == 0) {
          batch.send(1, 3, count, value, shared);
          batch.finish();
        } else {
          const std::int32_t* data = batch.recv(0, 3, count);
          batch.finish();
          expect_message(data, count, value);
        }
      }
    }
  });
}

TEST(Channel, BothWaysAtOnce) {
  run_ranks(3, [](Rank& rank) {
    Batch batch(rank);
    std::vector<const std::int32_t*> received;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank.rank()) continue;
      batch.send(peer, 1, 50'000, rank.rank() * 100);
      received.push_back(batch.recv(peer, 1, 50'000));
    }
    batch.finish();
    expect_message(received[0], 50'000, (rank.rank() == 0 ? 1 : 0) * 100);
    expect_message(received[1], 50'000, (rank.rank() == 2 ? 1 : 2) * 100);
  });
}

TEST(Channel, MatchesTagsInAnyOrderAndEqualOnesInTheirs) {
  run_ranks(2, [](Rank& rank) {
    constexpr std::uint32_t kTags = 20;
    for (const std::size_t count : {5, 3'000}) {
      Batch batch(rank);
      if (rank.rank() == 0) {
        for (std::uint32_t tag = 0; tag < kTags; ++tag) batch.send(1, tag / 2, count, static_cast<int>(tag) * 10);
        batch.finish();
        continue;
      }
      std::vector<const std::int32_t*> received(kTags);
      for (std::uint32_t tag = kTags / 2; tag-- > 0;) {
        received[2 * tag] = batch.recv(0, tag, count);
        received[2 * tag + 1] = batch.recv(0, tag, count);
      }
      batch.finish();
      for (std::uint32_t tag = 0; tag < kTags; ++tag) expect_message(received[tag], count, static_cast<int>(tag) * 10);
    }
  });
}

TEST(Channel, ASenderWaitsWhenTheRingIsFull) {
  run_ranks(2, [](Rank& rank) {
    constexpr int kMessages = 500;
    Batch batch(rank);
    std::vector<const std::int32_t*> received;
    for (int i = 0; i < kMessages; ++i) {
      if (rank.rank() == 0) {
        batch.send(1, 9, 2, i);
      } else {
        received.push_back(batch.recv(0, 9, 2));
      }
    }
    batch.finish();
    for (std::size_t i = 0; i < received.size(); ++i) expect_message(received[i], 2, static_cast<int>(i));
  });
}

// A recv that waits keeps no collective from running, and the other way round.
TEST(Channel, MessagesAndCollectivesDoNotWaitForEachOther) {
  run_ranks(2, [](Rank& rank) {
    Stop stop;
    Batch batch(rank);
    const std::int32_t* data = rank.rank() == 1 ? batch.recv(0, 4, 7) : nullptr;
    Operation barrier{rank.team, message(Collective::kBarrier, 0, 0, 0), 1, stop, {}, {}};
    rank.loop.run(run(barrier));
    if (rank.rank() == 0) batch.send(1, 4, 7, 77);
    batch.finish();
    if (data != nullptr) expect_message(data, 7, 77);
  });
}

TEST(Channel, ADifferenceIsNamed) {
  run_ranks(2, [](Rank& rank) {
    Batch batch(rank);
    if (rank.rank() == 0) {
      batch.send(1, 4, 7, 0);
      batch.finish();
      return;
    }
    batch.recv(0, 4, 8);
    try {
      batch.finish();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kMismatch);
      EXPECT_NE(error.message().find("rank 0 sent 7 int32, tag 4"), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("8 int32"), std::string::npos) << error.message();
    }
  });
}

}  // namespace
}  // namespace aiacc::host
