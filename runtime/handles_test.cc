// Stale, foreign and invented handles are detected, also while other threads remove the object.
#include "runtime/handles.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/ended_handles.h"

namespace aiacc {
namespace {

struct Thing {
  explicit Thing(int& alive, int initial = 0) : alive_(alive), value(initial) { ++alive_; }
  ~Thing() {
    value = -1;
    --alive_;
  }
  int& alive_;
  int value;
};

TEST(Handles, FindsWhatItHoldsAndNothingElse) {
  int alive = 0;
  HandleTable<Thing> table(HandleKind::kGroup);
  EXPECT_FALSE(table.find(0));
  EXPECT_FALSE(table.find(1));
  EXPECT_FALSE(table.find(~std::uint64_t{0}));
  const std::uint64_t handle = table.insert(std::make_unique<Thing>(alive, 7));
  ASSERT_TRUE(table.find(handle));
  EXPECT_EQ(table.find(handle)->value, 7);
  EXPECT_FALSE(table.find(handle + 1));
  EXPECT_FALSE(table.find(handle ^ (std::uint64_t{1} << 56))) << "of another kind";
  EXPECT_FALSE(table.find(handle + (std::uint64_t{1} << 24))) << "of a later generation";
  EXPECT_FALSE(table.find(0)) << "null";
}

TEST(Handles, AStaleHandleStaysStaleWhenTheSlotIsUsedAgain) {
  int alive = 0;
  HandleTable<Thing> table(HandleKind::kRequest);
  const std::uint64_t first = table.insert(std::make_unique<Thing>(alive, 1));
  EXPECT_TRUE(table.find(first).remove());
  EXPECT_EQ(alive, 0);
  const std::uint64_t second = table.insert(std::make_unique<Thing>(alive, 2));
  EXPECT_EQ(index_of(first), index_of(second)) << "the slot is used again";
  EXPECT_FALSE(table.find(first));
  EXPECT_EQ(table.find(second)->value, 2);
}

TEST(Handles, APinnedObjectOutlivesItsRemoval) {
  int alive = 0;
  HandleTable<Thing> table(HandleKind::kGroup);
  const std::uint64_t handle = table.insert(std::make_unique<Thing>(alive, 5));
  {
    auto pin = table.find(handle);
    EXPECT_TRUE(table.find(handle).remove());
    EXPECT_FALSE(pin.remove()) << "removed once";
    EXPECT_FALSE(table.find(handle));
    EXPECT_EQ(pin->value, 5);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Handles, TheFixedHandleHasOneSlotForever) {
  int alive = 0;
  HandleTable<Thing> table(HandleKind::kGroup);
  for (int round = 1; round < 4; ++round) {
    auto thing = std::make_unique<Thing>(alive, round);
    EXPECT_TRUE(table.insert_fixed(thing));
    auto another = std::make_unique<Thing>(alive, 0);
    EXPECT_FALSE(table.insert_fixed(another));
    const std::uint64_t other = table.insert(std::make_unique<Thing>(alive, 9));
    EXPECT_EQ(table.find(1)->value, round);
    EXPECT_EQ(table.find(other)->value, 9);
    EXPECT_TRUE(table.find(1).remove());
    EXPECT_TRUE(table.find(other).remove());
  }
  EXPECT_EQ(alive, 0);
}

TEST(Handles, APlaceIsFoundOnceItIsNamed) {
  int alive = 0;
  HandleTable<Thing> table(HandleKind::kRequest);
  std::uint64_t handle = 0;
  {
    HandleTable<Thing>::Place place(table);
    place.object() = std::make_unique<Thing>(alive, 3);
    handle = place.handle();
    EXPECT_FALSE(table.find(handle));
  }
  EXPECT_EQ(alive, 0) << "it was not named";
  EXPECT_FALSE(table.find(handle));
  HandleTable<Thing>::Place place(table);
  EXPECT_EQ(place.handle(), handle) << "nobody has seen it";
  place.object() = std::make_unique<Thing>(alive, 4);
  auto pin = place.name_and_pin();
  EXPECT_TRUE(table.find(handle).remove());
  EXPECT_EQ(pin->value, 4);
}

TEST(Handles, ThoseRemovedTogetherAreUsedAgain) {
  int alive = 0;
  using Table = HandleTable<Thing, std::optional<Thing>>;
  Table table(HandleKind::kRequest);
  std::vector<std::uint64_t> handles;
  const auto add = [&](int value) {
    Table::Place place(table);
    place.object().emplace(alive, value);
    handles.push_back(place.name());
  };
  for (int i = 0; i < 5; ++i) add(i);
  auto other = table.find(handles[2]);
  {
    Table::Freed freed(table);
    for (const std::uint64_t handle : handles) {
      auto pin = table.find(handle);
      EXPECT_TRUE(pin.remove(freed));
      EXPECT_FALSE(pin);
    }
    EXPECT_EQ(alive, 1) << "the one that is in use elsewhere";
    EXPECT_EQ(other->value, 2);
  }
  std::vector<std::uint32_t> before;
  for (const std::uint64_t handle : handles) before.push_back(index_of(handle));
  handles.clear();
  for (int i = 0; i < 4; ++i) add(i);
  for (const std::uint64_t handle : handles) {
    EXPECT_NE(index_of(handle), before[2]);
    EXPECT_NE(std::find(before.begin(), before.end(), index_of(handle)), before.end());
  }
}

TEST(Handles, AForgottenTableKnowsNothing) {
  const auto child = [] {
    int alive = 0;
    HandleTable<Thing> table(HandleKind::kGroup);
    const std::uint64_t handle = table.insert(std::make_unique<Thing>(alive, 1));
    table.forget_all();
    _exit(table.find(handle) || alive != 1 ? 1 : 0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST(Handles, ManyThreadsRemoveAndFind) {
  HandleTable<std::atomic<int>> table(HandleKind::kRequest);
  constexpr int kThreads = 6;
  constexpr int kRounds = 3000;
  std::array<std::atomic<std::uint64_t>, 8> shared{};
  std::atomic<int> removed{0};
  std::atomic<int> inserted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        auto& cell = shared[static_cast<std::size_t>(i * 7 + t) % shared.size()];
        if (i % 3 == 0) {
          const std::uint64_t handle = table.insert(std::make_unique<std::atomic<int>>(42));
          ++inserted;
          const std::uint64_t old = cell.exchange(handle);
          if (old != 0) {
            if (auto pin = table.find(old)) removed += pin.remove() ? 1 : 0;
          }
        } else if (auto pin = table.find(cell.load())) {
          ASSERT_EQ(pin->load(), 42);
          if (i % 5 == 0) removed += pin.remove() ? 1 : 0;
          ASSERT_EQ(pin->load(), 42);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& cell : shared) {
    if (auto pin = table.find(cell.load())) removed += pin.remove() ? 1 : 0;
  }
  EXPECT_EQ(removed, inserted);
}

TEST(EndedHandles, AreKnownUntilTheyAreTaken) {
  const auto handles = std::make_unique<EndedHandles>();
  EndedHandles::Block mine, others;
  ASSERT_TRUE(handles->prepare(mine) && handles->prepare(others));
  const std::uint64_t first = handles->name(mine, 7), second = handles->name(mine, 8), third = handles->name(others, 9);
  EXPECT_EQ(handles->find(first), 7u);
  EXPECT_EQ(handles->find(second), 8u);
  EXPECT_EQ(handles->find(third), 9u);
  for (const std::uint64_t unknown : {std::uint64_t{0}, ~std::uint64_t{0}, first + 2, first ^ std::uint64_t{1} << 56}) {
    EXPECT_EQ(handles->find(unknown), 0u);
    EXPECT_FALSE(handles->take(unknown));
  }
  EXPECT_TRUE(handles->take(first));
  EXPECT_FALSE(handles->take(first));
  EXPECT_EQ(handles->find(first), 0u);
  // Words are used again, but for those that are in use.
  std::uint64_t last = 0;
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(handles->prepare(mine));
    last = handles->name(mine, 10);
    ASSERT_NE(last, first);
    ASSERT_TRUE(handles->take(last));
  }
  EXPECT_NE(last >> 20, first >> 20) << "a later turn";
  EXPECT_EQ(handles->find(second), 8u);
  EXPECT_EQ(handles->find(first), 0u);
  EXPECT_FALSE(handles->take(last));
  handles->forget_all();
  EXPECT_FALSE(handles->take(second));
}

TEST(EndedHandles, AreNotGivenWhileAllAreInUse) {
  const auto handles = std::make_unique<EndedHandles>();
  EndedHandles::Block mine;
  std::vector<std::uint64_t> named;
  while (named.size() < std::size_t{1} << 21 && handles->prepare(mine)) named.push_back(handles->name(mine, 1));
  EXPECT_EQ(named.size(), std::size_t{1} << 20);
  EXPECT_TRUE(handles->take(named[0]));
  bool again = false;
  for (int i = 0; i < 100 && !again; ++i) again = handles->prepare(mine);
  EXPECT_TRUE(again) << "once the turn comes to its block";
  const std::uint64_t reused = handles->name(mine, 1);
  EXPECT_NE(reused, named[0]);
  EXPECT_FALSE(handles->take(named[0]));
  EndedHandles::Block other;
  handles->give_back(mine);
  for (std::size_t i = 0; i < named.size(); i += 2) handles->take(named[i]);
  EXPECT_TRUE(handles->prepare(other));
}

TEST(EndedHandles, OneOfSeveralThreadsTakesEach) {
  const auto handles = std::make_unique<EndedHandles>();
  EndedHandles::Block mine;
  constexpr int kThreads = 3;
  constexpr std::uint64_t kHandles = 200'000;
  std::vector<std::uint64_t> named;
  for (std::uint64_t number = 1; number <= kHandles; ++number) {
    ASSERT_TRUE(handles->prepare(mine));
    named.push_back(handles->name(mine, number));
  }
  std::atomic<int> ready{0};
  std::atomic<std::uint64_t> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      std::uint64_t took = 0;
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      for (const std::uint64_t handle : named) took += handles->take(handle) ? 1 : 0;
      taken += took;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, kHandles);
}

TEST(Handles, IsLookedAtAndTakenIfItIsOver) {
  int alive = 0;
  using Table = HandleTable<Thing>;
  Table table(HandleKind::kRequest);
  const auto quiet = [&](int value) {
    Table::Place place(table);
    place.object() = std::make_unique<Thing>(alive, value);
    return place.name_quiet();
  };
  const std::uint64_t first = quiet(1), loud = table.insert(std::make_unique<Thing>(alive, 2));
  EXPECT_TRUE(table.is_quiet(first));
  EXPECT_FALSE(table.is_quiet(loud));
  EXPECT_FALSE(table.is_quiet(first + (std::uint64_t{1} << 24))) << "of a later generation";
  int last = 0;
  {
    Table::Freed freed(table);
    const auto take = [&](std::uint64_t handle, int wanted) {
      return table.take_if(
          handle, freed, [wanted](const Thing& thing) { return thing.value == wanted; },
          [&last](const Thing& thing) { last = thing.value; });
    };
    EXPECT_EQ(take(0, 1), Table::Took::kBusy);
    EXPECT_EQ(take(first, 9), Table::Took::kNotOver);
    EXPECT_TRUE(table.is_quiet(first)) << "as before";
    {
      const auto pin = table.find(first);
      EXPECT_EQ(take(first, 1), Table::Took::kBusy);
    }
    EXPECT_EQ(take(first, 1), Table::Took::kTaken);
    EXPECT_EQ(last, 1);
    EXPECT_FALSE(table.find(first));
    EXPECT_FALSE(table.is_quiet(first));
    EXPECT_EQ(take(first, 1), Table::Took::kBusy);
    EXPECT_EQ(take(loud, 2), Table::Took::kTaken);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Handles, AStockHasSlotsThatNobodyElseGets) {
  int alive = 0;
  HandleTable<Thing> table(HandleKind::kRequest);
  HandleTable<Thing>::Stock mine, other;
  std::vector<std::uint64_t> handles;
  for (int i = 0; i < 100; ++i) {
    auto& stock = i % 3 == 0 ? other : mine;
    if (stock.empty()) table.fill(stock);
    HandleTable<Thing>::Place place(table, stock);
    place.object() = std::make_unique<Thing>(alive, i);
    handles.push_back(place.name());
    handles.push_back(table.insert(std::make_unique<Thing>(alive, 1000 + i)));
  }
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const int expected = static_cast<int>(i % 2 * 1000 + i / 2);
    ASSERT_EQ(table.find(handles[i])->value, expected);
    EXPECT_TRUE(table.find(handles[i]).remove());
  }
  table.give_back(mine);
  table.give_back(other);
  EXPECT_TRUE(mine.empty() && other.empty());
  std::uint32_t highest = 0;
  for (const std::uint64_t handle : handles) highest = std::max(highest, index_of(handle));
  for (std::size_t i = 0; i < handles.size(); ++i) {
    EXPECT_LE(index_of(table.insert(std::make_unique<Thing>(alive, 0))), highest + 32) << "slots are used again";
  }
}

TEST(Handles, OneOfSeveralThreadsTakesWhatIsOver) {
  int alive = 0;
  HandleTable<Thing> table(HandleKind::kRequest);
  for (int round = 0; round < 200; ++round) {
    HandleTable<Thing>::Place place(table);
    place.object() = std::make_unique<Thing>(alive, round);
    const std::uint64_t handle = place.name_quiet();
    std::array<int, 3> took{};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < took.size(); ++i) {
      threads.emplace_back([&, i] {
        HandleTable<Thing>::Freed freed(table);
        const auto nothing = [](const Thing&) {};
        const auto look = [round](const Thing& thing) { return thing.value == round && round % 2 == 0; };
        const bool taken = table.take_if(handle, freed, look, nothing) == HandleTable<Thing>::Took::kTaken;
        took[i] = taken || table.find(handle).remove();
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(took[0] + took[1] + took[2], 1);
    ASSERT_EQ(alive, 0);
  }
}

}  // namespace
}  // namespace aiacc
