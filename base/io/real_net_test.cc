#include "base/io/real_net.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/io/descriptor_passing.h"
#include "base/io/limits.h"
#include "base/io/net_conformance.h"
#include "base/io/real_fixture.h"

namespace aiacc::io {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(Real, NetConformance, RealFixture);

using net_conformance::Bytes;
using net_conformance::read_once;
using net_conformance::write_bytes;

Error error_of_parse(const std::string& text) {
  try {
    Address::parse(text);
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::kOk, text + " was taken");
}

TEST(Address, TextFormsComeBack) {
  for (const char* text : {"local:aiacc-1", "local:a:b", "tcp:127.0.0.1:0", "tcp:192.0.2.1:65535", "tcp:[::1]:80",
                           "tcp:[2001:db8::1]:4242"}) {
    EXPECT_EQ(Address::parse(text).text(), text);
  }
}

TEST(Address, BadOnesAreRefusedWithASentence) {
  for (const char* text :
       {"", "local:", "udp:1.2.3.4:5", "tcp:1.2.3.4", "tcp:1.2.3.4:", "tcp:1.2.3.4:65536", "tcp:1.2.3.4:x",
        "tcp:host:1", "tcp:::1:80", "tcp:[1.2.3.4]:80", "tcp:[]:80", "tcp:1.2.3.4:-1"}) {
    const Error error = error_of_parse(text);
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.message();
    EXPECT_NE(error.message().find(std::string("'") + text + "'"), std::string::npos) << error.message();
  }
}

TEST(RealNet, ALocalNameThatIsTooLongIsRefusedWithBothNumbers) {
  RealFixture fixture;
  try {
    fixture.net().listen(Address::local(std::string(108, 'x')));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("108"), std::string::npos);
    EXPECT_NE(error.message().find("107"), std::string::npos);
  }
}

TEST(RealNet, AnIpv4PeerOfAListenerForBothFamiliesHasItsUsualAddress) {
  RealFixture fixture;
  const auto listener = fixture.net().listen(Address::parse("tcp:[::]:0"));
  const auto accept_one = [&]() -> Task<std::string> {
    Stop stop;
    const auto caller = co_await fixture.net().connect(Address::tcp("127.0.0.1", listener->address().port), stop);
    const auto called = co_await listener->accept(stop);
    co_return called->describe();
  };
  const std::string name = fixture.run(accept_one());
  EXPECT_EQ(Address::parse(name).name, "127.0.0.1") << name;
}

TEST(RealNet, APeerIdentityIsTheKernels) {
  RealFixture fixture;
  auto [left, right] = stream_pair(fixture.loop(), "pair");
  EXPECT_EQ(left->peer_identity()->pid, getpid());
  EXPECT_EQ(left->peer_identity()->uid, getuid());
}

// Every user of the machine can connect to a local socket, and can keep its queue full.
TEST(RealNet, AFullQueueOfCallersLeavesRoomForTimersAndDescriptors) {
  struct LimitAlarm final : Timer {
    explicit LimitAlarm(const int& count) : accepted(count) {}
    void expired() noexcept override { after = accepted; }
    const int& accepted;
    int after = -1;
  };
  struct Bell final : Watch {
    explicit Bell(const int& count) : accepted(count) {}
    void ready(Ready) noexcept override { after = accepted; }
    const int& accepted;
    int after = -1;
  };
  constexpr int kCallers = 200;
  RealFixture fixture;
  RealLoop& loop = fixture.loop();
  const std::unique_ptr<Listener> listener = fixture.net().listen(fixture.places().front());
  std::vector<std::unique_ptr<Stream>> callers;
  for (int i = 0; i < kCallers; ++i) {
    Stop stop;
    callers.push_back(loop.run(fixture.net().connect(listener->address(), stop)));
  }
  int accepted = 0;
  LimitAlarm alarm(accepted);
  Bell bell(accepted);
  const Fd ready(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  loop.watch_edges(bell, ready.get(), true, false);
  loop.arm(alarm, loop.now());
  loop.run([](Listener* at, int* count) -> Task<void> {
    Stop stop;
    for (; *count < kCallers; ++*count) co_await at->accept(stop);
  }(listener.get(), &accepted));
  bell.unwatch();
  EXPECT_LE(alarm.after, 1);
  EXPECT_LT(bell.after, kCallers / 2);
}

// Bytes that arrive while nobody reads, and an end of stream that arrives with the last of them, are noticed.
TEST(RealNet, AStreamThatExpectsAnswersMissesNothing) {
  RealFixture fixture;
  auto [left, right] = stream_pair(fixture.loop(), "pair");
  right->expect_answers();
  Stop stop;
  Bytes into(100);
  const auto late = [&](bool last) -> std::size_t {  // writes while the reader waits
    auto reading = read_once(*right, into, stop);
    reading.start();
    for (int i = 0; i < 3; ++i) fixture.loop().look();
    EXPECT_FALSE(reading.done());
    fixture.run(write_bytes(*left, net_conformance::pattern(50, 1), stop));
    if (last) left->shutdown_write();
    fixture.loop().run_until([&reading] { return reading.done(); });
    return reading.take();
  };
  EXPECT_EQ(late(false), 50u);
  EXPECT_EQ(late(false), 50u);
  fixture.run(write_bytes(*left, net_conformance::pattern(50, 1), stop));
  EXPECT_EQ(fixture.run(read_once(*right, into, stop)), 50u);
  EXPECT_EQ(late(true), 50u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fixture.run(read_once(*right, into, stop)), 0u);
}

TEST(Adopt, APipeCarriesBytesAndItsEnd) {
  RealFixture fixture;
  FdPair ends = make_pipe();
  EXPECT_GT(ends.first.get(), 3);
  auto reader = adopt(fixture.loop(), std::move(ends.first), "the pipe");
  auto writer = adopt(fixture.loop(), std::move(ends.second), "the pipe");
  Stop stop;
  Bytes into(100);
  fixture.run(write_bytes(*writer, net_conformance::pattern(50, 1), stop));
  EXPECT_EQ(fixture.run(read_once(*reader, into, stop)), 50u);
  writer->shutdown_write();
  EXPECT_EQ(fixture.run(read_once(*reader, into, stop)), 0u);
}

TEST(Adopt, AWriteToAPipeWithoutAReaderFailsAndRaisesNoSignal) {
  RealFixture fixture;
  FdPair ends = make_pipe();
  auto writer = adopt(fixture.loop(), std::move(ends.second), "standard output");
  ends.first.reset();
  Stop stop;
  try {
    fixture.run(write_bytes(*writer, Bytes(10), stop));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kPeerFailed);
    EXPECT_NE(error.message().find("standard output"), std::string::npos);
  }
}

Task<void> fill_and_drain(RealLoop& loop, Stream& reader, Stream& writer, const Bytes& sent, Bytes& seen) {
  Stop stop;
  Scope scope(loop, stop);
  scope.spawn(net_conformance::write_in_pieces(writer, sent, scope.stop()));
  scope.spawn(net_conformance::read_to_end(reader, seen, scope.stop()));
  co_await scope.join();
}

TEST(AdoptInherited, NeitherChangesTheFlagsOfASharedPipeNorLosesBytes) {
  RealFixture fixture;
  FdPair ends = make_pipe();
  const int flags = fcntl(ends.second.get(), F_GETFL);
  auto reader = adopt(fixture.loop(), std::move(ends.first), "the pipe");
  auto writer = adopt_inherited(fixture.loop(), ends.second.get(), "the pipe");
  EXPECT_EQ(fcntl(ends.second.get(), F_GETFL), flags);
  ends.second.reset();  // otherwise the reader never sees the end
  const Bytes sent = net_conformance::pattern(300'000, 7);
  Bytes seen;
  fixture.run(fill_and_drain(fixture.loop(), *reader, *writer, sent, seen));
  EXPECT_TRUE(seen == sent);
}

TEST(AdoptInherited, WithoutADescriptionOfItsOwnAFullPipeDoesNotBlockTheLoop) {
  RealFixture fixture;
  FdPair ends = make_pipe();
  auto reader = adopt(fixture.loop(), std::move(ends.first), "the pipe");
  FdStream writer(fixture.loop(), std::move(ends.second), FdStream::Method::kSharedFlags, "the pipe");
  const Bytes sent = net_conformance::pattern(300'000, 8);
  Bytes seen;
  fixture.run(fill_and_drain(fixture.loop(), *reader, writer, sent, seen));
  EXPECT_TRUE(seen == sent);
}

TEST(AdoptInherited, AFileIsWrittenWhereItsOffsetStands) {
  RealFixture fixture;
  Fd file(memfd_create("aiacc-test", MFD_CLOEXEC));
  ASSERT_EQ(write(file.get(), "ab", 2), 2);
  Stop stop;
  auto stream = adopt_inherited(fixture.loop(), file.get(), "a file");
  fixture.run(write_bytes(*stream, Bytes(200'000, std::byte{'c'}), stop));
  EXPECT_EQ(lseek(file.get(), 0, SEEK_END), 200'002);
}

Task<void> send_with_descriptor(Stream& stream, Bytes bytes, int descriptor, Stop& stop) {
  const std::size_t sent = co_await send_descriptor(stream, bytes, descriptor, stop);
  co_await write_all(stream, std::span(bytes).subspan(sent), stop);
}

TEST(DescriptorPassing, ADescriptorArrivesWithTheFirstByte) {
  RealFixture fixture;
  auto [left, right] = stream_pair(fixture.loop(), "pair");
  accept_descriptors(*right);
  Fd memory(memfd_create("aiacc-test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(memory.get(), 4242), 0);
  Stop stop;
  fixture.run(write_bytes(*left, Bytes(3), stop));
  fixture.run(send_with_descriptor(*left, Bytes(10'000, std::byte{1}), memory.get(), stop));
  Bytes into(3);
  fixture.run(net_conformance::read_full(*right, into, stop));
  EXPECT_FALSE(take_descriptor(*right));
  into.resize(1);
  fixture.run(net_conformance::read_full(*right, into, stop));
  const Fd received = take_descriptor(*right);
  ASSERT_TRUE(received);
  EXPECT_EQ(lseek(received.get(), 0, SEEK_END), 4242);
  EXPECT_NE(fcntl(received.get(), F_GETFD) & FD_CLOEXEC, 0);
  into.resize(9'999);
  EXPECT_TRUE(fixture.run(net_conformance::read_full(*right, into, stop)));
  EXPECT_FALSE(take_descriptor(*right));
}

TEST(DescriptorPassing, UnaskedOnesAreDropped) {
  RealFixture fixture;
  auto [left, right] = stream_pair(fixture.loop(), "pair");
  FdPair pipe = make_pipe();
  Stop stop;
  fixture.run(send_with_descriptor(*left, Bytes(4), pipe.second.get(), stop));
  pipe.second.reset();
  Bytes into(4);
  fixture.run(net_conformance::read_full(*right, into, stop));
  EXPECT_FALSE(take_descriptor(*right));
  EXPECT_EQ(read(pipe.first.get(), into.data(), 1), 0) << "a write end is still open somewhere";
}

TEST(DescriptorPassing, TcpSaysThatItCannot) {
  RealFixture fixture;
  const std::unique_ptr<Listener> listener = fixture.net().listen(Address::tcp("127.0.0.1", 0));
  const net_conformance::Pair pair = fixture.run(net_conformance::connected(fixture.loop(), fixture.net(), *listener));
  EXPECT_THROW(accept_descriptors(*pair.client), Error);
}

TEST(Limits, NoDescriptorsLeftNamesTheLimitAndTheCure) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit tight = before;
  tight.rlim_cur = 3;
  setrlimit(RLIMIT_NOFILE, &tight);
  Error seen(Code::kOk, "nothing was thrown");
  try {
    make_pipe();
  } catch (const Error& error) {
    seen = error;
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(seen.code(), Code::kSystem);
  EXPECT_NE(seen.message().find("used up its 3 file descriptors"), std::string::npos) << seen.message();
  EXPECT_NE(seen.message().find("ulimit -n"), std::string::npos) << seen.message();
}

}  // namespace
}  // namespace aiacc::io
