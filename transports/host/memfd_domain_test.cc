#include "transports/host/memfd_domain.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

#include "transports/host/host_conformance.h"

namespace aiacc {
namespace {

constexpr std::uint64_t kNonce = 0x1234'5678'9abc'def0;
constexpr std::uint64_t kSliceBytes = std::uint64_t{64} << 20;

// All members in this thread, on one loop, each with a mapping of its own.
class MemfdUnderTest final : public HostUnderTest {
 public:
  explicit MemfdUnderTest(int members) {
    const HostSegment segment = HostSegment::create(members, kSliceBytes, kNonce);
    for (int rank = 0; rank < members; ++rank) {
      members_.push_back(MemfdDomain::attach(segment.descriptor(), kNonce, rank, members, loop_));
    }
  }
  int size() const override { return static_cast<int>(members_.size()); }
  HostDomain& member(int rank) override { return *members_[static_cast<std::size_t>(rank)]; }
  void run(std::vector<Task<void>> tasks) override {
    for (Task<void>& task : tasks) task.start();
    for (Task<void>& task : tasks) loop_.run_until([&task] { return task.done(); });
    for (Task<void>& task : tasks) task.take();
  }

 private:
  io::RealLoop loop_;
  std::vector<std::unique_ptr<MemfdDomain>> members_;
};

std::unique_ptr<HostUnderTest> make(int members) { return std::make_unique<MemfdUnderTest>(members); }

INSTANTIATE_TEST_SUITE_P(Memfd, HostConformance, ::testing::Values(&make));

TEST(MemfdDomain, PlacesThatPeersNameLieInTheirSlices) {
  const HostSegment segment = HostSegment::create(2, kSliceBytes, kNonce);
  io::RealLoop loop;
  const auto domain = MemfdDomain::attach(segment.descriptor(), kNonce, 0, 2, loop);
  EXPECT_EQ(domain->view(1, kSliceBytes - 8, 8) - domain->view(1, 0, 0), std::ptrdiff_t{kSliceBytes} - 8);
  const std::pair<std::uint64_t, std::uint64_t> outside[] = {
      {kSliceBytes - 8, 9}, {kSliceBytes + 1, 0}, {~std::uint64_t{0}, 1}, {8, ~std::uint64_t{0}}};
  for (const auto& [offset, bytes] : outside) {
    try {
      domain->view(1, offset, bytes);
      ADD_FAILURE() << offset << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kProtocol) << error.message();
    }
  }
}

TEST(MemfdDomain, LinesThatNobodyCanHaveClaimedAreNotFound) {
  constexpr std::uint64_t kKey = 5;
  const HostSegment segment = HostSegment::create(2, kSliceBytes, kNonce);
  io::RealLoop loop;
  const auto domain = MemfdDomain::attach(segment.descriptor(), kNonce, 0, 2, loop);
  const auto raw = SegmentMapping::map(segment.descriptor(), kNonce, 2);
  DirectoryEntry& entry = raw->control(1).directory[kKey];
  for (const std::uint64_t place : {std::uint64_t{0}, std::uint64_t{ControlArea::kLines}, ~std::uint64_t{0}}) {
    entry.place.store(place);
    entry.key.store(kKey);
    EXPECT_EQ(domain->find_lines(1, kKey, 1), std::nullopt) << place;
  }
  entry.place.store(ControlArea::kLines - 7);
  EXPECT_EQ(domain->find_lines(1, kKey, 8), std::nullopt) << "the last would be no line";
  EXPECT_EQ(domain->find_lines(1, kKey, 7), ControlArea::kLines - 7);
  entry.place.store(100);
  EXPECT_EQ(domain->find_lines(1, kKey, 1), 100u);
}

// Another process, found by the number that it says stands in its memory.
TEST(MemfdDomain, ReadsThePrivateMemoryOfAnotherProcess) {
  const HostSegment segment = HostSegment::create(2, kSliceBytes, kNonce);
  io::RealLoop loop;
  std::array<std::uint64_t, 3> mine{7, 8, 9};  // at the same address in the child, with other content
  const pid_t parent = getpid();
  const auto domain = MemfdDomain::attach(segment.descriptor(), kNonce, 0, 2, loop);
  const pid_t child = fork();
  if (child == 0) {
    mine = {17, 18, 19};
    io::RealLoop own_loop;
    const auto own = MemfdDomain::attach(segment.descriptor(), kNonce, 1, 2, own_loop);
    own->claim_lines(5, 1);
    while (getppid() == parent) usleep(1000);
    _exit(0);
  }
  while (!domain->find_lines(1, 5, 1)) usleep(1000);
  EXPECT_TRUE(domain->can_read(1)) << "a parent may read its child";
  std::array<std::uint64_t, 3> theirs{};
  domain->read_private(1, reinterpret_cast<const std::byte*>(mine.data()), std::as_writable_bytes(std::span(theirs)));
  EXPECT_EQ(theirs, (std::array<std::uint64_t, 3>{17, 18, 19}));
  try {
    domain->read_private(1, reinterpret_cast<const std::byte*>(16), std::as_writable_bytes(std::span(theirs)));
    ADD_FAILURE() << "nothing stands there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kAborted);
    EXPECT_NE(error.message().find(std::to_string(child)), std::string::npos) << error.message();
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// A process that only has the number of the rank's, as in another pid namespace, is not read.
TEST(MemfdDomain, DoesNotTakeAnotherProcessForItsPeer) {
  const HostSegment segment = HostSegment::create(2, kSliceBytes, kNonce);
  io::RealLoop loop;
  const auto domain = MemfdDomain::attach(segment.descriptor(), kNonce, 0, 2, loop);
  const pid_t child = fork();
  if (child == 0) {
    io::RealLoop own_loop;
    const auto own = MemfdDomain::attach(segment.descriptor(), kNonce, 1, 2, own_loop);
    own->claim_lines(5, 1);
    _exit(0);
  }
  waitpid(child, nullptr, 0);  // its number is nobody's now
  ASSERT_TRUE(domain->find_lines(1, 5, 1));
  EXPECT_FALSE(domain->can_read(1));
}

// Ranks as threads on one mapping: what the thread sanitizer looks at.
class MemfdThreads : public ::testing::Test {
 protected:
  void run(int ranks, const std::function<Task<void>(MemfdDomain&)>& body) {
    const HostSegment segment = HostSegment::create(ranks, kSliceBytes, kNonce);
    const auto mapping = SegmentMapping::map(segment.descriptor(), kNonce, ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&body, mapping, rank] {
        io::RealLoop loop;
        MemfdDomain domain(mapping, rank, loop);
        loop.run(body(domain));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

Task<std::uint32_t> lines_of(HostDomain& host, int owner, std::uint64_t key, Stop& stop) {
  for (;;) {
    const FlagRef claims = HostDomain::claims(owner);
    const std::uint64_t seen = host.line(owner, claims.line).word[claims.word].load(std::memory_order_acquire);
    if (const auto lines = host.find_lines(owner, key, 1)) co_return *lines;
    co_await host.at_least(claims, seen + 1, stop);
  }
}

// Everybody writes its memory, says so, and reads what all others wrote; some rounds late enough that the others block.
Task<void> exchange(HostDomain& host) {
  Stop stop;
  Deadline deadline(host.loop(), after(host.loop().now(), std::chrono::seconds(60)), stop, "a rank does not come");
  const std::uint32_t mine = host.claim_lines(5, 2);
  const HostRange range = host.allocate(4096);
  host.own_line(mine).word[1].store(range.offset, std::memory_order_relaxed);
  auto* values = reinterpret_cast<std::uint64_t*>(host.view(host.rank(), range));
  std::vector<std::uint32_t> lines;
  for (int owner = 0; owner < host.size(); ++owner) {
    const std::uint32_t line = co_await lines_of(host, owner, 5, stop);
    lines.push_back(line);
  }
  for (std::uint64_t round = 1; round <= 300; ++round) {
    const bool late = round % 50 == 0 &&
                      round / 50 % static_cast<std::uint64_t>(host.size()) == static_cast<std::uint64_t>(host.rank());
    if (late) co_await sleep_for(host.loop(), std::chrono::milliseconds(2), stop);
    values[0] = round * 10 + static_cast<std::uint64_t>(host.rank());
    host.publish(mine, 0, round);
    for (int owner = 0; owner < host.size(); ++owner) {
      const std::uint32_t line = lines[static_cast<std::size_t>(owner)];
      const FlagRef flag{owner, line, 0};
      co_await host.at_least(flag, round, stop);
      const std::uint64_t offset = host.line(owner, line).word[1].load(std::memory_order_relaxed);
      const auto* theirs = reinterpret_cast<const std::uint64_t*>(host.view(owner, offset, sizeof(std::uint64_t)));
      EXPECT_EQ(theirs[0], round * 10 + static_cast<std::uint64_t>(owner));
    }
    host.publish(mine + 1, 0, round);
    for (int owner = 0; owner < host.size(); ++owner) {
      const FlagRef flag{owner, lines[static_cast<std::size_t>(owner)] + 1, 0};
      co_await host.at_least(flag, round, stop);
    }
  }
}

TEST_F(MemfdThreads, FlagsCarryMemoryBetweenThreads) {
  run(2, exchange);
  run(5, exchange);
}

// With more ranks than processors and without spins, nearly every wait blocks, beside stores of what it waits for.
TEST_F(MemfdThreads, NoStoreIsMissedByRanksThatBlockAtOnce) {
  for (const bool fenced : {true, false}) {
    run(9, [fenced](MemfdDomain& host) -> Task<void> {
      auto& loop = static_cast<io::RealLoop&>(host.loop());
      loop.set_spin_policy({.spin = Duration(0), .yield = Duration(0), .min_yields = 0});
      if (!fenced) host.refuse_fence();
      return exchange(host);
    });
  }
}

TEST_F(MemfdThreads, ABlockedRankCostsNothing) {
  std::uint64_t blocked = 0;
  for (int attempt = 0; attempt < 20 && blocked == 0; ++attempt) {  // rank 1 may be slower than rank 0 sleeps
    run(2, [&blocked](HostDomain& host) -> Task<void> {
      return [](HostDomain& self, std::uint64_t* count) -> Task<void> {
        Stop stop;
        const std::uint32_t line = self.claim_lines(9, 1);
        if (self.rank() == 0) {
          co_await sleep_for(self.loop(), std::chrono::milliseconds(300), stop);
          self.publish(line, 0, 1);
          co_return;
        }
        const FlagRef flag{0, line, 0};
        co_await self.at_least(flag, 1, stop);
        *count = static_cast<io::RealLoop&>(self.loop()).blocked_count();
      }(host, &blocked);
    });
  }
  EXPECT_GE(blocked, 1u);
  EXPECT_LE(blocked, 20u) << "woken once for the claim of the other and once for the flag";
}

// It wakes up some time after the first store; until then the others only store.
TEST(MemfdDomain, ASleeperIsRungOnceEachTimeItSleeps) {
  const HostSegment segment = HostSegment::create(2, kSliceBytes, kNonce);
  io::RealLoop loops[2];
  const auto waiting = MemfdDomain::attach(segment.descriptor(), kNonce, 0, 2, loops[0]);
  const auto storing = MemfdDomain::attach(segment.descriptor(), kNonce, 1, 2, loops[1]);
  constexpr std::uint64_t kKey = 5;
  const std::uint32_t line = storing->claim_lines(kKey, 1);
  std::uint64_t value = 0;
  for (std::uint64_t sleep = 1; sleep <= 3; ++sleep) {
    Stop stop;
    const std::uint64_t wanted = value + 20;
    Task<void> task = [](MemfdDomain* domain, FlagRef flag, std::uint64_t at, Stop* ends) -> Task<void> {
      co_await domain->at_least(flag, at, *ends);
    }(waiting.get(), {1, line, 0}, wanted, &stop);
    task.start();
    Instant due{};
    while (!loops[0].listen(&due)) loops[0].look();
    while (value < wanted - 1) storing->publish(line, 0, ++value);
    EXPECT_EQ(storing->rings(), 2 * sleep - 1);
    loops[0].await_event(kNever);
    loops[0].listened();
    while (!loops[0].listen(&due)) loops[0].look();
    EXPECT_FALSE(task.done()) << "it sleeps again";
    storing->publish(line, 0, ++value);
    EXPECT_EQ(storing->rings(), 2 * sleep);
    loops[0].listened();
    loops[0].run_until([&] { return task.done(); });
  }
}

TEST(MemfdDomain, ColoursAllocationsByRank) {
  MemfdUnderTest host(3);
  const std::uint64_t offset = host.member(0).allocate(1).offset;
  EXPECT_NE(host.member(1).allocate(1).offset % 4096, offset % 4096);
  EXPECT_NE(host.member(2).allocate(1).offset % 4096, offset % 4096);
}

TEST(MemfdDomain, AMissedAbortIsTakenForOnesOwn) {
  MemfdUnderTest host(2);
  host.member(1).begin_stores(1);
  for (std::uint64_t operation = 10; operation < 400; ++operation) host.member(0).abort_stores(operation);
  EXPECT_EQ(host_conformance::code_of([&host] { host.member(1).check_stores(); }), Code::kAborted);
  host.member(1).end_stores();
  host.member(1).begin_stores(1);
  host.member(1).end_stores();
}

// More often than its socket holds datagrams, and more often at once than are read at once.
TEST(Doorbell, WakesItsOwnerWheneverItWasDrained) {
  io::RealLoop loop, other;
  Doorbell bell(loop), peer(other);
  for (int i = 0; i < 1'000; ++i) {
    for (int more = i % 100 == 0 ? 40 : 1; more > 0; --more) EXPECT_TRUE(peer.ring(bell.name()));
    ASSERT_TRUE(loop.look()) << i;
    for (int tries = 0; !bell.drain(); ++tries) ASSERT_LT(tries, 100);
    EXPECT_FALSE(loop.look());
  }
}

}  // namespace
}  // namespace aiacc
