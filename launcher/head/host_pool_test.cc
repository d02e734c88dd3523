#include "launcher/head/host_pool.h"

#include <gtest/gtest.h>

namespace aiacc::launcher {
namespace {

using namespace std::chrono_literals;

std::vector<HostPlan> hosts(const std::vector<std::pair<std::string, int>>& list) {
  std::vector<HostPlan> made;
  for (const auto& [name, slots] : list) {
    HostPlan& host = made.emplace_back();
    host.name = name;
    host.slots = slots;
  }
  return made;
}

// "a:0,2 b:1"
std::string wanted(const HostPool& pool, Instant now = Instant(0s)) {
  std::string text;
  for (const HostPool::Request& request : pool.wanted(now)) {
    text += (text.empty() ? "" : " ") + request.host.name + ":";
    for (std::size_t i = 0; i < request.places.size(); ++i) {
      text += (i == 0 ? "" : ",") + std::to_string(request.places[i]);
    }
  }
  return text;
}

TEST(HostPool, FreeSlotsAreFilledHostAfterHostUpToTheMost) {
  HostPool pool(5, {});
  EXPECT_EQ(wanted(pool), "");
  pool.list(hosts({{"a", 2}, {"b", 2}, {"c", 2}}));
  EXPECT_EQ(wanted(pool), "a:0,1 b:0,1 c:0");
  for (const int place : {0, 1}) pool.take("a", place);
  pool.take("b", 1);
  EXPECT_EQ(wanted(pool), "b:0 c:0");
  EXPECT_EQ(pool.taken(), 3);
  pool.free("a", 0);
  EXPECT_EQ(wanted(pool), "a:0 b:0 c:0");
}

TEST(HostPool, AHostThatIsNotListedOrHasFewerSlotsGetsNoRanks) {
  HostPool pool(10, {});
  pool.list(hosts({{"a", 3}, {"b", 1}}));
  for (const int place : {0, 1, 2}) pool.take("a", place);
  pool.list(hosts({{"a", 2}}));
  pool.free("a", 0);
  EXPECT_EQ(wanted(pool), "") << "places 1 and 2 are its two slots now";
  pool.free("a", 1);
  EXPECT_EQ(wanted(pool), "a:0");
  EXPECT_TRUE(pool.listed("a"));
  EXPECT_FALSE(pool.listed("b"));
}

TEST(HostPool, AHostThatFailsRestsTwiceAsLongEachTime) {
  HostPool pool(10, {4s, 10s});
  pool.list(hosts({{"a", 1}, {"b", 1}}));
  Instant now(100s);
  for (const Duration rest : {4s, 8s, 10s, 10s}) {
    pool.set_aside("a", now);
    pool.set_aside("a", now + 1s);  // another rank of it, of the same failure
    EXPECT_EQ(wanted(pool, now + rest - 1ns), "b:0");
    EXPECT_EQ(wanted(pool, now + rest), "a:0 b:0");
    EXPECT_EQ(pool.aside_until("a"), now + rest);
    now += rest;
  }
}

}  // namespace
}  // namespace aiacc::launcher
