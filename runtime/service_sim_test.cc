// Service messages in virtual time, between ranks of one host and of several: by two callers, a latency-critical one and one
// with payloads.
#include "tests/service_callers.h"
#include "tests/sim_job.h"

namespace aiacc::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Hosts = std::vector<std::uint32_t>;

class SimServices : public ::testing::TestWithParam<Hosts> {};
INSTANTIATE_TEST_SUITE_P(Placements, SimServices,
                         ::testing::Values(Hosts{0, 0}, Hosts{0, 1}, Hosts{0, 0, 0, 0, 0}, Hosts{0, 1, 2, 3, 4, 5},
                                           Hosts{0, 0, 1, 1, 2, 1, 0}));

template <class Component, class... Args>
std::vector<std::unique_ptr<Component>> one_each(SimJob& job, Args... args) {
  std::vector<std::unique_ptr<Component>> components;
  for (int rank = 0; rank < job.size(); ++rank) {
    components.push_back(std::make_unique<Component>(job[rank].context->services(), job.view, rank, args...));
  }
  job.world.run_while_not([at = job.world.now(), &job] { return job.world.now() > at + microseconds(10); });
  return components;
}

bool all_done(const std::vector<Task<void>>& tasks) {
  return std::all_of(tasks.begin(), tasks.end(), [](const Task<void>& task) { return task.done(); });
}

bool run_until(SimJob& job, const std::function<bool()>& done, Duration limit = std::chrono::seconds(10)) {
  const Instant end = job.world.now() + limit;
  job.world.run_while_not([&] { return done() || job.world.now() > end; });
  return done();
}

// Rank 1 needs rank 2 no more, but gets credit from it, and a message to a rank that has left without a word is a lost rank.
TEST(SimServicesLeaving, WhoExchangedServiceMessagesOnlyLeavesWhenTheOtherDoes) {
  for (const bool sends : {true, false}) {
    SimJob job({0, 0, 1});
    auto stores = one_each<Store>(job, std::size_t{1} << 20);
    ServiceBytes answer;
    Stop stop;
    Task<void> asking = sends ? stores[1]->ask(2, some_bytes(100, 1), &answer, stop)
                              : stores[2]->ask(1, some_bytes(100, 2), &answer, stop);
    asking.start();
    ASSERT_TRUE(run_until(job, [&] { return asking.done(); }));
    for (auto& store : stores) store->stop();
    ASSERT_TRUE(run_until(
        job, [&] { return std::all_of(stores.begin(), stores.end(), [](auto& one) { return one->stopped(); }); }));
    std::deque<LeaveDeadline> deadlines;
    std::vector<Task<void>> leaving;
    for (int rank = 0; rank < 3; ++rank) {
      deadlines.emplace_back(job[rank].loop);
      leaving.push_back(job[rank].context->close(deadlines.back(), stop));
    }
    leaving[1].start();
    EXPECT_FALSE(run_until(
        job, [&] { return leaving[1].done(); }, milliseconds(20)))
        << "rank 2 does not know of it";
    leaving[0].start();
    leaving[2].start();
    EXPECT_TRUE(run_until(job, [&] { return all_done(leaving); }));
    stores.clear();
  }
}

TEST_P(SimServices, AllAgreeInManyRoundsAtOnce) {
  constexpr std::size_t kInstances = 200;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SimJob job(GetParam(), seed);
    const auto members = one_each<Agreement>(job, kInstances);
    std::vector<std::uint64_t> all(kInstances, ~std::uint64_t{0});
    for (std::size_t instance = 0; instance < kInstances; ++instance) {
      for (int rank = 0; rank < job.size(); ++rank) {
        const std::uint64_t bits = Hash64().add(instance).add(static_cast<std::uint64_t>(rank)).value() | 0xff;
        all[instance] &= bits;
        members[static_cast<std::size_t>(rank)]->begin(instance, bits);
      }
    }
    ASSERT_TRUE(
        run_until(job, [&] { return std::all_of(members.begin(), members.end(), [](auto& m) { return m->done(); }); }));
    for (const auto& member : members) {
      for (std::size_t instance = 0; instance < kInstances; ++instance)
        EXPECT_EQ(member->result(instance), all[instance]);
      EXPECT_EQ(member->refused(), 0u);
    }
  }
}

// A round is one message of the network, and no more: the latency and its jitter, the sender's overhead, and the bytes.
TEST_P(SimServices, ARoundTakesOneMessage) {
  SimJob job(GetParam());
  const auto members = one_each<Agreement>(job, 1);
  const Instant began = job.world.now();
  for (const auto& member : members) member->begin(0, 0xff);
  ASSERT_TRUE(
      run_until(job, [&] { return std::all_of(members.begin(), members.end(), [](auto& m) { return m->done(); }); }));
  int rounds = 0;
  while ((1 << rounds) < job.size()) ++rounds;
  const LinkModel link = FabricModel{}.between_hosts;
  const Duration message = link.latency + link.jitter + 3 * link.overhead + microseconds(1);
  for (const auto& member : members) EXPECT_LE(member->ended_at(0) - began, rounds * message);
}

TEST_P(SimServices, RequestsOfAnySizeAreAnswered) {
  constexpr std::size_t kCredit = 4 << 20;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SimJob job(GetParam(), seed);
    const auto stores = one_each<Store>(job, kCredit);
    const std::vector<std::size_t> sizes{
        0, 1, 4096, 100'000, MessagePort::kChunkBytes, 1'500'001, stores[0]->service().longest()};
    std::deque<ServiceBytes> answers;
    std::vector<Task<void>> asking;
    for (int from = 0; from < job.size(); ++from) {
      for (int to = 0; to < job.size(); ++to) {
        for (const std::size_t size : sizes) {
          answers.emplace_back();
          asking.push_back(
              stores[static_cast<std::size_t>(from)]->ask(to, some_bytes(size, from), &answers.back(), job[from].stop));
          asking.back().start();
        }
      }
    }
    ASSERT_TRUE(
        run_until(job, [&] { return std::all_of(asking.begin(), asking.end(), [](auto& t) { return t.done(); }); }));
    for (Task<void>& each : asking) each.take();
    auto answer = answers.begin();
    for (int from = 0; from < job.size(); ++from) {
      for (int to = 0; to < job.size(); ++to) {
        for (const std::size_t size : sizes)
          EXPECT_TRUE(is_answer(*answer++, size, from, to)) << from << " " << to << " " << size;
      }
    }
    for (const auto& store : stores) {
      EXPECT_LE(store->most_bytes_held(), static_cast<std::size_t>(job.size()) * kCredit);
      store->stop();
    }
    ASSERT_TRUE(run_until(
        job, [&] { return std::all_of(stores.begin(), stores.end(), [](auto& s) { return s->stopped(); }); }));
  }
}

// What messages were in stays for the next ones, and goes when none have come for a while or the subscriptions end.
TEST_P(SimServices, MemoryOfMessagesIsKeptWhileThereAreMessages) {
  SimJob job(GetParam());
  auto stores = one_each<Store>(job, std::size_t{4 << 20});
  const auto ask_all = [&] {
    std::deque<ServiceBytes> answers;
    std::vector<Task<void>> asking;
    for (int from = 0; from < job.size(); ++from) {
      Store& store = *stores[static_cast<std::size_t>(from)];
      answers.emplace_back();
      asking.push_back(store.ask((from + 1) % job.size(), some_bytes(200'000, from), &answers.back(), job[from].stop));
      asking.back().start();
    }
    ASSERT_TRUE(run_until(job, [&] { return all_done(asking); }));
  };
  const auto kept = [&](int rank) { return job[rank].context->services().memory().kept_bytes(); };
  ask_all();
  for (int rank = 0; rank < job.size(); ++rank) EXPECT_GE(kept(rank), 200'000u) << rank;
  static_cast<void>(run_until(
      job, [] { return false; }, 3 * Services::kTrimPeriod));
  for (int rank = 0; rank < job.size(); ++rank) EXPECT_EQ(kept(rank), 0u) << rank;
  ask_all();
  for (int rank = 0; rank < job.size(); ++rank) EXPECT_GE(kept(rank), 200'000u) << rank;
  for (const auto& store : stores) store->stop();
  ASSERT_TRUE(
      run_until(job, [&] { return std::all_of(stores.begin(), stores.end(), [](auto& s) { return s->stopped(); }); }));
  stores.clear();
  for (int rank = 0; rank < job.size(); ++rank) EXPECT_EQ(kept(rank), 0u) << rank;
}

// A server that does not go on stores what credit allows and no more; its clients go on when it does.
TEST_P(SimServices, CreditBoundsWhatASlowServerStores) {
  constexpr std::size_t kCredit = 64 << 10, kBytes = 5000, kAsked = 100;
  SimJob job(GetParam());
  const auto stores = one_each<Store>(job, kCredit);
  const int clients = job.size() - 1;
  stores[0]->pause(true);
  std::deque<ServiceBytes> answers;
  std::vector<Task<void>> asking;
  for (int from = 1; from <= clients; ++from) {
    for (std::size_t i = 0; i < kAsked; ++i) {
      answers.emplace_back();
      asking.push_back(
          stores[static_cast<std::size_t>(from)]->ask(0, some_bytes(kBytes, from), &answers.back(), job[from].stop));
      asking.back().start();
    }
  }
  run_until(
      job, [] { return false; }, milliseconds(100));
  const std::size_t fit = kCredit / (kBytes + Service::kOverhead) * static_cast<std::size_t>(clients);
  EXPECT_EQ(stores[0]->holds(), fit);
  stores[0]->pause(false);
  ASSERT_TRUE(
      run_until(job, [&] { return std::all_of(asking.begin(), asking.end(), [](auto& t) { return t.done(); }); }));
  for (Task<void>& each : asking) each.take();
  EXPECT_LE(stores[0]->most_bytes_held(), fit * kBytes);
  for (const auto& store : stores) store->stop();
  ASSERT_TRUE(
      run_until(job, [&] { return std::all_of(stores.begin(), stores.end(), [](auto& s) { return s->stopped(); }); }));
}

// Whether the rank has subscribed to something else, to nothing at all, or no more.
TEST_P(SimServices, AMessageToANumberThatNobodyHasComesBack) {
  for (const int other : {0, 1, 2}) {
    SimJob job(GetParam());
    const int last = job.size() - 1;
    Agreement mine(job[0].context->services(), job.view, 0, 1);
    std::optional<Store> its_store;
    std::optional<Agreement> its_agreement;
    if (other == 1) its_store.emplace(job[last].context->services(), job.view, last, 64 << 10);
    if (other == 2) {
      its_agreement.emplace(job[last].context->services(), job.view, last, 1);
      its_agreement.reset();
    }
    run_until(
        job, [] { return false; }, milliseconds(1));
    for (std::uint64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(mine.service().post(last, i, std::as_bytes(std::span(&i, 1))), Service::Posted::kSent);
    }
    ASSERT_TRUE(run_until(job, [&] { return mine.refused() == 10; }));
    const std::string rank = "rank " + std::to_string(last);
    const std::string why =
        other == 2 ? " has ended its subscription to service 1" : " has no subscription to service 1";
    for (const std::string& sentence : mine.sentences()) EXPECT_EQ(sentence.find(rank + why), 0u) << sentence;
    // What was refused gives its credit back.
    for (std::uint64_t i = 10; i < 10'000; ++i) {
      ASSERT_EQ(mine.service().post(last, i, std::as_bytes(std::span(&i, 1))), Service::Posted::kSent) << i;
      if (i % 100 != 0) continue;
      ASSERT_TRUE(run_until(job, [&] { return mine.refused() == i + 1; }));
    }
    if (its_store) {
      its_store->stop();
      ASSERT_TRUE(run_until(job, [&] { return its_store->stopped(); }));
    }
  }
}

TEST_P(SimServices, WhoGrantsLessCreditSaysSo) {
  SimJob job(GetParam());
  Store mine(job[0].context->services(), job.view, 0, 1 << 20);
  const int last = job.size() - 1;
  Store its(job[last].context->services(), job.view, last, 8 << 10);
  run_until(
      job, [] { return false; }, milliseconds(1));
  ServiceBytes answer;
  Task<void> asking = mine.ask(last, some_bytes(100'000, 0), &answer, job[0].stop);
  asking.start();
  ASSERT_TRUE(run_until(job, [&] { return asking.done(); }));
  try {
    asking.take();
    ADD_FAILURE() << "it was served";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kMismatch);
    EXPECT_NE(error.message().find("grants 8192 bytes of credit in service 2"), std::string::npos) << error.message();
  }
  for (Store* store : {&mine, &its}) store->stop();
  ASSERT_TRUE(run_until(job, [&] { return mine.stopped() && its.stopped(); }));
}

TEST_P(SimServices, ADeadPeerIsNamedToEachOnceAndItsCallersFail) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SimJob job(GetParam(), seed);
    const auto stores = one_each<Store>(job, 256 << 10);
    const int dead = job.size() - 1;
    stores[static_cast<std::size_t>(dead)]->pause(true);
    std::deque<ServiceBytes> answers;
    std::vector<Task<void>> asking;
    for (int from = 0; from < dead; ++from) {
      for (int i = 0; i < 50; ++i) {  // more than there is credit for
        answers.emplace_back();
        asking.push_back(stores[static_cast<std::size_t>(from)]->ask(dead, some_bytes(20'000, from), &answers.back(),
                                                                     job[from].stop));
        asking.back().start();
      }
    }
    const Instant when = job.world.now() + microseconds(30 * static_cast<int>(seed));
    job.world.at(when, [&job, dead] { job.world.kill(job[dead].loop.node()); });
    for (int rank = 0; rank < dead; ++rank) {
      job.world.at(when + milliseconds(1), [&job, rank, dead] {
        job[rank].context->on_rank_lost(dead, std::make_exception_ptr(Error(Code::kPeerFailed, "it was killed", dead)));
      });
    }
    ASSERT_TRUE(run_until(job, [&] { return all_done(asking); }));
    for (Task<void>& each : asking) {
      try {
        each.take();
        ADD_FAILURE() << "the dead have answered";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kPeerFailed);
        EXPECT_EQ(error.peer(), dead);
      }
    }
    run_until(
        job, [] { return false; }, milliseconds(100));
    for (int rank = 0; rank < dead; ++rank) {
      Store& store = *stores[static_cast<std::size_t>(rank)];
      EXPECT_EQ(store.lost(), std::vector<int>{dead});
      ServiceBytes none;
      EXPECT_EQ(store.service().post(dead, 0, none), Service::Posted::kLost);
      store.stop();
    }
    ASSERT_TRUE(run_until(
        job, [&] { return std::all_of(stores.begin(), stores.end() - 1, [](auto& s) { return s->stopped(); }); }));
  }
}

TEST_P(SimServices, ASubscriptionMayEndWhileMessagesArrive) {
  for (int when = 0; when < 60; ++when) {
    SimJob job(GetParam(), static_cast<std::uint64_t>(when) + 1);
    const int last = job.size() - 1;
    Store mine(job[0].context->services(), job.view, 0, 4 << 20);
    std::optional<Store> its(std::in_place, job[last].context->services(), job.view, last, 4 << 20);
    run_until(
        job, [] { return false; }, milliseconds(1));
    ServiceBytes answer;
    Task<void> asking = mine.ask(last, some_bytes(2'000'000, 0), &answer, job[0].stop);
    asking.start();
    run_until(
        job, [] { return false; }, microseconds(4 * when));
    its->stop();
    ASSERT_TRUE(run_until(job, [&] { return its->stopped(); }));
    its.reset();
    run_until(
        job, [&] { return asking.done(); }, milliseconds(10));
    mine.stop();
    job[0].stop.request(std::make_exception_ptr(Error(Code::kAborted, "enough")));
    ASSERT_TRUE(run_until(job, [&] { return asking.done() && mine.stopped(); }));
  }
}

TEST(SimServicesUse, WrongUsesAreErrors) {
  SimJob job(Hosts{0, 0, 1});
  Services& services = job[0].context->services();
  std::optional<Agreement> mine(std::in_place, services, job.view, 0, 1);
  EXPECT_THROW(Agreement(services, job.view, 0, 1), Error) << "the number is taken";
  ServiceBytes bytes(mine->service().longest() + 1);
  EXPECT_THROW(mine->service().post(1, 0, bytes), Error) << "it would never fit";
  EXPECT_EQ(bytes.size(), mine->service().longest() + 1);
  mine.reset();
  EXPECT_THROW(Agreement(services, job.view, 0, 1), Error) << "it was used";
  EXPECT_THROW(Store(services, job.view, 0, 100), Error) << "nothing fits";
}

}  // namespace
}  // namespace aiacc::sim
