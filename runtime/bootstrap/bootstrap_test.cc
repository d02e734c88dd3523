// The providers of this floor against bootstrap_conformance.h, and what is particular to the agent's.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <list>
#include <optional>

#include "base/io/descriptor_passing.h"
#include "base/io/real_net.h"
#include "base/wire/channel.h"
#include "runtime/bootstrap/bootstrap_agent.h"
#include "runtime/bootstrap/bootstrap_conformance.h"
#include "runtime/bootstrap/bootstrap_local.h"
#include "runtime/bootstrap/bootstrap_singleton.h"
#include "runtime/bootstrap/rendezvous_world_test.h"

namespace aiacc {
namespace {

using conformance::BootstrapConformance;
using conformance::BootstrapWorld;

constexpr std::uint64_t kSliceBytes = 16 << 20;

class SingletonWorld final : public RealWorld {
 public:
  int size() const override { return 1; }
  Bootstrap& provider(int) override { return provider_; }

 private:
  SingletonBootstrap provider_{"here"};
};

class ThreadsWorld final : public RealWorld {
 public:
  explicit ThreadsWorld(int ranks) {
    const auto world = LocalWorld::make(ranks, kSliceBytes, "here");
    for (int rank = 0; rank < ranks; ++rank) providers_.emplace_back(loop_, world, rank);
  }
  int size() const override { return static_cast<int>(providers_.size()); }
  Bootstrap& provider(int rank) override { return *std::next(providers_.begin(), rank); }

 private:
  std::list<LocalBootstrap> providers_;
};

// The smallest agent: welcomes everybody at once, tells of deaths, answers a leave.
class StandInAgent {
 public:
  // Ranks are on `hosts` hosts by turns; they all come to this one agent.
  StandInAgent(io::RealLoop& loop, std::string name, int ranks, int hosts)
      : loop_(loop),
        net_(loop),
        ranks_(ranks),
        hosts_(hosts),
        listener_(net_.listen(io::Address::local(std::move(name)))),
        accepting_(accept(this)) {
    for (int host = 0; host < hosts; ++host) segments_.push_back(HostSegment::create(on_host(host), kSliceBytes, 99));
    accepting_.start();
  }
  ~StandInAgent() { stop(); }

  void stop() {
    stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the agent ends")));
    loop_.run_until([this] {
      return accepting_.done() &&
             std::all_of(sessions_.begin(), sessions_.end(), [](auto& one) { return one.task->done(); });
    });
    for (Session& session : sessions_) session.channel.reset();
  }
  // Whatever it is, to a rank that was welcomed.
  template <wire::Message T>
  void tell(int rank, const T& message) {
    for (Session& session : sessions_) {
      if (session.welcomed && session.rank == rank) loop_.run(session.channel->send(message, stop_));
    }
  }
  int on_host(int host) const { return (ranks_ + hosts_ - 1 - host) / hosts_; }

  std::optional<wire::Refused> refuse;   // everybody, with this
  std::optional<wire::RankLost> reason;  // said before that
  std::optional<wire::Missing> missing;  // said to everybody that waits
  std::function<void(wire::Welcome&)> spoil = [](wire::Welcome&) {};
  bool without_segment = false;
  bool ends_at_leave = false;  // instead of an answer
  std::vector<wire::Hello> hellos;
  std::vector<std::pair<int, int>> peers_lost;  // by whom, whom
  std::vector<std::string> paths_lost;

 private:
  struct Session {
    std::unique_ptr<wire::Channel> channel;
    std::optional<Task<void>> task;
    int rank = -1;
    bool welcomed = false;
  };

  static Task<void> accept(StandInAgent* self) {
    while (true) {
      std::unique_ptr<io::Stream> stream;
      try {
        stream = co_await self->listener_->accept(self->stop_);
      } catch (const Error&) {
        co_return;
      }
      Session& session = self->sessions_.emplace_back();
      session.channel = std::make_unique<wire::Channel>(self->loop_, std::move(stream));
      session.task.emplace(serve(self, &session));
      session.task->start();
    }
  }
  static Task<void> serve(StandInAgent* self, Session* session) {
    try {
      co_await self->converse(*session);
    } catch (const Error&) {
    }
    if (!session->welcomed || self->stop_.requested()) co_return;
    session->welcomed = false;
    const wire::RankLost lost{session->rank, "it is dead"};
    for (Session& other : self->sessions_) {
      if (other.welcomed) co_await other.channel->send(lost, self->stop_);
    }
  }
  Task<void> converse(Session& session) {
    std::optional<wire::Frame> frame = co_await session.channel->receive(stop_);
    const auto hello = frame->as<wire::Hello>();
    hellos.push_back(hello);
    session.rank = hello.rank;
    if (refuse) {
      if (reason) co_await session.channel->send(*reason, stop_);
      co_await session.channel->send(*refuse, stop_);
      session.channel->stream().shutdown_write();
      co_return;
    }
    if (missing) co_await session.channel->send(*missing, stop_);
    if (static_cast<int>(hellos.size()) == ranks_) {
      for (Session& waiting : sessions_) co_await welcome(waiting);
    }
    frame = co_await session.channel->receive(stop_);
    while (frame && frame->type != wire::Leave::kType) {
      if (frame->type == wire::PathLost::kType) {
        paths_lost.push_back(frame->as<wire::PathLost>().sentence);
      } else {
        peers_lost.emplace_back(session.rank, frame->as<wire::PeerLost>().rank);
      }
      frame = co_await session.channel->receive(stop_);
    }
    if (!frame) co_return;
    frame->as<wire::Leave>();
    session.welcomed = false;
    if (ends_at_leave) {
      session.channel->stream().shutdown_write();
      co_return;
    }
    co_await session.channel->send(wire::Gone{}, stop_);
  }
  Task<void> welcome(Session& session) {
    wire::Welcome welcome;
    const int host = session.rank % hosts_;
    welcome.rank = session.rank;
    welcome.size = ranks_;
    welcome.local_rank = session.rank / hosts_;
    welcome.local_size = on_host(host);
    welcome.job = 0x1234;
    welcome.segment_nonce = 99;
    welcome.host_name = "here";
    welcome.ports.resize(static_cast<std::size_t>(ranks_));
    for (int rank = 0; rank < ranks_; ++rank) {
      welcome.hosts_of_ranks.push_back(static_cast<std::uint32_t>(rank % hosts_));
    }
    for (const wire::Hello& hello : hellos) welcome.ports[static_cast<std::size_t>(hello.rank)] = hello.ports;
    for (int each = 0; each < hosts_; ++each) welcome.hosts.push_back({"host", {"127.0.0.1"}});
    if (hosts_ > 1) welcome.secret.assign(32, 's');
    spoil(welcome);
    session.welcomed = true;
    if (without_segment) {
      co_await session.channel->send(welcome, stop_);
      co_return;
    }
    const int segment = segments_[static_cast<std::size_t>(host)].descriptor();
    co_await session.channel->send(welcome, segment, stop_);
  }

  io::RealLoop& loop_;
  io::RealNet net_;
  int ranks_;
  int hosts_;
  std::vector<HostSegment> segments_;
  std::unique_ptr<io::Listener> listener_;
  Stop stop_;
  std::list<Session> sessions_;
  Task<void> accepting_;
};

std::string fresh_name() {
  static int count = 0;
  return "aiacc-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

class AgentWorld final : public RealWorld {
 public:
  explicit AgentWorld(int ranks, int hosts = 1) : hosts_(hosts), name_(fresh_name()) {
    agent_.emplace(loop_, name_, ranks, hosts);
    for (int rank = 0; rank < ranks; ++rank) {
      providers_.push_back(std::make_unique<AgentBootstrap>(loop_, "local:" + name_, rank, ranks, hosts_ > 1, "1.2.3"));
    }
  }
  ~AgentWorld() override { agent_->stop(); }
  int size() const override { return static_cast<int>(providers_.size()); }
  Bootstrap& provider(int rank) override { return *providers_[static_cast<std::size_t>(rank)]; }
  bool kill(int rank) override {
    if (size() == 1) return false;
    providers_[static_cast<std::size_t>(rank)].reset();
    return true;
  }
  StandInAgent& agent() { return *agent_; }
  io::RealLoop& real_loop() { return loop_; }

 private:
  int hosts_;
  std::string name_;
  std::optional<StandInAgent> agent_;
  std::vector<std::unique_ptr<AgentBootstrap>> providers_;
};

using Make = std::function<std::unique_ptr<BootstrapWorld>()>;
INSTANTIATE_TEST_SUITE_P(Providers, BootstrapConformance,
                         testing::Values(Make([] { return std::make_unique<SingletonWorld>(); }),
                                         Make([] { return std::make_unique<ThreadsWorld>(2); }),
                                         Make([] { return std::make_unique<ThreadsWorld>(5); }),
                                         Make([] { return std::make_unique<AgentWorld>(1); }),
                                         Make([] { return std::make_unique<AgentWorld>(2); }),
                                         Make([] { return std::make_unique<AgentWorld>(7); }),
                                         Make([] { return std::make_unique<AgentWorld>(2, 2); }),
                                         Make([] { return std::make_unique<AgentWorld>(5, 2); }),
                                         Make([] { return std::make_unique<RendezvousWorld>(2); }),
                                         Make([] { return std::make_unique<RendezvousWorld>(7); }),
                                         Make([] { return std::make_unique<RendezvousWorld>(3, false); })));

// What the join of rank 0 ended with, at the latest after `limit`.
Error join_error(RealWorld& world, Duration limit = std::chrono::seconds(60)) {
  std::exception_ptr ended;
  std::vector<Task<void>> tasks;
  tasks.push_back([](Loop* loop, Duration patience, Bootstrap* provider, std::exception_ptr* error) -> Task<void> {
    Stop stop;
    const Deadline deadline(*loop, after(loop->now(), patience), stop, "too late");
    try {
      co_await provider->join(stop);
    } catch (...) {
      *error = std::current_exception();
    }
  }(&world.loop(), limit, &world.provider(0), &ended));
  world.run(std::move(tasks));
  return as_error(ended);
}

TEST(AgentBootstrap, SaysAtItsDeadlineWhoIsMissing) {
  AgentWorld alone(2);
  EXPECT_EQ(join_error(alone, std::chrono::milliseconds(50)).message(),
            "too late: perhaps another rank has not called aiacc_init");
  std::string said;
  for (const int ms : {50, 1'000, 20'000}) {  // a slow machine needs more time to be told
    AgentWorld told(2);
    told.agent().missing = wire::Missing{"rank 1 did not come"};
    const Error error = join_error(told, std::chrono::milliseconds(ms));
    EXPECT_EQ(error.code(), Code::kTimeout);
    said = error.message();
    if (said == "too late: rank 1 did not come") break;
  }
  EXPECT_EQ(said, "too late: rank 1 did not come");
}

TEST(AgentBootstrap, GoesOnWhenTheMissingHaveCome) {
  AgentWorld world(1);
  world.agent().missing = wire::Missing{"rank 1 did not come"};
  std::vector<Task<void>> tasks;
  tasks.push_back([](Bootstrap* provider) -> Task<void> {
    Stop stop;
    const BootstrapResult bootstrapped = co_await provider->join(stop);
    EXPECT_EQ(bootstrapped.host_name, "here");
  }(&world.provider(0)));
  world.run(std::move(tasks));
}

TEST(AgentBootstrap, SaysWhoItIsAndTellsWhyItWasRefused) {
  AgentWorld world(1);
  world.agent().refuse = wire::Refused{static_cast<std::int32_t>(Code::kMismatch), "two versions"};
  const Error error = join_error(world);
  EXPECT_EQ(error.code(), Code::kMismatch);
  EXPECT_EQ(error.message(), "two versions");
  ASSERT_EQ(world.agent().hellos.size(), 1u);
  EXPECT_EQ(world.agent().hellos[0].library_version, "1.2.3");
  EXPECT_EQ(world.agent().hellos[0].size, 1);
}

TEST(AgentBootstrap, TheErrorIsAboutTheRankWhoseEndIsTheReason) {
  AgentWorld world(1);
  world.agent().reason = wire::RankLost{3, "rank 3 exited"};
  world.agent().refuse = wire::Refused{static_cast<std::int32_t>(Code::kPeerFailed), "rank 3 takes no part any more"};
  const Error error = join_error(world);
  EXPECT_EQ(error.message(), "rank 3 takes no part any more");
  EXPECT_EQ(error.peer(), 3);
}

TEST(AgentBootstrap, AnAgentThatIsNotThereIsNamed) {
  class Nowhere final : public RealWorld {
   public:
    Nowhere() : provider_(loop_, "local:" + fresh_name(), 0, 2, false, "1") {}
    int size() const override { return 1; }
    Bootstrap& provider(int) override { return provider_; }

   private:
    AgentBootstrap provider_;
  } world;
  const Error error = join_error(world);
  EXPECT_EQ(error.code(), Code::kPeerFailed);
  EXPECT_NE(error.message().find("AIACC_AGENT=local:aiacc-test-"), std::string::npos) << error.message();
}

TEST(AgentBootstrap, AWelcomeThatMakesNoSenseIsRefused) {
  const std::pair<const char*, void (*)(wire::Welcome&)> spoilt[] = {
      {"rank -1 of 1, with hosts of 1 ranks", [](wire::Welcome& one) { one.rank = -1; }},
      {"rank 1 of 1, with hosts of 1 ranks", [](wire::Welcome& one) { one.rank = 1; }},
      {"rank 0 of 2, with hosts of 1 ranks", [](wire::Welcome& one) { one.size = 2; }},
      {"rank 0 of 1, with hosts of 0 ranks", [](wire::Welcome& one) { one.hosts_of_ranks.clear(); }},
      {"local rank 0 of 2, but 1 ranks on this host", [](wire::Welcome& one) { one.local_size = 2; }},
      {"local rank 1 of 1, but 1 ranks on this host", [](wire::Welcome& one) { one.local_rank = 1; }},
      {"local rank -1 of 1, but 1 ranks on this host", [](wire::Welcome& one) { one.local_rank = -1; }},
      {"local rank 1 of 2, but 2 ranks on this host",
       [](wire::Welcome& one) {
         one.size = one.local_size = 2;
         one.hosts_of_ranks = {0, 0};
         one.local_rank = 1;
       }},
      {"2 hosts, but AIACC_LOCAL_SIZE says that all 2 ranks are on this one",
       [](wire::Welcome& one) {
         one.size = 2;
         one.hosts_of_ranks = {0, 1};
       }},
  };
  for (const auto& [says, spoil] : spoilt) {
    AgentWorld world(1);
    world.agent().spoil = spoil;
    const Error error = join_error(world);
    EXPECT_EQ(error.code(), Code::kProtocol) << says;
    EXPECT_EQ(error.message(), std::string("the agent's welcome makes no sense: ") + says);
  }
}

TEST(AgentBootstrap, AWelcomeWithoutTheSegmentIsRefused) {
  AgentWorld world(1);
  world.agent().without_segment = true;
  world.agent().spoil = [](wire::Welcome& one) {
    one.size = one.local_size = 2;
    one.hosts_of_ranks = {0, 0};
  };
  const Error error = join_error(world);
  EXPECT_EQ(error.code(), Code::kProtocol);
  EXPECT_NE(error.message().find("came without the host's segment"), std::string::npos) << error.message();
}

class AgentLoss : public BootstrapConformance {};

TEST_P(AgentLoss, TheEndOfTheAgentIsTheEndOfEveryGroup) {
  join();
  static_cast<AgentWorld&>(*world_).agent().stop();
  wait_for([this] { return all_heard(world_->size()); });
  for (int rank = 0; rank < world_->size(); ++rank) {
    EXPECT_EQ(heard_[static_cast<std::size_t>(rank)].lost, std::vector<int>{rank})
        << "its own: it is in all its groups";
  }
}
TEST_P(AgentLoss, TheEndOfTheAgentOfWhoLeavesIsNone) {
  join();
  static_cast<AgentWorld&>(*world_).agent().ends_at_leave = true;
  leave({0, 1, 2});
  wait(std::chrono::milliseconds(20));
  for (const Heard& heard : heard_) EXPECT_TRUE(heard.lost.empty());
}
TEST_P(AgentLoss, TheAgentHearsOnceWhomARankHasLost) {
  join();
  world_->provider(1).lost_peer(2);
  world_->provider(1).lost_peer(0);
  world_->provider(0).lost_peer(0);  // that is the agent's own end
  wait_for([this] { return !static_cast<AgentWorld&>(*world_).agent().peers_lost.empty(); });
  EXPECT_EQ(static_cast<AgentWorld&>(*world_).agent().peers_lost, (std::vector<std::pair<int, int>>{{1, 2}}));
}
TEST_P(AgentLoss, TheAgentHearsOfALossBeforeTheEndOfARankThatReadsAndWritesMuch) {
  join();
  while (static_cast<AgentWorld&>(*world_).real_loop().may_complete_in_place()) {
  }
  world_->provider(1).lost_peer(2);
  world_->kill(1);
  wait_for([this] { return !static_cast<AgentWorld&>(*world_).agent().peers_lost.empty(); });
  EXPECT_EQ(static_cast<AgentWorld&>(*world_).agent().peers_lost, (std::vector<std::pair<int, int>>{{1, 2}}));
}
TEST_P(AgentLoss, TheAgentHearsOnceOfALostPath) {
  join();
  world_->provider(1).lost_path("the path to rank 2 was broken");
  world_->provider(1).lost_path("the path to rank 0 was broken");
  wait_for([this] { return !static_cast<AgentWorld&>(*world_).agent().paths_lost.empty(); });
  const StandInAgent& agent = static_cast<AgentWorld&>(*world_).agent();
  EXPECT_EQ(agent.paths_lost, std::vector<std::string>{"the path to rank 2 was broken"});
  EXPECT_TRUE(agent.peers_lost.empty());
}
TEST_P(AgentLoss, AnAgentThatTellsOfALossThatCannotBeIsLostItself) {
  join();
  StandInAgent& agent = static_cast<AgentWorld&>(*world_).agent();
  agent.tell(0, wire::RankLost{-1, "it is dead"});
  agent.tell(1, wire::RankLost{1, "it is dead"});
  agent.tell(2, wire::RankLost{3, "it is dead"});
  for (int rank = 0; rank < 3; ++rank) agent.tell(rank, wire::RankLost{(rank + 1) % 3, "it is heard no more"});
  wait_for([this] { return all_heard(world_->size()); });
  for (int rank = 0; rank < world_->size(); ++rank) {
    EXPECT_EQ(heard_[static_cast<std::size_t>(rank)].lost, std::vector<int>{rank}) << "its own: all its groups end";
  }
}
INSTANTIATE_TEST_SUITE_P(Agent, AgentLoss, testing::Values(Make([] { return std::make_unique<AgentWorld>(3); })));

// The world of an elastic job may have more ranks than there were when this one was started.
class AgentGrowth : public BootstrapConformance {};

TEST_P(AgentGrowth, ARankThatCameLaterMayBeLost) {
  StandInAgent& agent = static_cast<AgentWorld&>(*world_).agent();
  agent.spoil = [](wire::Welcome& one) {
    one.size = 3;
    one.hosts_of_ranks.push_back(2);
    one.hosts.push_back(one.hosts.front());
    one.ports.push_back(one.ports.front());
  };
  join();
  agent.tell(0, wire::RankLost{2, "it is dead"});
  wait_for([this] { return all_heard(1); });
  EXPECT_EQ(heard_[0].lost, std::vector<int>{2});
}
INSTANTIATE_TEST_SUITE_P(Agent, AgentGrowth, testing::Values(Make([] { return std::make_unique<AgentWorld>(2, 2); })));

}  // namespace
}  // namespace aiacc
