#include "base/intrusive_heap.h"

#include <gtest/gtest.h>

#include <list>
#include <map>

#include "base/sim/random.h"

namespace aiacc {
namespace {

struct Item : HeapNode<Item> {
  explicit Item(std::uint64_t its_key) : key(its_key) {}
  std::uint64_t heap_key() const noexcept { return key; }
  std::uint64_t key;
};

TEST(IntrusiveHeap, ComesInTheOrderOfKeysWhateverLeaves) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    sim::Random random(seed);
    IntrusiveHeap<Item> heap;
    std::map<std::uint64_t, Item> items;
    for (int step = 0; step < 3000; ++step) {
      const std::uint64_t key = random.below(500);
      if (random.below(2) == 0) {
        const auto [item, is_new] = items.try_emplace(key, key);
        if (is_new) heap.add(item->second);
      } else if (random.below(2) == 0) {
        items.erase(key);  // a node that is destroyed leaves
      } else if (!heap.empty()) {
        Item& first = heap.top();
        first.leave_heap();
        EXPECT_FALSE(first.in_heap());
        ASSERT_EQ(&first, &items.begin()->second);
        if (random.below(2) == 0) {
          items.erase(items.begin());
        } else {
          heap.add(first);
        }
      }
      ASSERT_EQ(heap.empty(), items.empty());
      if (!heap.empty()) {
        ASSERT_EQ(heap.top().key, items.begin()->first);
      }
    }
  }
}

TEST(IntrusiveHeap, ThatIsDestroyedLetsItsNodesGo) {
  std::list<Item> items;
  {
    IntrusiveHeap<Item> heap;
    for (std::uint64_t key = 0; key < 10; ++key) heap.add(items.emplace_back(key * 7 % 10));
  }
  for (const Item& item : items) EXPECT_FALSE(item.in_heap());
}

}  // namespace
}  // namespace aiacc
