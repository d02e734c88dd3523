// Traffic classes of operations between hosts in virtual time: each message is posted in the class of its operation, and
// results, matching and agreement do not depend on classes.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/sim/random.h"
#include "runtime/group/calls_test.h"
#include "tests/service_callers.h"
#include "tests/sim_job.h"
#include "transports/forwarding_port_test.h"

namespace aiacc {
namespace {

using sim::error_of;
using sim::SimJob;

constexpr TrafficClass kClasses[] = {TrafficClass::kControl, TrafficClass::kLatency, TrafficClass::kBulk,
                                     TrafficClass::kBackground};

// A port that notes the classes of matched messages.
class NotingPort final : public ForwardingPort {
 public:
  using Noted = std::map<MessageKind, std::set<TrafficClass>>;
  NotingPort(std::unique_ptr<MessagePort> port, Noted& noted, int& latency)
      : ForwardingPort(std::move(port)), noted_(noted), latency_(latency) {}

  void note_latency() noexcept override {
    ++latency_;
    ForwardingPort::note_latency();
  }
  void post(int to, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override {
    if (header.kind <= MessageKind::kData) noted_[header.kind].insert(header.traffic);
    ForwardingPort::post(to, header, pieces, completion);
  }

 private:
  Noted& noted_;
  int& latency_;
};

// Ranks on hosts, with what their ports have noted.
struct NotingJob {
  explicit NotingJob(const std::vector<std::uint32_t>& hosts)
      : noted(hosts.size()),
        latency(hosts.size()),
        job(hosts, 1, {}, [this](std::unique_ptr<MessagePort> port) -> std::unique_ptr<MessagePort> {
          const std::size_t rank = made++;
          return std::make_unique<NotingPort>(std::move(port), noted[rank], latency[rank]);
        }) {
    for (NotingPort::Noted& each : noted) each.clear();
  }
  void expect_success() {
    job.finish();
    for (const auto& rank : job.ranks) {
      for (const auto& operation : rank->operations) EXPECT_EQ(error_of(*operation).message(), "");
    }
  }

  std::vector<NotingPort::Noted> noted;
  std::vector<int> latency;  // how often each port was told that latency is in use
  std::size_t made = 0;
  SimJob job;
};

// A port whose library carries shorter chunks than others.
class ShortChunks final : public ForwardingPort {
 public:
  static constexpr std::size_t kBytes = 70'000;
  ShortChunks(std::unique_ptr<MessagePort> port, std::size_t& longest)
      : ForwardingPort(std::move(port)), longest_(longest) {}
  std::size_t chunk_bytes() const noexcept override { return kBytes; }
  void post(int to, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override {
    longest_ = std::max<std::size_t>(longest_, header.length);
    ForwardingPort::post(to, header, pieces, completion);
  }

 private:
  std::size_t& longest_;
};

CallOptions in_class(TrafficClass traffic) {
  CallOptions options;
  options.traffic_class = traffic;
  return options;
}

Call class_message_of(Collective kind, std::size_t count, int peer) {
  Call call;
  call.kind = kind;
  call.count = call.recv_count = count;
  call.root = call.from = peer;
  return call;
}

constexpr std::size_t kLong = 600'000;  // more than goes without RTS and CTS

TEST(TrafficClasses, ByDefaultShortMessagesAreLatencyAndPayloadsBulk) {
  NotingJob world({0, 1});
  for (auto& rank : world.job.ranks) {
    rank->sum(10);
    rank->sum(kLong);
  }
  world.expect_success();
  for (const NotingPort::Noted& noted : world.noted) {
    for (const auto& [kind, classes] : noted) {
      EXPECT_EQ(classes, std::set{kind == MessageKind::kData ? TrafficClass::kBulk : TrafficClass::kLatency});
    }
    EXPECT_EQ(noted.size(), 4u) << "eager, RTS, CTS, data";
  }
}

TEST(TrafficClasses, NoChunkIsLongerThanThePortsAre) {
  std::size_t longest = 0;
  SimJob job({0, 1}, 1, {}, [&](std::unique_ptr<MessagePort> port) -> std::unique_ptr<MessagePort> {
    return std::make_unique<ShortChunks>(std::move(port), longest);
  });
  for (auto& rank : job.ranks) rank->sum(kLong);
  job.finish();
  for (const auto& rank : job.ranks) EXPECT_EQ(error_of(*rank->operations[0]).message(), "");
  EXPECT_EQ(longest, ShortChunks::kBytes);

  longest = 0;
  std::vector<std::unique_ptr<Store>> stores;
  for (int rank = 0; rank < job.size(); ++rank)
    stores.push_back(std::make_unique<Store>(job[rank].context->services(), job.view, rank, std::size_t{1} << 20));
  ServiceBytes answer;
  Stop stop;
  Task<void> asking = stores[0]->ask(1, some_bytes(200'000, 0), &answer, stop);
  asking.start();
  ASSERT_TRUE(job.world.run_while_not([&] { return asking.done(); }));
  asking.take();
  EXPECT_EQ(longest, ShortChunks::kBytes) << "of service messages";
}

TEST(TrafficClasses, AllMessagesOfACollectiveAreInItsClass) {
  for (const TrafficClass traffic : kClasses) {
    for (const std::vector<std::uint32_t>& hosts : {std::vector<std::uint32_t>{0, 1, 2}, {0, 0, 1, 1}}) {
      NotingJob world(hosts);
      for (auto& rank : world.job.ranks) {
        rank->sum(10, in_class(traffic));
        rank->sum(kLong, in_class(traffic));
      }
      world.expect_success();
      for (const NotingPort::Noted& noted : world.noted) {
        for (const auto& [kind, classes] : noted) EXPECT_EQ(classes, std::set{traffic});
        EXPECT_GE(noted.size(), 3u)
            << "RTS, CTS, data, and eager unless a short payload goes through another member of the host";
      }
    }
  }
}

TEST(TrafficClasses, AGroupHasAClassForCallsThatNameNone) {
  NotingJob world({0, 1});
  std::vector<float> sent(1, 1.0f), got(1);
  for (auto& rank : world.job.ranks) {
    rank->context->world().set_traffic_class(TrafficClass::kBackground);
    rank->sum(10);
    rank->sum(kLong);
  }
  world.job[0].start(class_message_of(Collective::kSend, 1, 1), buffer_of(sent), {}, {});
  world.job[1].start(class_message_of(Collective::kRecv, 1, 0), {}, buffer_of(got), {});
  world.expect_success();
  for (const NotingPort::Noted& noted : world.noted) {
    for (const auto& [kind, classes] : noted) EXPECT_EQ(classes, std::set{TrafficClass::kBackground});
    EXPECT_EQ(noted.size(), 4u) << "eager, RTS, CTS, data";
  }
  for (NotingPort::Noted& each : world.noted) each.clear();
  for (auto& rank : world.job.ranks) rank->sum(10, in_class(TrafficClass::kLatency));
  world.expect_success();
  EXPECT_EQ(world.noted[0].at(MessageKind::kEager), std::set{TrafficClass::kLatency});
}

TEST(TrafficClasses, AllMessagesBetweenTwoRanksAreInTheirClass) {
  for (const TrafficClass traffic : kClasses) {
    NotingJob world({0, 1});
    std::vector<float> sent(kLong, 1.0f), got[2] = {std::vector<float>(kLong), std::vector<float>(kLong)};
    int sender = -1;
    for (int rank = 0; rank < 2; ++rank) {
      world.job[rank].start(class_message_of(Collective::kSendrecv, kLong, 1 - rank), buffer_of(sent),
                            buffer_of(got[rank]), in_class(traffic));
    }
    world.expect_success();
    world.job[0].start(class_message_of(Collective::kSend, kLong, 1), buffer_of(sent), {}, in_class(traffic));
    Call any = class_message_of(Collective::kRecvAny, kLong, 0);
    any.sender = &sender;
    world.job[1].start(any, {}, buffer_of(got[1]), in_class(traffic));
    world.expect_success();
    EXPECT_EQ(sender, 0);
    EXPECT_EQ(got[0].back() + got[1].back(), 2.0f);
    for (const NotingPort::Noted& noted : world.noted) {
      for (const auto& [kind, classes] : noted) EXPECT_EQ(classes, std::set{traffic});
      EXPECT_EQ(noted.size(), 3u) << "RTS, CTS, data";
    }
  }
}

// Each rank keeps to its own class.
TEST(TrafficClasses, OfTheRanksOfACollectiveMayDiffer) {
  for (const std::size_t count : {std::size_t{3}, std::size_t{5'000}, kLong}) {
    NotingJob world({0, 1, 2, 2});
    for (std::size_t rank = 0; rank < 4; ++rank) {
      for (std::size_t i = 0; i < 5; ++i) {
        world.job.ranks[rank]->sum(count, in_class(kClasses[rank % 4]));
      }
    }
    world.expect_success();
    for (std::size_t rank = 0; rank < 4; ++rank) {
      for (const std::vector<float>& data : world.job.ranks[rank]->data) {
        EXPECT_EQ(data, std::vector<float>(count, 4.0f));
      }
      for (const auto& [kind, classes] : world.noted[rank]) EXPECT_EQ(classes, std::set{kClasses[rank % 4]});
    }
  }
}

// Messages of one pair and tag match in the order of the calls, whichever class is faster, also when received from any rank.
TEST(TrafficClasses, DoNotChangeTheOrderOfMessages) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    sim::Random random(seed);
    SimJob job({0, 1}, seed);
    constexpr std::size_t kMessages = 30;
    std::vector<std::vector<float>> sent(kMessages), got(kMessages);
    std::vector<int> senders(kMessages, -1);
    for (std::size_t i = 0; i < kMessages; ++i) {
      const std::size_t count = random.below(2) == 0 ? 10 : 50'000;
      sent[i].assign(count, static_cast<float>(i));
      got[i].resize(count);
      job[0].start(class_message_of(Collective::kSend, count, 1), buffer_of(sent[i]), {},
                   in_class(kClasses[random.below(4)]));
      Call recv = class_message_of(seed % 2 == 0 ? Collective::kRecvAny : Collective::kRecv, count, 0);
      recv.sender = &senders[i];
      // Some receives are posted before the message comes, others after.
      if (random.below(2) == 0) job.world.run_until(after(job.world.now(), std::chrono::microseconds(50)));
      job[1].start(recv, {}, buffer_of(got[i]), in_class(kClasses[random.below(4)]));
    }
    job.finish();
    for (const auto& rank : job.ranks) {
      for (const auto& operation : rank->operations) EXPECT_EQ(error_of(*operation).message(), "");
    }
    EXPECT_EQ(got, sent);
  }
}

// The times at which the first and the second of two operations end: a long one, and one that is called later.
std::pair<Duration, Duration> times_of_two(const CallOptions& first, const CallOptions& second) {
  SimJob job({0, 1});
  for (auto& rank : job.ranks) {
    rank->sum(4'000'000, first);
    rank->sum(300'000, second);
  }
  job.finish();
  for (const auto& operation : job[0].operations) EXPECT_EQ(error_of(*operation).message(), "");
  const std::vector<Record> records = job[0].context->recorder().last();
  EXPECT_EQ(records.size(), 2u);
  return {records[0].ended - job.began, records[1].ended - job.began};
}

TEST(TrafficClasses, AnOperationOvertakesALongOneOfALessUrgentClass) {
  CallOptions urgent;
  urgent.priority = 1;
  const auto [first, plain] = times_of_two({}, {});
  for (const auto& [before, after] : {std::pair(CallOptions{}, urgent),
                                      {CallOptions{}, in_class(TrafficClass::kLatency)},
                                      {in_class(TrafficClass::kLatency), in_class(TrafficClass::kControl)},
                                      {urgent, in_class(TrafficClass::kControl)}}) {
    const auto [long_one, short_one] = times_of_two(before, after);
    EXPECT_LT(short_one, long_one) << "it is called last and ends first";
    EXPECT_LT(4 * short_one, 3 * plain) << "than without classes";
  }
}

// By the operations that ask for it, not by short messages.
TEST(TrafficClasses, APortIsToldThatLatencyIsInUse) {
  CallOptions urgent;
  urgent.priority = 1;
  for (const auto& [options, times] : {std::pair(CallOptions{}, 0),
                                       {in_class(TrafficClass::kBulk), 0},
                                       {in_class(TrafficClass::kLatency), 2},
                                       {urgent, 2}}) {
    NotingJob world({0, 1});
    for (auto& rank : world.job.ranks) {
      rank->sum(10, options);
      rank->sum(kLong, options);
    }
    world.expect_success();
    EXPECT_EQ(world.latency, std::vector<int>(2, times));
  }
}

TEST(TrafficClasses, PriorityDoesNothingBesideAClass) {
  CallOptions both = in_class(TrafficClass::kBulk);
  both.priority = 1;
  EXPECT_EQ(both.traffic(), OperationTraffic::all_in(TrafficClass::kBulk));
}

}  // namespace
}  // namespace aiacc
