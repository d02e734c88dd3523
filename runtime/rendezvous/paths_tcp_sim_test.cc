// Ranks that met at a rendezvous and send each other messages over TCP, in virtual time: which breaks are lost ranks, and which
// lost paths. Nobody reports deaths but these ranks themselves.
#include <gtest/gtest.h>

#include <deque>

#include "base/sim/sim_compute.h"
#include "runtime/bootstrap/data_port.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/rendezvous/rendezvous_sim_world_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using namespace rendezvous_sim;

// The context of a rank that has met the others.
class Working final : private ProgressWatch::Reporter {
 public:
  Working(RendezvousJob& job, Rank& rank)
      : rank_(rank), compute_(rank.node.loop), lane_(rank.node.loop, nullptr, "sim") {
    JobPlaces places;
    places.secret = wire::Secret::from(rank.roster->secret);
    std::vector<Member> members;
    for (const wire::RosterEntry& entry : rank.roster->ranks) {
      const auto number = static_cast<std::uint32_t>(members.size());
      members.push_back({number, 0, number});
      places.hosts.push_back({entry.host_name, entry.addresses});
      places.ports.push_back(entry.ports);
    }
    BootstrapResult result;
    result.rank = rank.rank;
    result.world = std::make_shared<const View>(rank.roster->job, 0, 0, 0, std::move(members));
    result.host_name = rank.roster->ranks[static_cast<std::size_t>(rank.rank)].host_name;
    NetworkPorts networks = network_ports(rank.node.loop, rank.node.net, rank.node.entropy, std::move(rank.data));
    result.port = open_data_port(networks, *result.world, rank.rank, places, kRefusedLimit);
    port_ = result.port.get();
    context_.emplace(lane_, compute_, std::move(result), RuntimeConfig{}, static_cast<ProgressWatch::Reporter&>(*this));
    rank.lost.next = &*context_;
    Task<void> opening = context_->open(rank.stop);
    opening.start();
    EXPECT_TRUE(job.world.run_while_not([&] { return opening.done(); }));
  }
  ~Working() {
    rank_.lost.next = nullptr;
    rank_.rendezvous.reset();  // which dials for as long as a path is broken, and so does the port
    port_->close();
    context_->world().abort(std::make_exception_ptr(Error(Code::kAborted, "the simulation is over")));
    rank_.node.loop.bury();
  }

  // Begins an allreduce of ones, too many for one message.
  void sum() {
    data_.assign(100'000, 1.0f);
    const Buffer buffer{reinterpret_cast<std::byte*>(data_.data()), data_.size() * sizeof(float)};
    Call call;
    call.kind = Collective::kAllreduce;
    call.count = data_.size();
    const CallOptions options;
    operations_.push_back(context_->world().prepare(call, buffer, buffer, &options));
    lane_.start(*operations_.back());
  }
  bool done() const { return operations_.back()->done(); }
  Error error() const {
    EXPECT_TRUE(done());
    return operations_.back()->error() ? as_error(operations_.back()->error()) : Error(Code::kOk, "");
  }
  float result() const { return data_.back(); }

  std::vector<std::pair<Instant, std::string>> reports;

 private:
  void late(const std::string& sentence) noexcept override { reports.emplace_back(rank_.node.loop.now(), sentence); }
  void failed(Context&, const Group&, const Error&) noexcept override {}

  Rank& rank_;
  sim::SimCompute compute_;
  Lane lane_;
  Lane::Waiting waits_{lane_};
  MessagePort* port_ = nullptr;  // the context's
  std::optional<Context> context_;
  std::vector<float> data_;
  std::vector<std::unique_ptr<GroupOperation>> operations_;
};

// Three ranks, each on a host of its own, that have reduced once.
struct WorkingJob : RendezvousJob {
  WorkingJob() : RendezvousJob(3) {
    for (const auto& one : ranks) one->start();
    expect_met();
    for (const auto& one : ranks) working.emplace_back(*this, *one);
    sum_of_all();
    EXPECT_TRUE(run_until([this] { return all_reduced(); }));
  }
  ~WorkingJob() { mend(); }  // a watch looks as long as a path is broken, also while the simulation ends
  void sum_of_all() {
    for (Working& one : working) one.sum();
  }
  bool all_reduced() const {
    return std::all_of(working.begin(), working.end(), [](const Working& one) { return one.done(); });
  }
  // Nothing passes between rank 2 and the others, and their connections were silent for AIACC_LEASE.
  Instant cut_off() {
    for (const int other : {0, 1}) {
      network.cut(other, 2);
      network.break_streams(other, 2);
    }
    return world.now();
  }
  void mend() {
    for (const int other : {0, 1}) network.heal(other, 2);
  }
  void expect_none_lost() {
    for (const auto& one : ranks) EXPECT_TRUE(one->lost.ranks.empty()) << one->lost.sentences[0];
  }

  std::deque<Working> working;  // by rank
};

TEST(SimRendezvousPaths, AHostThatIsCutOffIsALostPathAndNotALostRank) {
  WorkingJob job;
  const Instant cut = job.cut_off();
  job.sum_of_all();
  job.world.run_until(after(cut, 6s));
  for (Working& one : job.working) {
    ASSERT_FALSE(one.reports.empty());
    EXPECT_EQ(one.reports[0].second.find("The path between rank "), 0u) << one.reports[0].second;
    EXPECT_NE(one.reports[0].second.find("has been broken for 5 s"), std::string::npos) << one.reports[0].second;
  }
  job.world.run_until(after(cut, 119s));
  for (const Working& one : job.working) EXPECT_FALSE(one.done());
  job.world.run_until(after(cut, 122s));
  for (const Working& one : job.working) {
    EXPECT_EQ(one.error().code(), Code::kUnreachable) << one.error().message();
    EXPECT_NE(one.error().message().find("No rank is known to have failed"), std::string::npos);
  }
  job.world.run_until(after(cut, 1000s));
  job.expect_none_lost();
}

TEST(SimRendezvousPaths, AHostThatComesBackInTimeCostsNothing) {
  WorkingJob job;
  const Instant cut = job.cut_off();
  job.sum_of_all();
  job.world.run_until(after(cut, 115s));
  job.mend();
  ASSERT_TRUE(job.run_until([&] { return job.all_reduced(); }, 5s)) << "each end tries again every few seconds";
  for (const Working& one : job.working) {
    EXPECT_EQ(one.error().message(), "");
    EXPECT_EQ(one.result(), 3.0f);
  }
  job.expect_none_lost();
  // Rank 0 hears of deaths there again.
  job.run_until([] { return false; }, 4s);
  job.world.kill(job.rank(2).node.loop.node());
  job.run_until([] { return false; }, 1s);
  for (const int one : {0, 1}) EXPECT_EQ(job.rank(one).lost.ranks, std::vector<int>{2});
}

// Its host says so: nobody listens at its port.
TEST(SimRendezvousPaths, AProcessThatEndsIsALostRankAtOnceAndAfterHalfAMinuteWhileRankZeroComputes) {
  for (const bool computes : {false, true}) {
    WorkingJob job;
    if (computes) job.world.freeze(job.rank(0).node.loop.node());
    job.world.kill(job.rank(2).node.loop.node());
    const Instant died = job.world.now();
    job.working[1].sum();
    ASSERT_TRUE(job.run_until([&] { return job.working[1].done(); }));
    EXPECT_EQ(job.working[1].error().code(), Code::kPeerFailed) << job.working[1].error().message();
    EXPECT_EQ(job.working[1].error().peer(), 2);
    if (computes) {
      EXPECT_GE(job.world.now(), after(died, kRefusedLimit));
      EXPECT_LE(job.world.now(), after(died, kRefusedLimit + 1s));
    } else {
      EXPECT_LE(job.world.now(), after(died, 1s));
    }
  }
}

}  // namespace
}  // namespace aiacc
