#include "transports/sim/sim_domain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "transports/host/host_conformance.h"

namespace aiacc {
namespace {

using sim::SimDomain;
using sim::SimHostMemory;
using sim::SimLoop;
using sim::World;

// The simulated ranks of one host.
struct SimHostRanks {
  explicit SimHostRanks(int ranks, std::uint64_t seed = 1) : world(seed), memory(world, ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      loops.push_back(std::make_unique<SimLoop>(world, "rank " + std::to_string(rank)));
      domains.push_back(memory.attach(rank, *loops.back()));
    }
  }
  SimDomain& operator[](int rank) { return *domains[static_cast<std::size_t>(rank)]; }
  SimLoop& loop(int rank) { return *loops[static_cast<std::size_t>(rank)]; }

  World world;
  SimHostMemory memory;
  std::vector<std::unique_ptr<SimLoop>> loops;
  std::vector<std::unique_ptr<SimDomain>> domains;
};

class SimUnderTest final : public HostUnderTest {
 public:
  explicit SimUnderTest(int members) : ranks_(members) {}
  int size() const override { return static_cast<int>(ranks_.domains.size()); }
  HostDomain& member(int rank) override { return ranks_[rank]; }
  void run(std::vector<Task<void>> tasks) override {
    for (Task<void>& task : tasks) task.start();
    for (Task<void>& task : tasks) {
      if (!ranks_.world.run_while_not([&task] { return task.done(); }))
        throw Error(Code::kInternal, "a task never ends");
    }
    for (Task<void>& task : tasks) task.take();
  }

 private:
  SimHostRanks ranks_;
};

std::unique_ptr<HostUnderTest> make(int members) { return std::make_unique<SimUnderTest>(members); }
INSTANTIATE_TEST_SUITE_P(Sim, HostConformance, ::testing::Values(&make));

// --- the fence, in virtual time ----------------------------------------------------------------------------------------

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kOperation = 77;
constexpr std::size_t kBytes = 64 << 10;
constexpr std::size_t kChunk = 16 << 10;

// Stores into rank 0's buffer. Each chunk takes two halves with time in between, so that the rank can be frozen, and the
// abort come, in the middle of one.
Task<void> store(HostDomain* host, std::uint64_t offset, Code* result) {
  Stop never;
  *result = Code::kOk;
  try {
    StoreWindow window(*host, kOperation);
    for (std::size_t at = 0; at < kBytes; at += kChunk) {
      window.next_chunk();
      for (std::size_t half : {at, at + kChunk / 2}) {
        std::memset(host->view(0, offset + half, kChunk / 2), 0xee, kChunk / 2);
        co_await sleep_for(host->loop(), microseconds(3), never);
      }
    }
  } catch (const Error& error) {
    *result = error.code();
  }
}

// The owner fails its operation at `when`, waits for quiet, and uses its buffer again.
Task<void> fail_and_reuse(HostDomain* host, HostRange range, Duration when, Duration* took) {
  Stop never;
  co_await sleep_for(host->loop(), when, never);
  const Instant began = host->loop().now();
  host->abort_stores(kOperation);
  co_await host->quiesce(kOperation, range);
  *took = host->loop().now() - began;
  std::memset(host->view(0, range), 0x22, range.bytes);
}

bool holds(const std::byte* begin, std::byte value) {
  return std::all_of(begin, begin + kBytes, [value](std::byte byte) { return byte == value; });
}

TEST(SimFence, AFrozenStorerChangesNothingAfterTheErrorWheneverItFroze) {
  int frozen_in_store = 0;
  for (int moment = 0; moment < 30; ++moment) {
    SimHostRanks ranks(2, static_cast<std::uint64_t>(moment));
    const HostRange range = ranks[0].allocate(kBytes);
    std::byte* buffer = ranks[0].view(0, range);
    Code result = Code::kInternal;
    Duration took{};
    Task<void> storer = store(&ranks[1], range.offset, &result);
    Task<void> owner = fail_and_reuse(&ranks[0], range, microseconds(40), &took);
    ranks.world.at(Instant(microseconds(moment)), [&] { ranks.world.freeze(ranks.loop(1).node()); });
    ranks.world.at(Instant(seconds(5)), [&] { ranks.world.thaw(ranks.loop(1).node()); });
    storer.start();
    owner.start();
    ranks.world.run_until(Instant(seconds(4)));
    ASSERT_TRUE(owner.done());
    ASSERT_TRUE(holds(buffer, std::byte{0x22})) << moment;
    const bool in_store = !storer.done();
    ranks.world.run();
    ASSERT_TRUE(storer.done());
    EXPECT_TRUE(holds(buffer, std::byte{0x22})) << "frozen at " << moment << " us: a late store reached the owner";
    if (in_store) {
      ++frozen_in_store;
      EXPECT_GE(took, seconds(1));
      EXPECT_LE(took, milliseconds(1001));
    }
  }
  EXPECT_GT(frozen_in_store, 10);
}

TEST(SimFence, AStorerThatRunsAcknowledgesWithinAChunk) {
  SimHostRanks ranks(2);
  const HostRange range = ranks[0].allocate(kBytes);
  std::byte* buffer = ranks[0].view(0, range);
  Code result = Code::kInternal;
  Duration took{};
  Task<void> storer = store(&ranks[1], range.offset, &result);
  Task<void> owner = fail_and_reuse(&ranks[0], range, microseconds(7), &took);
  storer.start();
  owner.start();
  ranks.world.run();
  EXPECT_EQ(result, Code::kAborted);
  EXPECT_LE(took, microseconds(7));
  EXPECT_TRUE(holds(buffer, std::byte{0x22}));
  EXPECT_EQ(ranks[0].offset_of(buffer, kBytes), range.offset) << "the range stays shared";
}

TEST(SimFence, AThirdRankDiesWhileOneIsFrozen) {
  for (int moment = 1; moment < 24; ++moment) {
    SimHostRanks ranks(3, static_cast<std::uint64_t>(moment));
    const HostRange range = ranks[0].allocate(kBytes);
    std::byte* buffer = ranks[0].view(0, range);
    Code frozen_result = Code::kInternal, dead_result = Code::kInternal;
    Duration took{};
    Task<void> frozen = store(&ranks[1], range.offset, &frozen_result);
    Task<void> dying = store(&ranks[2], range.offset, &dead_result);
    Task<void> owner = fail_and_reuse(&ranks[0], range, microseconds(30), &took);
    ranks.world.at(Instant(microseconds(moment)), [&] { ranks.world.freeze(ranks.loop(1).node()); });
    ranks.world.at(Instant(microseconds(24 - moment)), [&] { ranks.world.kill(ranks.loop(2).node()); });
    // The owner's agent notices the death while the owner already waits for the frozen one.
    ranks.world.at(Instant(milliseconds(300)), [&] { ranks[0].mark_dead(2); });
    ranks.world.at(Instant(seconds(5)), [&] { ranks.world.thaw(ranks.loop(1).node()); });
    for (Task<void>* task : {&frozen, &dying, &owner}) task->start();
    ranks.world.run();
    ASSERT_TRUE(owner.done());
    ASSERT_TRUE(frozen.done());
    EXPECT_TRUE(holds(buffer, std::byte{0x22})) << moment;
    EXPECT_LE(took, milliseconds(1001));
    ranks.loop(2).bury();  // so that its frames go away
  }
}

TEST(SimDomain, AFlagIsSeenAfterItsVirtualCost) {
  SimHostRanks ranks(2);
  const std::uint32_t line = ranks[0].claim_lines(5, 1);
  Code code = Code::kInternal;
  Task<void> waiter = host_conformance::wait_for(ranks[1], {0, line, 0}, 1, seconds(1), code);
  waiter.start();
  ranks.world.at(Instant(microseconds(10)), [&] { ranks[0].publish(line, 0, 1); });
  ASSERT_TRUE(ranks.world.run_while_not([&] { return waiter.done(); }));
  EXPECT_EQ(code, Code::kOk);
  EXPECT_EQ(ranks.world.now(), Instant(microseconds(10) + std::chrono::nanoseconds(100)));
}

}  // namespace
}  // namespace aiacc
