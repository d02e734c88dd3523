// Who else may listen at the port of a rank that lost its connection: what counts as its life, and what as its end.
#include "runtime/watch/liveness_probe.h"

#include "runtime/rendezvous/rendezvous_dial.h"
#include "runtime/rendezvous/rendezvous_sim_world_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using namespace rendezvous_sim;

constexpr std::uint64_t kJob = 4711;
const io::Address kPort = io::Address::tcp("192.0.2.2", 1001);

// What is done with a connection; it is closed when this returns.
using Answer = std::function<Task<void>(io::Stream&, Node&, Stop&)>;

// Rank 0 looks for rank 1.
struct Watched {
  explicit Watched(Answer its_answer) : answer(std::move(its_answer)) {
    listener = there.net.listen(kPort);
    if (answer) {
      listening.emplace(listen());
      listening->start();
    }
    watching.emplace(watch());
    watching->start();
  }
  ~Watched() {
    stop.request(std::make_exception_ptr(Error(Code::kAborted, "the simulation is over")));
    here.loop.bury();
    there.loop.bury();
  }
  Task<void> listen() {
    for (;;) {
      std::unique_ptr<io::Stream> stream = co_await listener->accept(stop);
      ++calls;
      try {
        co_await answer(*stream, there, stop);
      } catch (const Error&) {
        if (stop.requested()) throw;
      }
    }
  }
  Task<void> watch() {
    const RendezvousDialer dialer{here.loop, here.net, here.entropy, secret_of('s'), kJob, 0};
    how = co_await watch_until_gone(dialer, 1, kPort, stop);
  }
  void pass(Duration time) { world.run_until(after(world.now(), time)); }
  bool ended() const { return watching->done(); }

  sim::World world{7};
  sim::SimNetwork network{world};
  Node here{world, network, 0};
  Node there{world, network, 1};
  Stop stop;
  Answer answer;
  std::unique_ptr<io::Listener> listener;
  int calls = 0;
  std::string how;
  std::optional<Task<void>> listening, watching;
};

// As a rank's data port does.
Task<void> answer_as(io::Stream& stream, Node& node, char salt, std::int32_t rank, Stop& stop) {
  const wire::ListenerHandshake::Expected expected{wire::Purpose::kData, kJob, rank, 3};
  wire::ListenerHandshake handshake(secret_of(salt), expected, node.entropy);
  wire::HandshakeProgress heard;
  const bool proved = co_await wire::accept_proof(handshake, stream, stop, heard);
  if (!proved) co_return;
  const wire::Bytes verdict = handshake.decide(wire::Verdict::kBusy, "");
  co_await io::write_all(stream, verdict, stop);
}

// With the limit of a data port.
Task<void> answer_in_time(io::Stream& stream, Node& node, Stop& stop) {
  Stop limited(stop);
  const Deadline deadline(node.loop, after(node.loop.now(), wire::kHandshakeLimit), limited, "it says nothing");
  co_await answer_as(stream, node, 's', 1, limited);
}

Task<void> say(io::Stream& stream, std::string words, Stop& stop) {
  co_await io::write_all(stream, std::as_bytes(std::span(words)), stop);
  std::array<std::byte, 512> ignored{};
  co_await stream.read_some(ignored, stop);
}

Task<void> say_again(io::Stream& stream, Stop& stop) {
  std::array<std::byte, 512> said{};
  const std::size_t bytes = co_await stream.read_some(said, stop);
  const std::span<const std::byte> again = std::span(said).first(bytes);
  co_await io::write_all(stream, again, stop);
}

Task<void> drop() { co_return; }

Task<void> keep(Node& node, Stop& stop) { co_await sleep_for(node.loop, 10'000s, stop); }

TEST(SimLivenessProbe, ItsOwnProofIsOne) {
  Watched rank([](io::Stream& stream, Node& node, Stop& stop) { return answer_as(stream, node, 's', 1, stop); });
  rank.pass(60s);
  EXPECT_FALSE(rank.ended()) << rank.how;
  EXPECT_GT(rank.calls, 100);
  rank.world.kill(rank.there.loop.node());
  rank.pass(600ms);
  EXPECT_EQ(rank.how, "nobody listens at tcp:192.0.2.2:1001 any more");
}

// By somebody on the path. Each byte of a call in turn, of both directions.
TEST(SimLivenessProbe, ACallThatIsAlteredNowAndThenIsNotItsEnd) {
  Watched rank([](io::Stream& stream, Node& node, Stop& stop) { return answer_in_time(stream, node, stop); });
  std::uint64_t byte = 0;
  for (; rank.network.altered() == byte; ++byte) {
    rank.network.alter_next(byte);
    rank.pass(4s);
    ASSERT_FALSE(rank.ended()) << byte << ": " << rank.how;
  }
  EXPECT_GT(byte, 250u) << "what a call says";
}

TEST(SimLivenessProbe, AnUnauthenticatedPeersAnswerIsItsEnd) {
  struct {
    const char* says;
    Answer answer;
  } const unauthenticated_peers[] = {
      {"announces", [](io::Stream& stream, Node&, Stop& stop) { return say(stream, "SSH-2.0-OpenSSH_9\r\n", stop); }},
      {"the secret of the job that listens here is another one",
       [](io::Stream& stream, Node& node, Stop& stop) { return answer_as(stream, node, 'x', 1, stop); }},
      {"not the rank or not the job that was called",
       [](io::Stream& stream, Node& node, Stop& stop) { return answer_as(stream, node, 's', 2, stop); }},
      {"a message of type 201", [](io::Stream& stream, Node&, Stop& stop) { return say_again(stream, stop); }},
  };
  for (const auto& unauthenticated : unauthenticated_peers) {
    Watched rank(unauthenticated.answer);
    rank.pass(2s);
    ASSERT_TRUE(rank.ended()) << unauthenticated.says;
    EXPECT_EQ(rank.calls, kMostUnauthenticated);
    EXPECT_EQ(rank.how.find("an unauthenticated peer listens at tcp:192.0.2.2:1001 now: "), 0u) << rank.how;
    EXPECT_NE(rank.how.find(unauthenticated.says), std::string::npos) << rank.how;
  }
}

// An answer that the rank gave earlier, to another hello.
TEST(SimLivenessProbe, AnOldProofIsAnUnauthenticatedPeersAnswer) {
  const wire::ListenerHandshake::Expected expected{wire::Purpose::kData, kJob, 1, 3};
  sim::World world(1);
  sim::SimNetwork network(world);
  Node node(world, network, 0);
  wire::DialerHandshake dialer(secret_of('s'), {wire::Purpose::kData, kJob, 0, 1}, node.entropy);
  wire::ListenerHandshake listener(secret_of('s'), expected, node.entropy);
  wire::Bytes old = listener.answer(dialer.hello()).frame;
  listener.check(dialer.prove(old, ""));
  const wire::Bytes verdict = listener.decide(wire::Verdict::kBusy, "");
  old.insert(old.end(), verdict.begin(), verdict.end());
  const std::string words(reinterpret_cast<const char*>(old.data()), old.size());
  Watched rank([&words](io::Stream& stream, Node&, Stop& stop) { return say(stream, words, stop); });
  rank.pass(2s);
  EXPECT_NE(rank.how.find("the other end does not know the secret of this job"), std::string::npos) << rank.how;
}

TEST(SimLivenessProbe, WhoSaysNothingMayBeARankThatComputes) {
  Watched computes(nullptr);
  Watched keeps([](io::Stream&, Node& node, Stop& stop) { return keep(node, stop); });
  for (Watched* rank : {&computes, &keeps}) {
    rank->pass(3600s);
    EXPECT_FALSE(rank->ended()) << rank->how;
    rank->network.break_streams(0, 1);
    rank->network.cut(0, 1);
    rank->pass(2s);
    rank->network.heal(0, 1);
    rank->pass(3600s);
    EXPECT_FALSE(rank->ended()) << rank->how;
    rank->world.kill(rank->there.loop.node());
    rank->pass(600ms);
    EXPECT_EQ(rank->how, "nobody listens at tcp:192.0.2.2:1001 any more");
  }
}

TEST(SimLivenessProbe, WhoCannotBeReachedMayLiveUntilItsHostSaysOtherwise) {
  Watched rank([](io::Stream& stream, Node& node, Stop& stop) { return answer_as(stream, node, 's', 1, stop); });
  rank.pass(1s);
  rank.network.break_streams(0, 1);
  rank.network.cut(0, 1);
  rank.pass(3600s);
  EXPECT_FALSE(rank.ended()) << rank.how;
  rank.network.heal(0, 1);
  rank.pass(1s);
  const int calls = rank.calls;
  rank.pass(3600s);
  EXPECT_GT(rank.calls, calls + 1000) << "it answers again";
  rank.network.cut(0, 1);
  rank.world.kill(rank.there.loop.node());
  rank.pass(3600s);
  EXPECT_FALSE(rank.ended()) << rank.how;
  rank.network.heal(0, 1);
  rank.pass(4s);
  EXPECT_EQ(rank.how, "nobody listens at tcp:192.0.2.2:1001 any more");
}

// Calls that are dropped count from the first that is taken.
TEST(SimLivenessProbe, WhoDropsEveryCallBehindABrokenPathHasItsTimeOnceItIsReached) {
  Watched rank([](io::Stream&, Node&, Stop&) { return drop(); });
  rank.network.cut(0, 1);
  rank.pass(100s);
  rank.network.heal(0, 1);
  rank.pass(4s);
  EXPECT_FALSE(rank.ended()) << rank.how;
  rank.pass(5s);
  EXPECT_EQ(rank.how.find("nothing answers at tcp:192.0.2.2:1001 for "), 0u) << rank.how;
}

TEST(SimLivenessProbe, WhoDropsEveryCallIsNoSign) {
  Watched rank([](io::Stream&, Node&, Stop&) { return drop(); });
  rank.pass(4s);
  EXPECT_FALSE(rank.ended()) << rank.how;
  rank.pass(2s);
  EXPECT_EQ(rank.how.find("nothing answers at tcp:192.0.2.2:1001 for 5."), 0u) << rank.how;
}

}  // namespace
}  // namespace aiacc
