#include "base/io/real_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <atomic>
#include <deque>
#include <thread>

#include "base/io/real_net.h"
#include "base/task/scope.h"

namespace aiacc::io {
namespace {

using std::chrono::milliseconds;

// A flag in shared memory and a doorbell, used as a host domain uses them.
class FlagWaiter final : private Poller, private BlockGuard, private Watch {
 public:
  explicit FlagWaiter(RealLoop& loop) : bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    loop.add(static_cast<Poller&>(*this));
    loop.add(static_cast<BlockGuard&>(*this));
    loop.watch_edges(*this, bell_.get(), true, false);
  }
  ~FlagWaiter() { unwatch(); }

  // For another thread: stores, then rings the doorbell if the waiter may be asleep.
  void raise(int value) {
    flag_.store(value, std::memory_order_seq_cst);
    if (!asleep_.load(std::memory_order_seq_cst)) return;
    rings.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t one = 1;
    EXPECT_EQ(write(bell_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  int seen = 0;
  std::atomic<int> rings{0};

 private:
  bool look_at_flags() noexcept override {
    const int value = flag_.load(std::memory_order_acquire);
    if (value == seen) return false;
    seen = value;
    return true;
  }
  bool about_to_block() noexcept override {
    asleep_.store(true, std::memory_order_seq_cst);
    return flag_.load(std::memory_order_seq_cst) == seen;
  }
  void woke() noexcept override { asleep_.store(false, std::memory_order_relaxed); }
  void ready(Ready) noexcept override {}

  Fd bell_;
  alignas(64) std::atomic<int> flag_{0};
  alignas(64) std::atomic<bool> asleep_{false};
};

TEST(RealLoop, NoStoreIsSleptThrough) {
  RealLoop loop;
  loop.set_spin_policy({Duration(0), Duration(0), 0});  // block at once, because the test is about the race
  FlagWaiter waiter(loop);
  constexpr int kRounds = 20'000;
  std::atomic<int> acknowledged{0};
  std::thread storer([&] {
    for (int round = 1; round <= kRounds; ++round) {
      waiter.raise(round);
      while (acknowledged.load(std::memory_order_acquire) != round) std::this_thread::yield();
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    loop.run_until([&] { return waiter.seen == round; });
    acknowledged.store(round, std::memory_order_release);
  }
  storer.join();
  EXPECT_GT(loop.blocked_count(), 0u);
}

TEST(RealLoop, WakeReachesABlockedDriverEveryTime) {
  RealLoop loop;
  struct Hook final : WakeHook {
    std::atomic<int>* submitted = nullptr;
    int taken = 0;
    void woken() noexcept override { taken = submitted->load(std::memory_order_relaxed); }
  } hook;
  std::atomic<int> submitted{0};
  std::atomic<int> acknowledged{0};
  hook.submitted = &submitted;
  loop.add(hook);
  constexpr int kRounds = 20'000;
  std::thread submitter([&] {
    for (int round = 1; round <= kRounds; ++round) {
      submitted.store(round, std::memory_order_relaxed);
      loop.wake();
      while (acknowledged.load(std::memory_order_acquire) != round) std::this_thread::yield();
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    loop.run_until([&] { return hook.taken == round; });
    acknowledged.store(round, std::memory_order_release);
  }
  submitter.join();
}

Duration processor_time() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + Duration(used.tv_nsec);
}

Task<void> sleep_a_while(Loop& loop, Duration span) {
  Stop stop;
  co_await sleep_for(loop, span, stop);
}

TEST(RealLoop, AnIdleLoopUsesNoProcessor) {
  RealLoop loop;
  FlagWaiter waiter(loop);
  const std::uint64_t blocked_before = loop.blocked_count();
  const Duration before = processor_time();
  loop.run(sleep_a_while(loop, milliseconds(300)));
  const Duration used = processor_time() - before;
  EXPECT_LE(loop.blocked_count() - blocked_before, 3u) << "something wakes it periodically";
  EXPECT_LT(used, milliseconds(30)) << seconds(used) << " s of 0.3 s";
  RecordProperty("idle_cpu_us", static_cast<int>(used.count() / 1000));
}

Task<void> write_forever(Stream& stream, Stop& stop) {
  const std::vector<std::byte> piece(100);
  for (;;) co_await stream.write_some(piece, stop);
}
Task<void> read_forever(Stream& stream, Stop& stop) {
  std::vector<std::byte> piece(100);
  for (;;) {
    const std::size_t moved = co_await stream.read_some(piece, stop);
    if (moved == 0) co_return;
  }
}
Task<void> flood(RealLoop& loop) {
  auto [left, right] = stream_pair(loop, "flood");
  Stop stop;
  Deadline deadline(loop, after(loop.now(), milliseconds(20)), stop, "time is up");
  Scope scope(loop, stop);
  scope.spawn(write_forever(*left, scope.stop()));
  scope.spawn(read_forever(*right, scope.stop()));
  co_await scope.join();
}

TEST(RealLoop, StreamsThatAreAlwaysReadyLeaveRoomForTimers) {
  RealLoop loop;
  try {
    loop.run(flood(loop));
    FAIL() << "the deadline was never looked at";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "time is up");
  }
}

// A job that posts itself again each time.
struct Restless final : Job {
  explicit Restless(RealLoop& its_loop) : loop(its_loop) { loop.post(*this); }
  void run() noexcept override { loop.post(*this); }
  RealLoop& loop;
};

struct Alarm final : Timer {
  void expired() noexcept override { rang = true; }
  bool rang = false;
};

struct AcceptingWatch final : Watch {
  void ready(Ready) noexcept override { told = true; }
  bool told = false;
};

// `drive` drives a loop that has had `looks` before and always has a job; a timer is due and a descriptor ready.
template <class Drive>
void expect_room_for_timers_and_descriptors(int looks, Drive&& drive) {
  RealLoop loop;
  Alarm alarm;
  AcceptingWatch listener;
  Fd bell(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  for (int i = 0; i < looks; ++i) loop.look();
  loop.watch_edges(listener, bell.get(), true, false);
  loop.arm(alarm, loop.now());
  Restless work(loop);
  for (int turns = 0; turns < 1000; ++turns) drive(loop);
  EXPECT_TRUE(alarm.rang) << looks;
  EXPECT_TRUE(listener.told) << looks;
  listener.unwatch();
}

TEST(RealLoop, WorkThatNeverEndsLeavesRoomForTimersAndDescriptors) {
  expect_room_for_timers_and_descriptors(0, [](RealLoop& loop) { loop.look(); });
}

// Whatever the loop did before: a period of glances must not miss a period of turns for ever.
TEST(RealLoop, GlancesLeaveRoomForTimersAndDescriptors) {
  for (int looks = 0; looks < 64; ++looks) {
    expect_room_for_timers_and_descriptors(looks, [](RealLoop& loop) { loop.glance(); });
  }
}

// Unwatches itself or the other watch while a batch of events is dispatched.
struct Quitter final : Watch {
  Quitter* victim = nullptr;
  int told = 0;
  void ready(Ready) noexcept override {
    ++told;
    if (victim != nullptr) victim->unwatch();
    unwatch();
  }
};

TEST(RealLoop, AWatchThatIsGoneIsNotTold) {
  RealLoop loop;
  Fd first(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  Fd second(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  Quitter left;
  Quitter right;
  left.victim = &right;
  right.victim = &left;
  loop.watch_edges(left, first.get(), true, false);
  loop.watch_edges(right, second.get(), true, false);
  loop.turn(kNever);
  loop.look();
  EXPECT_EQ(left.told + right.told, 1);
}

// While an answer is expected the loop polls for it between yields: few streams directly, many through epoll. Nothing
// has to wake the loop.
TEST(RealLoop, StaysAwakeForAnswers) {
  struct Stream final : Answerer, Watch {
    explicit Stream(int descriptor) : bell(descriptor) {}
    bool look_for_answer() noexcept override {
      std::uint64_t value = 0;
      came |= read(bell, &value, sizeof value) > 0;
      return came;
    }
    void ready(Ready) noexcept override { look_for_answer(); }
    int bell;
    bool came = false;
  };
  for (const int streams : {1, 4}) {
    RealLoop loop;
    loop.set_spin_policy({Duration(0), std::chrono::seconds(60), 0});
    Fd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    std::deque<Stream> waiting;
    for (int i = 0; i < streams; ++i) loop.await_answer(waiting.emplace_back(bell.get()));
    Stream watched(bell.get());
    if (streams != 1) loop.watch_edges(watched, bell.get(), true, false);
    std::thread answer([&bell] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const std::uint64_t one = 1;
      EXPECT_EQ(write(bell.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    });
    loop.run_until([&] { return watched.came || (streams == 1 && waiting.front().came); });
    answer.join();
    EXPECT_EQ(loop.blocked_count(), 0u);
    for (Stream& stream : waiting) loop.await_no_answer(stream);
  }
  RealLoop idle;
  idle.set_spin_policy({Duration(0), std::chrono::seconds(60), 0});
  // A turn that is over when it begins does not block.
  for (int turns = 0; turns < 100 && idle.blocked_count() == 0; ++turns) idle.turn(after(idle.now(), milliseconds(20)));
  EXPECT_GT(idle.blocked_count(), 0u) << "it expects no answer";
}

// Missing answers make polling rare; immediate answers make it frequent again.
TEST(RealLoop, LooksForAnswersAgainWhenTheyComeAgain) {
  struct Stream final : Answerer {
    bool look_for_answer() noexcept override { return answers; }
    bool answers = false;
  } stream;
  RealLoop loop;
  loop.set_spin_policy({Duration(0), Duration(1), 0});
  loop.await_answer(stream);
  const auto blocked_in = [&](int turns) {
    const std::uint64_t before = loop.blocked_count();
    for (int turn = 0; turn < turns; ++turn) loop.turn(after(loop.now(), milliseconds(1)));
    return loop.blocked_count() - before;
  };
  blocked_in(50);
  stream.answers = true;
  EXPECT_GT(blocked_in(64), 10u) << "it has given up looking each time";
  EXPECT_EQ(blocked_in(64), 0u);
  loop.await_no_answer(stream);
}

// With the policy of this test the loop never yields.
TEST(RealLoop, KeepsItsCoreForAnswersWhileItSpins) {
  struct Stream final : Answerer {
    bool look_for_answer() noexcept override { return ++looks == answers_at; }
    int looks = 0;
    int answers_at = 0;
  } stream;
  RealLoop loop;
  loop.await_answer(stream);
  const auto looks_in_a_wait = [&] {
    stream.looks = 0;
    EXPECT_EQ(loop.stay_awake(), stream.answers_at > 0);
    return stream.looks;
  };
  stream.answers_at = 1000;
  loop.set_spin_policy({std::chrono::seconds(1), Duration(0), 0});
  EXPECT_EQ(looks_in_a_wait(), 1000);

  stream.answers_at = 0;
  loop.set_spin_policy({Duration(0), Duration(0), 0});
  EXPECT_EQ(looks_in_a_wait(), 1) << "it was told not to spin";

  loop.set_spin_policy({std::chrono::microseconds(1), Duration(0), 0});
  EXPECT_GT(looks_in_a_wait(), 1);
  for (int wait = 0; wait < 10; ++wait) looks_in_a_wait();
  EXPECT_EQ(looks_in_a_wait(), 1) << "it goes on with what is in vain";
  loop.await_no_answer(stream);
}

TEST(RealLoop, SpinsLongerForTheNetworkThanForFlags) {
  struct Network final : Poller {
    bool look_at_flags() noexcept override { return false; }
    bool looks_at_network() const noexcept override { return true; }
  } network;
  RealLoop loop;
  loop.add(network);
  loop.set_spin_policy({milliseconds(5), Duration(0), 0});
  const Instant began = loop.now();
  EXPECT_FALSE(loop.stay_awake());
  EXPECT_GE(loop.now() - began, milliseconds(8 * 5));
  network.unlink();
}

// Otherwise a call that waits for an answer would keep time-outs from being noticed.
TEST(RealLoop, StaysAwakeNoLongerThanUntilATimerIsDue) {
  struct Stream final : Answerer {
    bool look_for_answer() noexcept override { return false; }
  } stream;
  RealLoop loop;
  Alarm alarm;
  loop.await_answer(stream);
  loop.set_spin_policy({Duration(0), std::chrono::minutes(10), 0});  // the test would be ended before that
  loop.arm(alarm, after(loop.now(), milliseconds(20)));
  EXPECT_TRUE(loop.stay_awake());
  EXPECT_TRUE(alarm.armed()) << "a later turn is for timers";
  alarm.disarm();
  loop.await_no_answer(stream);
}

TEST(RealLoop, AOneShotWatchIsToldOnceUntilRearmed) {
  RealLoop loop;
  Fd bell(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  struct Counter final : Watch {
    int told = 0;
    void ready(Ready what) noexcept override { told += what.readable ? 1 : 100; }
  } counter;
  loop.watch_once(counter, bell.get(), true, false);
  loop.look();
  loop.look();
  EXPECT_EQ(counter.told, 1);
  loop.rearm(counter);
  loop.look();
  EXPECT_EQ(counter.told, 2);
}

}  // namespace
}  // namespace aiacc::io
