#include "collectives/intra/tag_queues.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace aiacc {
namespace {

struct Item : TagNode<Item> {
  explicit Item(int its) : number(its) {}
  int number;
};

// Against a map of deques: random pushes, pops and removals, with few tags, consecutive ones, and multiples of a power of two.
TEST(TagQueues, KeepTheOrderOfEachTag) {
  for (const std::uint32_t stride : {1u, 4096u, 65536u}) {
    for (const std::uint32_t tags : {1u, 3u, 5000u}) {
      TagQueues<Item> queues;
      std::map<std::uint32_t, std::deque<Item*>> expected;
      std::deque<Item> items;
      std::mt19937 random(tags);
      for (int step = 0; step < 40000; ++step) {
        const std::uint32_t tag = stride * (random() % tags);
        std::deque<Item*>& its = expected[tag];
        ASSERT_EQ(queues.first(tag), its.empty() ? nullptr : its.front());
        const std::uint32_t what = random() % 8;
        const bool filling = step < 20000;
        if (what < (filling ? 5u : 2u)) {
          items.emplace_back(step);
          queues.push_back(items.back(), tag);
          its.push_back(&items.back());
        } else if (what == 7 && !its.empty()) {
          const std::size_t at = random() % its.size();
          queues.remove(*its[at]);
          its.erase(its.begin() + static_cast<std::ptrdiff_t>(at));
        } else {
          Item* const popped = queues.pop_front(tag);
          ASSERT_EQ(popped, its.empty() ? nullptr : its.front());
          if (popped != nullptr) {
            EXPECT_FALSE(popped->queued());
            its.pop_front();
          }
        }
      }
      std::size_t left = 0;
      for (const auto& [tag, its] : expected) left += its.size();
      for (std::size_t i = 0; i < left; ++i) {
        Item* const popped = queues.pop_any();
        ASSERT_NE(popped, nullptr);
        ASSERT_EQ(popped, expected[popped->tag()].front());
        expected[popped->tag()].pop_front();
      }
      EXPECT_EQ(queues.pop_any(), nullptr);
      EXPECT_TRUE(queues.empty());
    }
  }
}

}  // namespace
}  // namespace aiacc
