// The tests of host_conformance.h, once for a program in which several implementations are instantiated.
#include "transports/host/host_conformance.h"

#include <cstring>
#include <set>

#include "transports/host/segment.h"

namespace aiacc {

// --- memory ----------------------------------------------------------------------------------------------------------

TEST_P(HostConformance, WhatOneWritesAllSee) {
  make(3);
  const std::uint32_t line = claim_everywhere(7, 1);
  for (int owner = 0; owner < 3; ++owner) {
    const HostRange range = member(owner).allocate(10'000);
    EXPECT_EQ(range.bytes, 10'000u);
    std::byte* mine = member(owner).view(owner, range);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mine) % 64, 0u) << "a cache line begins where an allocation does";
    EXPECT_EQ(mine[9'999], std::byte{0}) << "new memory is zero";
    std::memset(mine, owner + 1, 10'000);
    member(owner).publish(line, 0, 1);
    for (int viewer = 0; viewer < 3; ++viewer) {
      EXPECT_EQ(member(viewer).view(owner, range)[9'999], static_cast<std::byte>(owner + 1));
    }
    member((owner + 1) % 3).view(owner, range)[5] = std::byte{99};
    EXPECT_EQ(mine[5], std::byte{99});
  }
}

TEST_P(HostConformance, KnowsWhatIsItsOwn) {
  make(2);
  HostDomain& host = member(0);
  const HostRange range = host.allocate(5'000);
  std::byte* mine = host.view(0, range);
  EXPECT_EQ(host.offset_of(mine, 5'000), range.offset);
  EXPECT_EQ(host.offset_of(mine + 4'990, 10), range.offset + 4'990);
  EXPECT_EQ(host.offset_of(mine, 0), range.offset);
  EXPECT_EQ(host.offset_of(mine + 4'990, 11), std::nullopt) << "past the end";
  const int elsewhere = 0;
  EXPECT_EQ(host.offset_of(&elsewhere, sizeof elsewhere), std::nullopt);
  EXPECT_EQ(host.offset_of(host.view(1, range), 8), std::nullopt) << "a peer's slice";
  host.free(range);
  EXPECT_EQ(host.offset_of(mine, 8), std::nullopt) << "freed";
}

TEST_P(HostConformance, FreedMemoryComesBackAsZero) {
  make(1);
  HostDomain& host = member(0);
  for (int round = 0; round < 50; ++round) {
    const HostRange a = host.allocate(100'000);
    const HostRange b = host.allocate(1);
    EXPECT_EQ(host.view(0, a)[99'999], std::byte{0});
    std::memset(host.view(0, a), 0xff, a.bytes);
    host.free(a);
    host.free(b);
  }
}

TEST_P(HostConformance, RefusesWhatDoesNotFit) {
  make(1);
  EXPECT_EQ(host_conformance::code_of([this] { member(0).allocate(std::uint64_t{1} << 60); }), Code::kOutOfMemory);
  EXPECT_EQ(member(0).allocate(0).bytes, 0u);
}

// --- control lines ---------------------------------------------------------------------------------------------------

TEST_P(HostConformance, LinesAreFoundByTheirKey) {
  make(2);
  EXPECT_EQ(member(1).find_lines(0, 11, 1), std::nullopt);
  const std::uint32_t first = member(0).claim_lines(11, 3);
  const std::uint32_t second = member(0).claim_lines(12, 2);
  EXPECT_EQ(member(1).find_lines(0, 11, 1), first);
  EXPECT_EQ(member(1).find_lines(0, 12, 1), second);
  EXPECT_EQ(member(1).find_lines(1, 11, 1), std::nullopt) << "each rank claims for itself";
  EXPECT_TRUE(second >= first + 3 || first >= second + 2);
  member(0).publish(first + 2, 15, 77);
  EXPECT_EQ(member(1).line(0, first + 2).word[15].load(), 77u);
  member(0).release_lines(11);
  EXPECT_EQ(member(1).find_lines(0, 11, 1), std::nullopt);
  EXPECT_EQ(member(1).find_lines(0, 12, 1), second);
  const std::uint32_t again = member(0).claim_lines(13, 3);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(member(1).line(0, again + i).word[15].load(), 0u) << "zero when new";
}

TEST_P(HostConformance, LinesOfARankThatLeavesStay) {
  make(2);
  const std::uint32_t line = member(0).claim_lines(11, 1);
  member(0).publish(line, 0, 77);
  member(0).say_leaving();
  member(0).release_lines(11);
  EXPECT_EQ(member(1).find_lines(0, 11, 1), line);
  EXPECT_EQ(member(1).line(0, line).word[0].load(), 77u);
}

// A slow peer may still read them.
TEST_P(HostConformance, ReleasedLinesAreNotUsedAgainAtOnceHoweverManyAreInUse) {
  make(1);
  constexpr std::uint32_t kLines = 78;
  std::uint64_t key = 1;
  for (std::uint32_t claimed = 0; claimed < ControlArea::kLines / 2; claimed += kLines)
    member(0).claim_lines(key++, kLines);
  std::set<std::uint32_t> recent;
  for (int round = 0; round < 100; ++round) {
    const std::uint32_t first = member(0).claim_lines(key, kLines);
    EXPECT_TRUE(recent.insert(first).second) << "round " << round;
    member(0).release_lines(key++);
  }
}

TEST_P(HostConformance, AClaimWakesWhoWaitsForIt) {
  using namespace host_conformance;
  make(2);
  const FlagRef claims = HostDomain::claims(0);
  const std::uint64_t before = member(1).line(0, claims.line).word[claims.word].load();
  Code code = Code::kInternal;
  run(wait_for(member(1), claims, before + 1, 60s, code), claim_later(member(0), 30ms, 21, 1));
  EXPECT_EQ(code, Code::kOk);
  EXPECT_NE(member(1).find_lines(0, 21, 1), std::nullopt);
}

TEST_P(HostConformance, LinesRunOutWithASentence) {
  make(1);
  const Code code = host_conformance::code_of([this] {
    for (std::uint64_t key = 1; key < 100'000; ++key) member(0).claim_lines(key, 64);
  });
  EXPECT_EQ(code, Code::kOutOfMemory);
}

TEST_P(HostConformance, LinesOfTwoThousandGroupsAreFoundAndReleased) {
  make(2);
  constexpr std::uint64_t kGroups = 2'000;
  constexpr std::uint32_t kLinesOf[] = {7, 65, 6};
  // The keys are adjacent, so many searches pass entries of other keys.
  const auto key_of = [](std::uint64_t group, std::uint64_t part) { return 5 * group + part + 1; };
  for (const int round : {0, 1}) {
    std::vector<std::uint32_t> first;
    for (std::uint64_t group = 0; group < kGroups; ++group) {
      for (std::uint64_t part = 0; part < 3; ++part) {
        first.push_back(member(0).claim_lines(key_of(group, part), kLinesOf[part]));
      }
    }
    for (std::uint64_t group = 0; group < kGroups; ++group) {
      for (std::uint64_t part = 0; part < 3; ++part) {
        ASSERT_EQ(member(1).find_lines(0, key_of(group, part), 1), first[group * 3 + part]) << "round " << round;
      }
      ASSERT_EQ(member(1).find_lines(0, key_of(group, 3), 1), std::nullopt);
    }
    for (std::uint64_t group = 0; group < kGroups; ++group) {
      for (std::uint64_t part = 0; part < 3; ++part) member(0).release_lines(key_of(group, part));
      ASSERT_EQ(member(1).find_lines(0, key_of(group, 1), 1), std::nullopt);
    }
  }
}

// --- flags -----------------------------------------------------------------------------------------------------------

TEST_P(HostConformance, FlagsGoBackAndForth) {
  using namespace host_conformance;
  make(2);
  const std::uint32_t line = claim_everywhere(31, 1);
  run(ping_pong(member(0), 1, line, 2'000, true), ping_pong(member(1), 0, line, 2'000, false));
}

TEST_P(HostConformance, ASleeperIsWoken) {
  using namespace host_conformance;
  make(2);
  const std::uint32_t line = claim_everywhere(32, 2);
  Code code = Code::kInternal;
  run(wait_for(member(1), {0, line + 1, 3}, 5, 60s, code), publish_later(member(0), 50ms, line + 1, 3, 5));
  EXPECT_EQ(code, Code::kOk);
}

TEST_P(HostConformance, OtherNewsDoesNotEndAWait) {
  using namespace host_conformance;
  make(2);
  const std::uint32_t line = claim_everywhere(33, 1);
  Code code = Code::kInternal;
  run(wait_for(member(1), {0, line, 0}, 5, 120ms, code), publish_later(member(0), 20ms, line, 0, 4),
      publish_later(member(0), 40ms, line, 1, 9));
  EXPECT_EQ(code, Code::kTimeout);
}

TEST_P(HostConformance, AStopEndsAWait) {
  using namespace host_conformance;
  make(1);
  const std::uint32_t line = claim_everywhere(34, 1);
  Code code = Code::kInternal;
  run(wait_for(member(0), {0, line, 0}, 1, 20ms, code));
  EXPECT_EQ(code, Code::kTimeout);
}

TEST_P(HostConformance, UrgentNewsReachesASleeper) {
  using namespace host_conformance;
  make(2);
  const std::uint32_t line = claim_everywhere(35, 1);
  Code later = Code::kInternal;
  Code at_once = Code::kInternal;
  run(wait_for(member(1), {0, line, 2}, HostDomain::kUrgent, 60s, later),
      publish_later(member(0), 50ms, line, 2, HostDomain::kUrgent + 3));
  EXPECT_EQ(later, Code::kOk);
  run(wait_for(member(1), {0, line, 2}, HostDomain::kUrgent, 60s, at_once));
  EXPECT_EQ(at_once, Code::kOk) << "news that is there already";
}

// --- the store fence -------------------------------------------------------------------------------------------------

TEST_P(HostConformance, StoresBeginOnlyBeforeTheAbort) {
  using namespace host_conformance;
  make(2);
  { const StoreWindow window(member(1), 100); }
  member(0).abort_stores(100);
  EXPECT_EQ(code_of([this] { member(1).begin_stores(100); }), Code::kAborted);
  EXPECT_EQ(code_of([this] { member(0).begin_stores(100); }), Code::kAborted) << "also the one who aborted";
  Duration took{};
  run(quiesce(member(0), 100, {}, took));
  EXPECT_LT(took, 500ms) << "a rank that was refused has left no mark";
  const StoreWindow other(member(1), 101);
}

TEST_P(HostConformance, AStorerSeesTheAbortAtItsNextChunk) {
  using namespace host_conformance;
  make(2);
  member(1).begin_stores(200);
  member(1).check_stores();
  member(0).abort_stores(201);
  member(1).check_stores();
  member(0).abort_stores(200);
  EXPECT_EQ(code_of([this] { member(1).check_stores(); }), Code::kAborted);
  member(1).end_stores();
}

TEST_P(HostConformance, QuiesceWaitsForWhoeverIsStoring) {
  using namespace host_conformance;
  make(3);
  const HostRange range = member(0).allocate(4'096);
  const std::byte* mine = member(0).view(0, range);
  member(1).begin_stores(300);
  member(2).begin_stores(301);  // another operation: not waited for
  member(0).abort_stores(300);
  Duration took{};
  run(quiesce(member(0), 300, range, took), end_stores_later(member(1), 50ms));
  EXPECT_GE(took, 45ms);
  EXPECT_LT(took, 900ms);
  EXPECT_EQ(member(0).offset_of(mine, 4'096), range.offset) << "nobody was stopped: the range stays shared";
  member(2).end_stores();
}

TEST_P(HostConformance, AStoppedStorerStoresIntoNothing) {
  using namespace host_conformance;
  make(2);
  const HostRange range = member(0).allocate(20'000);
  const HostRange other = member(0).allocate(4'096);
  std::byte* mine = member(0).view(0, range);
  std::memset(mine, 1, range.bytes);
  member(1).begin_stores(400);
  member(1).view(0, range)[0] = std::byte{2};
  member(0).abort_stores(400);
  Duration took{};
  run(quiesce(member(0), 400, range, took));
  EXPECT_GE(took, 990ms);
  EXPECT_LT(took, 10s);
  EXPECT_EQ(mine[0], std::byte{2}) << "what was stored before is kept";
  EXPECT_EQ(mine[19'999], std::byte{1});
  std::memset(mine, 3, range.bytes);                      // the owner goes on
  std::memset(member(1).view(0, range), 4, range.bytes);  // the peer wakes in the middle of its stores
  EXPECT_EQ(mine[0], std::byte{3});
  EXPECT_EQ(mine[10'000], std::byte{3});
  EXPECT_EQ(mine[19'999], std::byte{3});
  EXPECT_EQ(code_of([this] { member(1).check_stores(); }), Code::kAborted);
  member(1).end_stores();
  EXPECT_EQ(member(0).offset_of(mine, 8), std::nullopt) << "the range is private now";
  EXPECT_NE(member(0).offset_of(member(0).view(0, other), 8), std::nullopt);
  member(0).free(range);
  const HostRange next = member(0).allocate(20'000);
  EXPECT_NE(next.offset, range.offset) << "a late store must not find new memory there";
}

TEST_P(HostConformance, AThirdRankDiesWhileAnotherIsStopped) {
  using namespace host_conformance;
  make(3);
  const HostRange range = member(0).allocate(4'096);
  std::byte* mine = member(0).view(0, range);
  member(1).begin_stores(500);
  member(2).begin_stores(500);
  member(0).abort_stores(500);
  Duration took{};
  run(quiesce(member(0), 500, range, took), mark_dead_later(member(0), 30ms, 2));
  EXPECT_GE(took, 990ms);
  mine[0] = std::byte{7};
  member(1).view(0, range)[0] = std::byte{8};
  EXPECT_EQ(mine[0], std::byte{7});
  member(1).end_stores();
}

TEST_P(HostConformance, NobodyWaitsForTheDead) {
  using namespace host_conformance;
  make(3);
  const HostRange range = member(0).allocate(4'096);
  member(1).begin_stores(600);
  member(2).begin_stores(600);
  member(0).mark_dead(1);
  member(0).abort_stores(600);
  Duration took{};
  run(quiesce(member(0), 600, range, took), mark_dead_later(member(0), 30ms, 2));
  EXPECT_LT(took, 900ms);
}

}  // namespace aiacc
