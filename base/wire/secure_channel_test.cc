#include "base/wire/secure_channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/wire/agent_messages.h"

namespace aiacc::wire {
namespace {

Secret secret_filled_with(int salt) {
  std::array<std::byte, Secret::kBytes> bytes;
  bytes.fill(static_cast<std::byte>(salt));
  return Secret(bytes);
}

// Two ends with an attacker in between, who sees and may change each frame from left to right.
class SecureChannelTest : public testing::Test {
 protected:
  SecureChannelTest() {
    auto [left, between_left] = io::stream_pair(loop_, "the left pair");
    auto [between_right, right] = io::stream_pair(loop_, "the right pair");
    left_ = std::make_unique<SecureChannel>(loop_, std::move(left), secret_filled_with(1), secret_filled_with(2));
    right_ = std::make_unique<SecureChannel>(loop_, std::move(right), secret_filled_with(2), secret_filled_with(1));
    from_left_ = std::make_unique<Channel>(loop_, std::move(between_left));
    to_right_ = std::make_unique<Channel>(loop_, std::move(between_right));
  }

  // Three messages and a farewell as they are on the wire: the begin of the stream, then four sealed frames.
  std::vector<Frame> said_by_left() {
    for (int rank = 0; rank < 3; ++rank) loop_.run(left_->send(RankLost{rank, "secret sentence"}, stop_));
    loop_.run(left_->farewell(stop_));
    std::vector<Frame> frames;
    for (int i = 0; i < 5; ++i) frames.push_back(*loop_.run(from_left_->receive(stop_)));
    return frames;
  }
  void pass_on(const std::vector<Frame>& frames) {
    for (const Frame& frame : frames) {
      if (frame.type == SealBegins::kType) {
        loop_.run(to_right_->send(frame.as<SealBegins>(), stop_));
      } else {
        loop_.run(to_right_->send(frame.as<Sealed>(), stop_));
      }
    }
  }
  // The ranks in the messages that the right end accepts until the farewell or an error, which is stored.
  std::vector<int> taken() {
    std::vector<int> ranks;
    try {
      while (const std::optional<Frame> frame = loop_.run(right_->receive(stop_))) {
        ranks.push_back(frame->as<RankLost>().rank);
      }
    } catch (const Error& error) {
      error_ = error;
    }
    return ranks;
  }

  io::RealLoop loop_;
  Stop stop_;
  std::unique_ptr<SecureChannel> left_, right_;
  std::unique_ptr<Channel> from_left_, to_right_;
  Error error_{Code::kOk, ""};
};

TEST_F(SecureChannelTest, MessagesComeInOrderUntilTheFarewell) {
  pass_on(said_by_left());
  EXPECT_EQ(taken(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(error_.code(), Code::kOk) << error_.message();
  EXPECT_FALSE(loop_.run(right_->receive(stop_))) << "and nothing after it";
}

TEST_F(SecureChannelTest, NothingIsReadableOnTheWay) {
  for (const Frame& frame : said_by_left()) {
    const std::string text(reinterpret_cast<const char*>(frame.body.data()), frame.body.size());
    EXPECT_EQ(text.find("secret sentence"), std::string::npos);
  }
}

TEST_F(SecureChannelTest, AChangedBitIsNoticed) {
  std::vector<Frame> frames = said_by_left();
  frames[2].body.back() ^= std::byte{1};
  pass_on(frames);
  EXPECT_EQ(taken(), (std::vector<int>{0}));
  EXPECT_EQ(error_.message(),
            "data from the right pair is not authentic: the other end did not send it at this position");
  EXPECT_EQ(error_.code(), Code::kProtocol);
}

TEST_F(SecureChannelTest, RepeatedDroppedAndExchangedMessagesAreNoticed) {
  for (const auto& harm : std::vector<std::function<void(std::vector<Frame>&)>>{
           [](std::vector<Frame>& frames) { frames.insert(frames.begin() + 2, frames[1]); },
           [](std::vector<Frame>& frames) { frames.erase(frames.begin() + 2); },
           [](std::vector<Frame>& frames) { std::swap(frames[2], frames[3]); }}) {
    SecureChannelTest_RepeatedDroppedAndExchangedMessagesAreNoticed_Test fresh;
    std::vector<Frame> frames = fresh.said_by_left();
    harm(frames);
    fresh.pass_on(frames);
    EXPECT_EQ(fresh.taken(), (std::vector<int>{0}));
    EXPECT_EQ(fresh.error_.code(), Code::kProtocol);
  }
}

TEST_F(SecureChannelTest, ACutIsNoFarewell) {
  std::vector<Frame> frames = said_by_left();
  frames.pop_back();
  pass_on(frames);
  to_right_.reset();
  EXPECT_EQ(taken(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(error_.message(), "the right pair closed the connection without a farewell");
}

TEST_F(SecureChannelTest, WhatTheOtherDirectionSealedIsNotTaken) {
  loop_.run(right_->send(RankLost{7, "mine"}, stop_));
  std::vector<Frame> frames;
  for (int i = 0; i < 2; ++i) frames.push_back(*loop_.run(to_right_->receive(stop_)));
  pass_on(frames);
  EXPECT_TRUE(taken().empty());
  EXPECT_EQ(error_.code(), Code::kProtocol);
}

TEST_F(SecureChannelTest, AStoppedSendTakesNothingFromTheStream) {
  Stop stopped;
  stopped.request(std::make_exception_ptr(Error(Code::kTimeout, "too late")));
  EXPECT_THROW(loop_.run(left_->send(RankLost{9, "never"}, stopped)), Error);
  pass_on(said_by_left());
  EXPECT_EQ(taken(), (std::vector<int>{0, 1, 2}));
}

TEST_F(SecureChannelTest, WhatIsTooShortForASealIsNotTaken) {
  std::vector<Frame> frames = said_by_left();
  Sealed stump;
  stump.bytes = std::string(16, 's');
  frames[2] = Frame{Sealed::kType, encode(stump)};
  pass_on(frames);
  EXPECT_EQ(taken(), (std::vector<int>{0}));
  EXPECT_EQ(error_.message(),
            "data from the right pair is not authentic: the other end did not send it at this position");
}

TEST_F(SecureChannelTest, AMessageThatIsTooLongSpoilsNoOther) {
  // The bytes around the sentence: the frame header, the other fields, and the seal.
  const RankLost longest{1, std::string(kLargestFrameBytes - 27 - kFrameHeaderBytes - 8 + 1, 'x')};
  Task<void> sending = left_->send(longest, stop_);
  sending.start();
  ASSERT_TRUE(sending.done()) << "it is being sent";
  try {
    sending.take();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message(), "a message of 67108838 bytes is too long to be sent encrypted; 67108837 is the most");
  }
  pass_on(said_by_left());
  EXPECT_EQ(taken(), (std::vector<int>{0, 1, 2}));
}

}  // namespace
}  // namespace aiacc::wire
