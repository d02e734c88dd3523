#include "base/sim/world.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/sim/sim_loop.h"
#include "base/task/scope.h"

namespace aiacc::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant at_ms(int ms) { return Instant(milliseconds(ms)); }

// A node whose coroutine records when it ran.
struct Ticker final : Root::Owner {
  Ticker(World& world, std::string name, std::vector<std::string>& log, int ticks = 3)
      : loop(world, name), log_(log), root(loop, body(this, std::move(name), ticks), *this) {}
  ~Ticker() {
    stop.request(std::make_exception_ptr(Error(Code::kAborted, "the test is over")));
    loop.bury();
  }
  static Task<void> body(Ticker* self, std::string name, int ticks) {
    for (int i = 0; i < ticks; ++i) {
      co_await sleep_for(self->loop, milliseconds(10), self->stop);
      self->log_.push_back(name + std::to_string(i));
    }
  }
  void root_ended(Root&, std::exception_ptr) noexcept override { ended = true; }

  SimLoop loop;
  Stop stop;
  std::vector<std::string>& log_;
  bool ended = false;
  Root root;
};

std::vector<std::string> order_of(std::uint64_t seed, std::uint64_t* hash = nullptr) {
  World world(seed);
  std::vector<std::string> log;
  std::vector<std::unique_ptr<Ticker>> tickers;
  for (char name = 'a'; name < 'a' + 8; ++name) {
    tickers.push_back(std::make_unique<Ticker>(world, std::string(1, name), log));
    tickers.back()->root.start();
  }
  world.run();
  if (hash != nullptr) *hash = world.trace_hash();
  return log;
}

TEST(World, TheSeedDecidesTheOrderOfNodesAtOneInstantAndNothingElseDoes) {
  std::uint64_t first = 0, again = 0, other = 0;
  EXPECT_EQ(order_of(7, &first), order_of(7, &again));
  EXPECT_EQ(first, again);
  EXPECT_NE(order_of(7), order_of(8, &other));
  EXPECT_NE(first, other);
  EXPECT_EQ(order_of(7).size(), 24u);
  RecordProperty("trace_hash", std::to_string(first));
}

TEST(World, AKilledNodeNeverRunsAgain) {
  World world(1);
  std::vector<std::string> log;
  Ticker victim(world, "v", log);
  Ticker other(world, "o", log);
  victim.root.start();
  other.root.start();
  world.at(at_ms(15), [&] { world.kill(victim.loop.node()); });
  world.run();
  EXPECT_FALSE(victim.ended);
  EXPECT_TRUE(other.ended);
  EXPECT_EQ(std::count(log.begin(), log.end(), "v0"), 1);
  EXPECT_EQ(std::count(log.begin(), log.end(), "v1"), 0);
}

TEST(World, AFrozenNodeGoesOnWhereItWasWhenItThaws) {
  World world(1);
  std::vector<std::string> log;
  Ticker frozen(world, "f", log);
  frozen.root.start();
  world.at(at_ms(15), [&] { world.freeze(frozen.loop.node()); });
  world.at(at_ms(1000), [&] { world.thaw(frozen.loop.node()); });
  world.run_until(at_ms(999));
  EXPECT_EQ(log, (std::vector<std::string>{"f0"}));
  world.run();
  EXPECT_EQ(log, (std::vector<std::string>{"f0", "f1", "f2"}));
  EXPECT_EQ(world.now(), at_ms(1010));  // the second sleep ended at once, the third began at the thaw
}

TEST(World, AFaultCanBeBoundToTheNumberOfAnEvent) {
  World world(1);
  std::vector<std::string> log;
  Ticker victim(world, "v", log, 100);
  victim.root.start();
  world.at_event(20, [&] { world.kill(victim.loop.node()); });
  world.run();
  EXPECT_EQ(world.events(), 20u);
  EXPECT_FALSE(victim.ended);
}

struct Counter final : Event {
  explicit Counter(int* count) : Event(EventKind::kScript), happened(count) {}
  void happen() noexcept override { ++*happened; }
  int* happened;
};

TEST(World, AnEventThatIsDestroyedOrCancelledDoesNotHappen) {
  World world(1);
  int count = 0;
  std::vector<std::unique_ptr<Counter>> events;
  for (int i = 0; i < 100; ++i) {
    events.push_back(std::make_unique<Counter>(&count));
    world.schedule(*events.back(), at_ms(static_cast<int>(world.random().below(50))), kNobody);
  }
  for (std::size_t i = 0; i < 100; i += 2) events[i].reset();
  events[1]->cancel();
  world.schedule(*events[3], at_ms(60), kNobody);
  world.run();
  EXPECT_EQ(count, 49);
  EXPECT_EQ(world.now(), at_ms(60));
}

TEST(World, TimeStopsAtTheAskedInstantEvenIfAFrozenNodeHasEventsBeforeIt) {
  World world(1);
  const NodeId node = world.add_node("n");
  int count = 0;
  Counter early(&count), late(&count);
  world.freeze(node);
  world.schedule(early, at_ms(1), node);
  world.schedule(late, at_ms(10), kNobody);
  world.run_until(at_ms(5));
  EXPECT_EQ(count, 0);
  EXPECT_EQ(world.now(), at_ms(5));
  world.kill(node);
  world.run();
  EXPECT_EQ(count, 1);
}

TEST(World, AWorldThatDoesNotComeToRestSaysWhatWentOn) {
  World world(1);
  struct Again final : Event {
    explicit Again(World& w) : Event(EventKind::kScript), world(w) {}
    void happen() noexcept override { world.schedule(*this, world.now(), kNobody); }
    World& world;
  } again(world);
  world.schedule(again, Instant{}, kNobody);
  try {
    world.run(1000);
    FAIL() << "it came to rest";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInternal);
    EXPECT_NE(error.message().find("1000 events"), std::string::npos);
    EXPECT_NE(error.message().find("world  script #999"), std::string::npos) << error.message();
  }
}

TEST(SimEntropy, FollowsFromSeedAndNode) {
  World world(5), same(5), other(6);
  std::array<std::byte, 20> a{}, b{}, c{}, d{};
  SimEntropy(world, 1).fill(a);
  same.random().next();
  SimEntropy(same, 1).fill(b);
  SimEntropy(world, 2).fill(c);
  SimEntropy(other, 1).fill(d);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_NE(a, d);
}

}  // namespace
}  // namespace aiacc::sim
