// Threads as ranks on "hosts" of one process, which share nothing but TCP over loopback: real contexts from their start by a
// fixed list to their end.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/task/lane.h"
#include "base/wire/codec.h"
#include "base/wire/control_messages.h"
#include "runtime/bootstrap/bootstrap_list_test.h"
#include "runtime/context.h"
#include "runtime/group/calls_test.h"
#include "runtime/group/group.h"
#include "runtime/group/groups.h"
#include "runtime/real_context.h"

namespace aiacc {
namespace {

using Placement = std::vector<std::uint32_t>;
using Body = std::function<void(RealContext& context)>;

constexpr std::uint64_t kSliceBytes = 16 << 20;

class TcpJob {
 public:
  explicit TcpJob(const Placement& hosts) : rendezvous_(static_cast<std::ptrdiff_t>(hosts.size())) {
    std::vector<Member> members;
    for (const std::uint32_t host : hosts) members.push_back({static_cast<std::uint32_t>(members.size()), 0, host});
    world_ = std::make_shared<const View>(0x77, 0, 0, 0, std::move(members));
    for (int host = 0; host < world_->hosts(); ++host) {
      const int here = static_cast<int>(world_->ranks_on_host(host).size());
      const auto nonce = static_cast<std::uint64_t>(host) + 1;
      places_.hosts.push_back({"host" + std::to_string(host), {"127.0.0.1"}});
      const HostSegment segment = HostSegment::create(here, kSliceBytes, nonce);
      segments_.push_back(here == 1 ? nullptr : SegmentMapping::map(segment.descriptor(), nonce, here));
    }
    places_.ports.resize(hosts.size());
    io::RealEntropy entropy;
    places_.secret = wire::Secret::fresh(entropy);
  }

  // Every rank: is born, runs `body`, and leaves.
  void run(const Body& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_->size(); ++rank) {
      threads.emplace_back([this, rank, &body] {
        try {
          const auto context =
              RealContext::join(RuntimeConfig{}, [&](io::RealLoop& loop) { return make_provider(loop, rank); });
          body(*context);
          context->leave();
        } catch (const Error& error) {
          if (!leaving_may_fail) ADD_FAILURE() << "rank " << rank << ": " << error.message();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  bool leaving_may_fail = false;

 private:
  std::unique_ptr<Bootstrap> make_provider(io::RealLoop& loop, int rank) {
    io::RealNet net(loop);
    ListedRank me;
    me.listener = net.listen(io::Address::tcp("127.0.0.1", 0));
    places_.ports[static_cast<std::size_t>(rank)].ports = {wire::tcp_address(me.listener->address().port)};
    rendezvous_.arrive_and_wait();
    me.rank = rank;
    me.world = world_;
    me.places = places_;
    me.job_name = "test";
    me.segment = segments_[static_cast<std::size_t>(world_->host_of(rank))];
    return std::make_unique<ListBootstrap>(loop, std::move(me));
  }

  ViewPtr world_;
  JobPlaces places_;
  std::vector<std::shared_ptr<SegmentMapping>> segments_;
  std::barrier<> rendezvous_;
};

class TcpHosts : public testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(Placements, TcpHosts,
                         ::testing::Values(Placement{0, 1}, Placement{0, 0, 1, 1}, Placement{0, 1, 0, 2, 0}));

TEST_P(TcpHosts, RanksAreBornReduceAndLeave) {
  TcpJob job(GetParam());
  const auto size = static_cast<float>(GetParam().size());
  job.run([size](RealContext& context) {
    Group& world = context.world();
    for (int round = 0; round < 20; ++round) {
      for (const std::size_t count : {1, 1000, 100'000}) {
        std::vector<float> data(count, static_cast<float>(world.rank() + 1));
        world.run(call_of(Collective::kAllreduce, count), buffer_of(data), buffer_of(data), nullptr);
        ASSERT_EQ(data.front(), size * (size + 1) / 2);
        ASSERT_EQ(data.back(), data.front());
      }
      world.run(Call{}, {}, {}, nullptr);
    }
  });
}

// Those of the fast path are recorded when they are over, and have taken no time.
bool took_short_path(RealContext& context) {
  for (const Record& record : context.context().recorder().last()) {
    if (record.outcome.state == Record::State::kEnded && record.began == record.ended) return true;
  }
  return false;
}

TEST(TcpHostsShort, CallsThatAreAnsweredSoonNeedNoOperation) {
  TcpJob job({0, 1});
  job.run([](RealContext& context) {
    Group& world = context.world();
    bool taken = false;
    for (int round = 1; !taken && round < 10'000; ++round) {
      float sum = static_cast<float>(round * (world.rank() + 1)), least = sum;
      const Buffer buffer{reinterpret_cast<std::byte*>(&sum), sizeof sum};
      world.run(call_of(Collective::kAllreduce, 1), buffer, buffer, nullptr);
      ASSERT_EQ(sum, static_cast<float>(3 * round));
      world.run(Call{}, {}, {}, nullptr);
      // All ranks must go on until it is true on all of them.
      least = took_short_path(context) ? 1 : 0;
      Call every = call_of(Collective::kAllreduce, 1);
      every.reduction.op = ReduceOp::kMin;
      const Buffer one{reinterpret_cast<std::byte*>(&least), sizeof least};
      world.run(every, one, one, nullptr);
      taken = least == 1;
    }
    EXPECT_TRUE(taken);
  });
}

TEST(TcpHostsShort, WhoIsLateIsWaitedFor) {
  TcpJob job({0, 1, 2, 3});
  job.run([](RealContext& context) {
    Group& world = context.world();
    for (int round = 0; round < 40; ++round) {
      if (world.rank() == round % 4) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      float sum = static_cast<float>(world.rank() + round);
      const Buffer buffer{reinterpret_cast<std::byte*>(&sum), sizeof sum};
      world.run(call_of(Collective::kAllreduce, 1), buffer, buffer, nullptr);
      ASSERT_EQ(sum, static_cast<float>(6 + 4 * round));
    }
  });
}

// Rank 1 leaves the job, as after an exception of its program, and rank 0 waits for it in a group of the two.
TEST(TcpHostsLeaving, WhoLeavesIsNamedToWhomeverWaitsForItInAGroup) {
  for (const Placement& hosts : {Placement{0, 1, 2}, Placement{0, 0}, Placement{0, 0, 1}}) {
    TcpJob job(hosts);
    job.run([](RealContext& context) {
      GroupOrder order;
      order.ranks = {0, 1};
      order.sort = GroupOrder::Sort::kEngine;
      if (context.world().rank() > 1) return;
      Group& group = context.make_group(context.world(), order);
      std::vector<float> data(1, 1.0f);
      const Call call = call_of(Collective::kAllreduce, 1);
      group.run(call, buffer_of(data), buffer_of(data), nullptr);
      if (context.world().rank() == 0) {
        CallOptions options;
        options.timeout = std::chrono::seconds(100);
        try {
          group.run(call, buffer_of(data), buffer_of(data), &options);
          ADD_FAILURE() << "nobody else has called it";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::kMismatch) << error.message();
          EXPECT_EQ(error.peer(), 1) << error.message();
          EXPECT_NE(error.message().find("rank 1 has freed the group"), std::string::npos) << error.message();
        }
      }
      group.handles_gone();
    });
  }
}

// Rank 1 leaves because the world has ended, and rank 4 still waits for it in a group in which they have exchanged nothing: neither tells
// the other of the world's end.
TEST(TcpHostsLeaving, WhoHasLeftAnEndedWorldIsNamedInItsOtherGroups) {
  TcpJob job({0, 1, 2, 3, 4, 5, 6, 7});
  job.leaving_may_fail = true;  // of the others, who are in the world's last barrier
  std::atomic<int> waits{0};
  job.run([&](RealContext& context) {
    Group& world = context.world();
    const int rank = world.rank();
    if (rank == 0) {
      while (waits.load() < 2) std::this_thread::yield();
      return context.abort_group(world, "its end");
    }
    if (rank != 1 && rank != 4) return;
    GroupOrder order;
    order.ranks = {1, 4};
    Group& group = context.make_group(world, order);
    float one = 1;
    const Buffer buffer{reinterpret_cast<std::byte*>(&one), sizeof one};
    CallOptions options;
    options.timeout = std::chrono::seconds(20);  // its address refuses connections for 30 s before it counts as lost
    ++waits;
    if (rank == 1) {
      EXPECT_THROW(world.run(message_of(Collective::kRecv, 0), buffer, buffer, &options), Error);
    } else {
      try {
        group.run(message_of(Collective::kRecv, 0), buffer, buffer, &options);  // rank 1 of the world
        ADD_FAILURE() << "nobody has sent it";
      } catch (const Error& error) {
        EXPECT_NE(error.code(), Code::kTimeout) << error.message();
        EXPECT_EQ(error.peer(), 0) << error.message();
      }
    }
    group.handles_gone();
  });
}

// Rank 1 finalizes, and rank 0 still receives from it.
TEST(TcpHostsLeaving, WhoFinalizesBeforeItSendsIsNamed) {
  for (const Placement& hosts : {Placement{0, 0}, Placement{0, 1}}) {
    TcpJob job(hosts);
    job.leaving_may_fail = true;  // rank 1 is told too
    job.run([&](RealContext& context) {
      if (context.world().rank() == 1) return;
      float one = 1;
      const Buffer buffer{reinterpret_cast<std::byte*>(&one), sizeof one};
      CallOptions options;
      options.timeout = std::chrono::seconds(100);
      try {
        context.world().run(message_of(Collective::kRecv, 1), buffer, buffer, &options);
        ADD_FAILURE() << "nobody has sent it";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kMismatch) << error.message();
        EXPECT_EQ(error.peer(), 1) << error.message();
        EXPECT_NE(error.message().find("rank 1 has called aiacc_finalize"), std::string::npos) << error.message();
      }
    });
  }
}

TEST(TcpHostsShort, DisagreementIsNamedToAll) {
  for (const Collective other : {Collective::kAllreduce, Collective::kBarrier, Collective::kBroadcast}) {
    TcpJob job({0, 1});
    job.run([other](RealContext& context) {
      Group& world = context.world();
      std::vector<float> data(2, 1.0f);
      const Buffer buffer = buffer_of(data);
      for (int round = 0; round < 50; ++round) world.run(call_of(Collective::kAllreduce, 2), buffer, buffer, nullptr);
      const Call call = world.rank() == 0 ? call_of(Collective::kAllreduce, 2) : call_of(other, 1);
      try {
        world.run(call, buffer.slice(0, call.bytes()), buffer.slice(0, call.bytes()), nullptr);
        world.run(Call{}, {}, {}, nullptr);  // the root of a broadcast needs nobody
        ADD_FAILURE() << "nobody can be done";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kMismatch) << error.message();
        EXPECT_NE(error.message().find("allreduce of 2 fp32"), std::string::npos) << error.message();
      }
    });
  }
}

TEST(TcpHostsShort, ARankThatGivesUpEndsTheCallOfTheOthers) {
  TcpJob job({0, 1});
  job.run([](RealContext& context) {
    Group& world = context.world();
    float one = 1;
    const Buffer buffer{reinterpret_cast<std::byte*>(&one), sizeof one};
    for (int round = 0; round < 50; ++round) world.run(call_of(Collective::kAllreduce, 1), buffer, buffer, nullptr);
    if (world.rank() == 1) {
      Lane::Hold hold(context.context().lane());
      ASSERT_TRUE(hold.owns());
      world.abort_by_user("had enough");
    }
    try {
      world.run(call_of(Collective::kAllreduce, 1), buffer, buffer, nullptr);
      ADD_FAILURE() << "nobody can be done";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kAborted);
      EXPECT_NE(error.message().find("had enough"), std::string::npos) << error.message();
    }
  });
}

// A rank that only sends waits for nobody, and has to read all the same.
TEST(TcpHostsShort, ARankThatOnlySendsHearsThatAnotherOneGaveUp) {
  for (const auto& [kind, root] :
       {std::pair{Collective::kBroadcast, 0}, std::pair{Collective::kScatter, 0}, std::pair{Collective::kGather, 1}}) {
    TcpJob job({0, 1});
    std::atomic<bool> gave_up = false;
    job.run([&, its_kind = kind, its_root = root](RealContext& context) {
      Group& world = context.world();
      const Call call = call_of(its_kind, 1, its_root);
      std::vector<float> send(call.kind == Collective::kScatter ? 2 : 1),
          recv(call.kind == Collective::kGather ? 2 : 1);
      for (int round = 0; round < 50; ++round) world.run(call, buffer_of(send), buffer_of(recv), nullptr);
      if (world.rank() == 1) {
        {
          Lane::Hold hold(context.context().lane());
          ASSERT_TRUE(hold.owns());
          world.abort_by_user("had enough");
        }
        gave_up = true;
        return;
      }
      for (int i = 0; !gave_up && i < 10'000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      try {
        for (int round = 0; round < 200; ++round) {
          world.run(call, buffer_of(send), buffer_of(recv), nullptr);
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ADD_FAILURE() << "it did not hear";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kAborted);
        EXPECT_NE(error.message().find("had enough"), std::string::npos) << error.message();
      }
    });
  }
}

// Small integers, so that sums are exact.
float value_of(int round, int rank, std::size_t block, std::size_t element) {
  return static_cast<float>(round + 100 * rank) + static_cast<float>(10 * block + element % 7);
}

// Of rank `rank`, after a call of that round.
float expected_of(const Call& call, int round, int size, int rank, std::size_t element) {
  const auto own = static_cast<std::size_t>(rank);
  const std::size_t block = element / call.count, within = element % call.count;
  if (call.kind == Collective::kBroadcast) return value_of(round, call.root, 0, within);
  if (call.kind == Collective::kScatter) return value_of(round, call.root, own, within);
  if (call.kind != Collective::kReduceScatter) return value_of(round, static_cast<int>(block), 0, within);
  float sum = 0;
  for (int other = 0; other < size; ++other) sum += value_of(round, other, own, within);
  return sum;
}

// So many calls that some take the short path and some are operations.
void run_rounds(Group& world, Collective kind, std::size_t count) {
  constexpr int kRounds = 36;
  const auto size = static_cast<std::size_t>(world.size());
  const bool many_in = kind == Collective::kScatter || kind == Collective::kReduceScatter;
  const bool many_out = kind == Collective::kGather || kind == Collective::kAllgather;
  std::vector<float> send(many_in ? size * count : count), recv(many_out ? size * count : count);
  for (int round = 0; round < kRounds; ++round) {
    const Call call = call_of(kind, count, round % world.size());
    for (std::size_t i = 0; i < send.size(); ++i) send[i] = value_of(round, world.rank(), i / count, i % count);
    std::fill(recv.begin(), recv.end(), -1.0f);
    world.run(call, buffer_of(send), buffer_of(recv), nullptr);
    if (kind == Collective::kGather && world.rank() != call.root) continue;
    for (std::size_t i = 0; i < recv.size(); ++i) {
      ASSERT_EQ(recv[i], expected_of(call, round, world.size(), world.rank(), i))
          << "kind " << static_cast<int>(kind) << ", round " << round << ", element " << i << " of " << recv.size();
    }
  }
}

TEST(TcpHostsShort, CallsOfEachKindAndLengthGiveTheirResults) {
  for (const Placement& hosts : {Placement{0, 1}, Placement{0, 1, 2}}) {
    TcpJob job(hosts);
    job.run([](RealContext& context) {
      for (const std::size_t bytes : {8, 4096, 20'000, 32'768, 65'536}) {
        for (const Collective kind : {Collective::kGather, Collective::kScatter, Collective::kAllgather,
                                      Collective::kReduceScatter, Collective::kBroadcast}) {
          run_rounds(context.world(), kind, bytes / sizeof(float));
        }
      }
    });
  }
}

TEST_P(TcpHosts, MessagesGoRoundAndManyOperationsAreInFlight) {
  TcpJob job(GetParam());
  job.run([](RealContext& context) {
    Group& world = context.world();
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    std::vector<std::vector<float>> sums;
    std::vector<std::unique_ptr<GroupOperation>> running;
    for (const std::size_t count : {5, 70'000, 300, 1}) {
      auto& data = sums.emplace_back(count, 1.0f);
      running.push_back(
          world.prepare(call_of(Collective::kAllreduce, count), buffer_of(data), buffer_of(data), nullptr));
      context.context().lane().start(*running.back());
    }
    for (const std::size_t count : {1, 50'000}) {
      std::vector<float> mine(count, static_cast<float>(world.rank())), got(count);
      auto sending = world.prepare(call_of(Collective::kSend, count, next), buffer_of(mine), {}, nullptr);
      context.context().lane().start(*sending);
      world.run(call_of(Collective::kRecv, count, previous), {}, buffer_of(got), nullptr);
      ASSERT_TRUE(context.context().lane().wait(*sending));
      ASSERT_EQ(sending->error(), nullptr);
      ASSERT_EQ(got.front(), static_cast<float>(previous));
      ASSERT_EQ(got.back(), got.front());
    }
    for (auto& operation : running) {
      ASSERT_TRUE(context.context().lane().wait(*operation));
      ASSERT_EQ(operation->error(), nullptr);
    }
    for (const auto& data : sums) ASSERT_EQ(data.back(), static_cast<float>(world.size()));
  });
}

TEST_P(TcpHosts, DisagreementIsNamedToAll) {
  TcpJob job(GetParam());
  const int odd = static_cast<int>(GetParam().size()) - 1;
  job.run([odd](RealContext& context) {
    Group& world = context.world();
    std::vector<float> data(3000);
    const Call call = call_of(Collective::kAllreduce, world.rank() == odd ? 2999 : 3000);
    try {
      Buffer buffer = buffer_of(data);
      buffer.bytes = call.bytes();
      world.run(call, buffer, buffer, nullptr);
      ADD_FAILURE() << "nobody can be done";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kMismatch);
      EXPECT_NE(error.message().find("allreduce of 2999 fp32"), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("allreduce of 3000 fp32"), std::string::npos) << error.message();
    }
  });
}

// A port that has brought the notice of an abort before anybody listens to it.
class QuickPort final : public MessagePort {
 public:
  explicit QuickPort(const View& world) : world_(world) {}
  void set_receiver(MessageReceiver& receiver) noexcept override {
    wire::GroupAborted notice;
    notice.code = static_cast<std::int32_t>(Code::kMismatch);
    notice.rank = 1;
    notice.sentence = "rank 1 called something else";
    wire::Bytes bytes;
    wire::Writer(bytes).put(wire::GroupAborted::kType);
    wire::Writer(bytes).put(notice);
    MessageHeader header;
    header.kind = MessageKind::kControl;
    header.member = world_.member(1).id;
    header.group = world_.id();
    header.length = header.total = bytes.size();
    const MessageReceiver::Placement place = receiver.on_header(1, header);
    ASSERT_EQ(place.into.bytes, bytes.size());
    std::memcpy(place.into.data, bytes.data(), bytes.size());
    receiver.on_placed(1, header);
  }
  void post(int, const MessageHeader&, std::span<const Buffer>, SendCompletion&) noexcept override {}
  void release(int) noexcept override {}
  void withdraw(SendCompletion&) noexcept override {}
  void revoke(int, const MessageHeader&) noexcept override {}
  void lose(int, std::exception_ptr) noexcept override {}
  Task<void> leave(Duration, Stop&) override { co_return; }
  void close() noexcept override {}

 private:
  const View& world_;
};

class QuickBootstrap final : public Bootstrap {
 public:
  Task<BootstrapResult> join(Stop&) override {
    BootstrapResult bootstrapped;
    bootstrapped.world = std::make_shared<const View>(0x77, 0, 0, 0, std::vector<Member>{{0, 0, 0}, {1, 0, 1}});
    bootstrapped.port = std::make_unique<QuickPort>(*bootstrapped.world);
    bootstrapped.host_name = "host0";
    co_return bootstrapped;
  }
  void observe(BootstrapObserver&) noexcept override {}
  Task<void> leave(Instant, Stop&) override { co_return; }
};

TEST(QuickEnd, AWorldThatOthersEndedBeforeThisRankWasBornSaysWhy) {
  const auto context =
      RealContext::join(RuntimeConfig{}, [](io::RealLoop&) { return std::make_unique<QuickBootstrap>(); });
  try {
    context->world().run(Call{}, {}, {}, nullptr);
    ADD_FAILURE() << "the world is over";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kMismatch);
    EXPECT_STREQ(error.what(), "rank 1 called something else");
  }
}

}  // namespace
}  // namespace aiacc
