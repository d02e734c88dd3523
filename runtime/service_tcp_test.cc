// Service messages between processes: over TCP (loopback) between "hosts" and over shared memory within one, to ranks that
// compute and call nothing.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "runtime/bootstrap/bootstrap_list_test.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/lane_task.h"
#include "runtime/real_context.h"
#include "tests/service_callers.h"

namespace aiacc {
namespace {

using Placement = std::vector<std::uint32_t>;
constexpr std::uint64_t kSliceBytes = 64 << 20;
constexpr std::size_t kInstances = 300;
constexpr std::size_t kCredit = 8 << 20;

// Forks a process for each rank, before this one has threads.
class ProcessJob {
 public:
  explicit ProcessJob(const Placement& hosts) {
    std::vector<Member> members;
    for (const std::uint32_t host : hosts) members.push_back({static_cast<std::uint32_t>(members.size()), 0, host});
    world_ = std::make_shared<const View>(0x77, 0, 0, 0, std::move(members));
    for (int host = 0; host < world_->hosts(); ++host) {
      places_.hosts.push_back({"host" + std::to_string(host), {"127.0.0.1"}});
      const int here = static_cast<int>(world_->ranks_on_host(host).size());
      segments_.push_back(HostSegment::create(here, kSliceBytes, static_cast<std::uint64_t>(host) + 1));
    }
    places_.ports.resize(hosts.size());
    io::RealEntropy entropy;
    places_.secret = wire::Secret::fresh(entropy);
    shared_ =
        static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~ProcessJob() { munmap(shared_, sizeof(Shared)); }

  using Body = std::function<void(RealContext& context, int rank)>;
  // What each process ended with: 0, or -9 for one that was killed.
  std::vector<int> run(const Body& body) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < world_->size(); ++rank) {
      children.push_back(fork());
      if (children.back() == 0) _exit(be(rank, body));
    }
    std::vector<int> ends;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      ends.push_back(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
    }
    return ends;
  }

  // Words that all processes share.
  std::atomic<int>& word(int which) { return shared_->words[which]; }
  const ViewPtr& view() const { return world_; }

 private:
  struct Shared {
    std::atomic<int> ports[16];
    std::atomic<int> words[16];
  };

  int be(int rank, const Body& body) {
    try {
      const auto context = RealContext::join(RuntimeConfig{}, [&](io::RealLoop& loop) { return provider(loop, rank); });
      body(*context, rank);
      leave(*context);
    } catch (const Error& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.message();
    }
    return testing::Test::HasFailure() ? 1 : 0;
  }

  // The barrier of a world that has lost a rank fails.
  static void leave(RealContext& context) {
    try {
      context.leave();
    } catch (const Error& error) {
      if (error.code() != Code::kPeerFailed) throw;
    }
  }

  std::unique_ptr<Bootstrap> provider(io::RealLoop& loop, int rank) {
    io::RealNet net(loop);
    ListedRank me;
    me.listener = net.listen(io::Address::tcp("127.0.0.1", 0));
    shared_->ports[rank] = me.listener->address().port;
    for (int other = 0; other < world_->size(); ++other) {
      while (shared_->ports[other] == 0) std::this_thread::yield();
      places_.ports[static_cast<std::size_t>(other)].ports = {
          wire::tcp_address(static_cast<std::uint16_t>(shared_->ports[other].load()))};
    }
    me.rank = rank;
    me.world = world_;
    me.places = places_;
    me.job_name = "test";
    const int host = world_->host_of(rank);
    const int here = static_cast<int>(world_->ranks_on_host(host).size());
    if (here > 1) {
      const HostSegment& segment = segments_[static_cast<std::size_t>(host)];
      me.segment = SegmentMapping::map(segment.descriptor(), segment.nonce(), here);
    }
    return std::make_unique<ListBootstrap>(loop, std::move(me));
  }

  ViewPtr world_;
  JobPlaces places_;
  std::vector<HostSegment> segments_;
  Shared* shared_;
};

Task<void> call(std::function<void()> what) {
  what();
  co_return;
}
// On the lane's thread, now.
void on_lane(RealContext& context, const std::function<void()>& what) {
  LaneTask::run(context.context().lane(), std::chrono::seconds(60), "a call on the lane",
                [&](Stop&) { return call(what); });
}

// The program computes: it calls nothing of the library until the word says so.
void compute_until(std::atomic<int>& word, int value) {
  volatile double sum = 0;
  while (word.load() < value) {
    for (int i = 0; i < 10'000; ++i) sum = sum + i;
  }
}

class ProcessServices : public ::testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(Placements, ProcessServices,
                         ::testing::Values(Placement{0, 1}, Placement{0, 0}, Placement{0, 0, 1, 1}));

TEST_P(ProcessServices, WordsAreExchangedWhileAllCompute) {
  ProcessJob job(GetParam());
  const std::vector<int> ends = job.run([&job](RealContext& context, int rank) {
    std::optional<Agreement> mine;
    on_lane(context, [&] { mine.emplace(context.context().services(), job.view(), rank, kInstances); });
    context.world().run(Call{}, {}, {}, nullptr);
    const int size = job.view()->size();
    std::uint64_t all = ~std::uint64_t{0};
    for (int other = 0; other < size; ++other) all &= ~(std::uint64_t{1} << other);
    on_lane(context, [&] {
      for (std::size_t i = 0; i < kInstances; ++i) mine->begin(i, ~(std::uint64_t{1} << rank));
    });
    // Only the helper thread is left to go on. It is asked seldom, so that this thread drives nothing itself.
    bool done = false;
    while (!done) {
      compute_until(job.word(0), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      on_lane(context, [&] { done = mine->done(); });
    }
    for (std::size_t i = 0; i < kInstances; ++i) EXPECT_EQ(mine->result(i), all);
    context.world().run(Call{}, {}, {}, nullptr);
    on_lane(context, [&] { mine.reset(); });
  });
  EXPECT_EQ(ends, std::vector<int>(GetParam().size(), 0));
}

TEST_P(ProcessServices, ARankThatComputesServesTheOthers) {
  ProcessJob job(GetParam());
  const int others = job.view()->size() - 1;
  const std::vector<int> ends = job.run([&job, others](RealContext& context, int rank) {
    std::optional<Store> mine;
    on_lane(context, [&] { mine.emplace(context.context().services(), job.view(), rank, kCredit); });
    context.world().run(Call{}, {}, {}, nullptr);
    if (rank == 0) {
      compute_until(job.word(0), others);
    } else {
      for (const std::size_t size :
           {std::size_t{0}, std::size_t{8}, std::size_t{10'000}, std::size_t{1} << 20, (std::size_t{4} << 20) - 64}) {
        for (int round = 0; round < 5; ++round) {
          ServiceBytes answer;
          LaneTask::run(context.context().lane(), std::chrono::seconds(60), "rank 0 does not answer",
                        [&](Stop& stop) { return mine->ask(0, some_bytes(size, rank), &answer, stop); });
          EXPECT_TRUE(is_answer(answer, size, rank, 0)) << size;
        }
      }
      ++job.word(0);
    }
    context.world().run(Call{}, {}, {}, nullptr);
    on_lane(context, [&] { mine->stop(); });
    bool stopped = false;
    while (!stopped) on_lane(context, [&] { stopped = mine->stopped(); });
    on_lane(context, [&] { mine.reset(); });
  });
  EXPECT_EQ(ends, std::vector<int>(GetParam().size(), 0));
}

// The last rank is killed while it serves; rank 0 hears it from what watches processes, which the test plays.
TEST_P(ProcessServices, AKilledServerIsNamed) {
  ProcessJob job(GetParam());
  const int last = job.view()->size() - 1;
  const std::vector<int> ends = job.run([&job, last](RealContext& context, int rank) {
    std::optional<Store> mine;
    on_lane(context, [&] {
      mine.emplace(context.context().services(), job.view(), rank, 1 << 20);
      mine->pause(rank == last);
    });
    context.world().run(Call{}, {}, {}, nullptr);
    if (rank == last) {
      compute_until(job.word(0), last);
      raise(SIGKILL);
    }
    ServiceBytes answer;
    std::thread tell([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ++job.word(0);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      on_lane(context, [&] {
        context.context().on_rank_lost(last, std::make_exception_ptr(Error(Code::kPeerFailed, "it was killed", last)));
      });
    });
    try {
      LaneTask::run(context.context().lane(), std::chrono::seconds(60), "nobody says that it is dead",
                    [&](Stop& stop) { return mine->ask(last, some_bytes(100'000, rank), &answer, stop); });
      ADD_FAILURE() << "the dead have answered";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kPeerFailed);
      EXPECT_EQ(error.peer(), last);
    }
    tell.join();
    on_lane(context, [&] { EXPECT_EQ(mine->lost(), std::vector<int>{last}); });
    ++job.word(1);
    compute_until(job.word(1), last);  // a rank that has left is lost to the services of the others
    on_lane(context, [&] { mine->stop(); });
    bool stopped = false;
    while (!stopped) on_lane(context, [&] { stopped = mine->stopped(); });
    on_lane(context, [&] { mine.reset(); });
  });
  for (int rank = 0; rank < last; ++rank) EXPECT_EQ(ends[static_cast<std::size_t>(rank)], 0);
  EXPECT_EQ(ends.back(), -SIGKILL);
}

}  // namespace
}  // namespace aiacc
