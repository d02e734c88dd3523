#include "base/wire/channel.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io/descriptor_passing.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/task/scope.h"
#include "base/wire/agent_messages.h"

namespace aiacc::wire {
namespace {

class ChannelTest : public testing::Test {
 protected:
  ChannelTest() {
    auto [left, right] = io::stream_pair(loop_, "the pair");
    left_ = std::make_unique<Channel>(loop_, std::move(left));
    right_ = std::make_unique<Channel>(loop_, std::move(right));
  }
  std::optional<Frame> receive() {
    Stop stop;
    return loop_.run(right_->receive(stop));
  }
  io::RealLoop loop_;
  std::unique_ptr<Channel> left_;
  std::unique_ptr<Channel> right_;
};

TEST_F(ChannelTest, MessagesArriveAsTheyWereSent) {
  Stop stop;
  Welcome welcome;
  welcome.host_name = "node-7";
  welcome.hosts_of_ranks = {0, 0, 1, 1};
  loop_.run(left_->send(welcome, stop));
  loop_.run(left_->send(Leave{}, stop));
  const auto first = receive();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->as<Welcome>().hosts_of_ranks, welcome.hosts_of_ranks);
  EXPECT_EQ(first->as<Welcome>().host_name, "node-7");
  EXPECT_EQ(receive()->type, Leave::kType);
  left_.reset();
  EXPECT_FALSE(receive().has_value());
}

TEST_F(ChannelTest, AnEndInTheMiddleOfAMessageIsAnError) {
  Stop stop;
  Bytes half = encode_frame(Refused{1, "a sentence"});
  half.resize(half.size() / 2);
  loop_.run(io::write_all(left_->stream(), half, stop));
  left_.reset();
  try {
    receive();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kProtocol);
    EXPECT_NE(error.message().find("the pair closed in the middle"), std::string::npos) << error.message();
  }
}

Task<void> send_many(Channel& channel, int sender, int count, Stop& stop) {
  for (int i = 0; i < count; ++i) {
    const RankLost message{sender,
                           std::string(static_cast<std::size_t>(i * 37 % 3000), static_cast<char>('a' + sender))};
    co_await channel.send(message, stop);
  }
}

Task<void> receive_many(Channel& channel, int senders, int count, Stop& stop) {
  std::vector<int> seen(static_cast<std::size_t>(senders));
  for (int i = 0; i < senders * count; ++i) {
    const std::optional<Frame> frame = co_await channel.receive(stop);
    const RankLost message = frame->as<RankLost>();
    int& mine = seen[static_cast<std::size_t>(message.rank)];
    const std::string expected(static_cast<std::size_t>(mine * 37 % 3000), static_cast<char>('a' + message.rank));
    if (message.sentence != expected) throw Error(Code::kProtocol, "frames were mixed or changed places");
    ++mine;
  }
}

Task<void> many_senders(Loop& loop, Channel& from, Channel& to) {
  Stop stop;
  Scope scope(loop, stop);
  for (int sender = 0; sender < 5; ++sender) scope.spawn(send_many(from, sender, 200, scope.stop()));
  scope.spawn(receive_many(to, 5, 200, scope.stop()));
  co_await scope.join();
}

TEST_F(ChannelTest, ManySendersMixNoFrames) { loop_.run(many_senders(loop_, *left_, *right_)); }

Task<void> stop_soon(Loop& loop, Stop& stop, Stop& target) {
  co_await sleep_for(loop, std::chrono::milliseconds(5), stop);
  target.request(std::make_exception_ptr(Error(Code::kTimeout, "too slow")));
}

Task<int> send_until_stopped(Loop& loop, Channel& channel) {
  Stop outer;
  Stop target;
  Scope scope(loop, outer);
  scope.spawn(stop_soon(loop, scope.stop(), target));
  int begun = 0;
  try {
    for (;; ++begun) {
      const Refused message{begun, std::string(100'000, 'x')};
      co_await channel.send(message, target);
    }
  } catch (const Error&) {
  }
  co_await scope.join();
  co_return begun;
}

Task<void> send_after_stop(Loop& loop, Channel& from, Channel& to, int begun) {
  Stop stop;
  Scope scope(loop, stop);
  scope.spawn(send_many(from, 0, 1, scope.stop()));
  for (int i = 0; i <= begun; ++i) {
    const std::optional<Frame> frame = co_await to.receive(stop);
    if (frame->as<Refused>().code != i) throw Error(Code::kProtocol, "a frame is missing");
  }
  const std::optional<Frame> last = co_await to.receive(stop);
  last->as<RankLost>();
  co_await scope.join();
}

TEST_F(ChannelTest, AStoppedSendBreaksNoFrame) {
  const int begun = loop_.run(send_until_stopped(loop_, *left_));
  EXPECT_GT(begun, 0);
  loop_.run(send_after_stop(loop_, *left_, *right_, begun));
}

TEST_F(ChannelTest, ADescriptorArrivesWithItsMessage) {
  Stop stop;
  io::accept_descriptors(right_->stream());
  Fd memory(memfd_create("aiacc-test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(memory.get(), 12345), 0);
  loop_.run(left_->send(Leave{}, stop));
  loop_.run(left_->send(Welcome{}, memory.get(), stop));
  loop_.run(left_->send(Gone{}, stop));
  memory.reset();
  receive();
  EXPECT_EQ(receive()->type, Welcome::kType);
  const Fd received = io::take_descriptor(right_->stream());
  ASSERT_TRUE(received);
  EXPECT_EQ(lseek(received.get(), 0, SEEK_END), 12345);
  EXPECT_EQ(receive()->type, Gone::kType);
  EXPECT_FALSE(io::take_descriptor(right_->stream()));
}

Task<std::vector<std::size_t>> lengths_read(io::Stream& stream, std::uint32_t limit) {
  Stop stop;
  std::vector<std::size_t> lengths;
  for (;;) {
    const std::optional<Frame> frame = co_await read_frame(stream, limit, stop);
    if (!frame) co_return lengths;
    lengths.push_back(decode<Refused>(*frame).sentence.size());
  }
}
Task<void> send_and_end(Channel& channel, std::vector<std::size_t> lengths, Stop& stop) {
  for (const std::size_t length : lengths) {
    const Refused message{0, std::string(length, 'm')};
    co_await channel.send(message, stop);
  }
  channel.stream().shutdown_write();
}
Task<std::vector<std::size_t>> read_frames(Loop& loop, Channel& from, io::Stream& to, std::vector<std::size_t> lengths,
                                           std::uint32_t limit) {
  Stop stop;
  Scope scope(loop, stop);
  scope.spawn(send_and_end(from, std::move(lengths), scope.stop()));
  std::vector<std::size_t> seen = co_await lengths_read(to, limit);
  co_await scope.join();
  co_return seen;
}

TEST_F(ChannelTest, AStreamIsReadFrameByFrameToItsEnd) {
  const std::vector<std::size_t> lengths{0, 1, 65'530, 65'531, 200'000, 3'000'000, 5};
  EXPECT_EQ(loop_.run(read_frames(loop_, *left_, right_->stream(), lengths, kLargestFrameBytes)), lengths);
}

TEST_F(ChannelTest, AFrameAboveTheReadersLimitIsRefused) {
  Stop stop;
  loop_.run(left_->send(Refused{0, std::string(1000, 'm')}, stop));
  EXPECT_THROW(loop_.run(read_frame(right_->stream(), 1000, stop)), Error);
}

}  // namespace
}  // namespace aiacc::wire
