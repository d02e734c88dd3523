#include "transports/match_index.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "base/hash.h"

namespace aiacc {
namespace {

struct Item : MatchNode<Item, 0>, MatchNode<Item, 1> {
  explicit Item(std::uint64_t its_name) : name(its_name) {}
  std::uint64_t name;
};

using ByName = MatchIndex<Item, 0>;

// How many items of the index one search compares.
int comparisons(const ByName& index, std::uint64_t name, Item** found) {
  int compared = 0;
  *found = index.find(Hash64::mix(name), [&](const Item& item) {
    ++compared;
    return item.name == name;
  });
  return compared;
}

TEST(MatchIndex, FindsEachOfManyWithoutLookingAtOthers) {
  constexpr std::uint64_t kItems = 100'000;
  std::deque<Item> items;
  ByName index;
  for (std::uint64_t name = 1; name <= kItems; ++name) index.add(items.emplace_back(name), Hash64::mix(name));
  EXPECT_EQ(index.size(), kItems);
  Item* found = nullptr;
  for (std::uint64_t name = 1; name <= kItems; ++name) {
    EXPECT_EQ(comparisons(index, name, &found), 1);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->name, name);
  }
  EXPECT_EQ(comparisons(index, kItems + 1, &found), 0);
  EXPECT_EQ(found, nullptr);
}

TEST(MatchIndex, FindsTheOldestOfOneNameAlsoAfterItHasGrown) {
  std::deque<Item> same, others;
  ByName index;
  std::uint64_t other = 100;
  for (int i = 0; i < 5; ++i) {
    index.add(same.emplace_back(7), Hash64::mix(7));
    for (int j = 0; j < 50; ++j, ++other) index.add(others.emplace_back(other), Hash64::mix(other));
  }
  for (Item& expected : same) {
    Item* found = nullptr;
    comparisons(index, 7, &found);
    ASSERT_EQ(found, &expected);
    static_cast<MatchNode<Item, 0>*>(found)->unindex();
  }
  Item* found = nullptr;
  EXPECT_EQ(comparisons(index, 7, &found), 0);
  EXPECT_EQ(index.size(), others.size());
}

// As unexpected messages of one tag: each is added behind the others and found at once.
TEST(MatchIndex, IsAQueueForItemsOfOneHash) {
  constexpr std::uint64_t kItems = 200'000;
  std::deque<Item> items;
  MatchIndex<Item, 1> index;
  for (std::uint64_t name = 0; name < kItems; ++name) index.add(items.emplace_back(name), 7);
  for (std::uint64_t name = 0; name < kItems; ++name) {
    Item* first = index.find(7, [](const Item&) { return true; });
    ASSERT_NE(first, nullptr);
    ASSERT_EQ(first->name, name);
    static_cast<MatchNode<Item, 1>*>(first)->unindex();
  }
  EXPECT_EQ(index.size(), 0u);
}

TEST(MatchIndex, LosesWhatIsDestroyedAndIsUsedAgainAfterItWasEmpty) {
  ByName index;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Item>> items;
    for (std::uint64_t name = 0; name < 5000; ++name) {
      index.add(*items.emplace_back(std::make_unique<Item>(name)), Hash64::mix(name));
    }
    items.erase(items.begin(), items.begin() + 2500);
    EXPECT_EQ(index.size(), 2500u);
    Item* found = nullptr;
    comparisons(index, 2499, &found);
    EXPECT_EQ(found, nullptr);
    comparisons(index, 2500, &found);
    EXPECT_EQ(found, items.front().get());
    items.clear();
    EXPECT_EQ(index.size(), 0u);
  }
}

TEST(MatchIndex, OneItemIsInSeveralAndOutlivesThem) {
  Item item(3);
  {
    ByName names;
    MatchIndex<Item, 1> others;
    names.add(item, 1);
    others.add(item, 2);
    static_cast<MatchNode<Item, 0>&>(item).unindex();
    EXPECT_EQ(names.size(), 0u);
    EXPECT_EQ(others.find(2, [](const Item&) { return true; }), &item);
  }
  EXPECT_FALSE((static_cast<MatchNode<Item, 1>&>(item).indexed()));
}

}  // namespace
}  // namespace aiacc
