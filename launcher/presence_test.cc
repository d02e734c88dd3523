#include "launcher/presence.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/io/machine_mark.h"
#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"

namespace aiacc::launcher {
namespace {

class PresenceTest : public testing::Test, private Root::Owner {
 protected:
  ~PresenceTest() override { end(); }
  void open(std::uint32_t user) {
    presence_ = std::make_unique<Presence>(net_, entropy_, user);
    Root::Owner& owner = *this;
    root_ = std::make_unique<Root>(loop_, presence_->serve(stop_), owner);
    root_->start();
  }
  void end() {
    if (!root_) return;
    stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the test is over")));
    loop_.run_until([this] { return ended_; });
    root_.reset();
    presence_.reset();
  }
  std::string told(const std::string& name, std::uint32_t user) {
    Stop stop;
    return loop_.run(token_at(loop_, net_, name, user, stop));
  }
  void root_ended(Root&, std::exception_ptr) noexcept override { ended_ = true; }

  io::RealLoop loop_;
  io::RealNet net_{loop_};
  io::RealEntropy entropy_;
  Stop stop_;
  bool ended_ = false;
  std::unique_ptr<Presence> presence_;
  std::unique_ptr<Root> root_;
};

TEST_F(PresenceTest, IsFoundByItsUser) {
  open(::geteuid());
  EXPECT_EQ(presence_->token().size(), 32u);
  EXPECT_NE(presence_->name().find("aiacc-"), std::string::npos);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(told(presence_->name(), ::geteuid()), presence_->token());
}

TEST_F(PresenceTest, IsNotWhatAnotherUserHas) {
  open(::geteuid());
  EXPECT_EQ(told(presence_->name(), ::geteuid() + 1), "");
}

TEST_F(PresenceTest, TellsNothingToAnotherUser) {
  open(::geteuid() + 1);
  EXPECT_EQ(told(presence_->name(), ::geteuid()), "");
}

TEST_F(PresenceTest, IsGoneWithItsOwner) {
  open(::geteuid());
  const std::string name = presence_->name();
  end();
  EXPECT_EQ(told(name, ::geteuid()), "");
}

TEST(MachineMark, IsTheSameForEveryProcessHere) {
  EXPECT_EQ(io::machine_mark(), io::machine_mark());
  EXPECT_FALSE(io::machine_mark().empty());
}

}  // namespace
}  // namespace aiacc::launcher
