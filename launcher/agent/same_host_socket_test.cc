#include "launcher/agent/same_host_socket.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/io/machine_mark.h"
#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"

namespace aiacc::launcher {
namespace {

class SameHostSocketTest : public testing::Test, private Root::Owner {
 protected:
  ~SameHostSocketTest() override { end(); }
  void open(std::uint32_t user) {
    same_host_socket_ = std::make_unique<SameHostSocket>(net_, entropy_, user);
    Root::Owner& owner = *this;
    root_ = std::make_unique<Root>(loop_, same_host_socket_->serve(stop_), owner);
    root_->start();
  }
  void end() {
    if (!root_) return;
    stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the test is over")));
    loop_.run_until([this] { return ended_; });
    root_.reset();
    same_host_socket_.reset();
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
  std::unique_ptr<SameHostSocket> same_host_socket_;
  std::unique_ptr<Root> root_;
};

TEST_F(SameHostSocketTest, IsFoundByItsUser) {
  open(::geteuid());
  EXPECT_EQ(same_host_socket_->token().size(), 32u);
  EXPECT_NE(same_host_socket_->name().find("aiacc-"), std::string::npos);
  for (int again = 0; again < 3; ++again)
    EXPECT_EQ(told(same_host_socket_->name(), ::geteuid()), same_host_socket_->token());
}

TEST_F(SameHostSocketTest, IsNotWhatAnotherUserHas) {
  open(::geteuid());
  EXPECT_EQ(told(same_host_socket_->name(), ::geteuid() + 1), "");
}

TEST_F(SameHostSocketTest, TellsNothingToAnotherUser) {
  open(::geteuid() + 1);
  EXPECT_EQ(told(same_host_socket_->name(), ::geteuid()), "");
}

TEST_F(SameHostSocketTest, IsGoneWithItsOwner) {
  open(::geteuid());
  const std::string name = same_host_socket_->name();
  end();
  EXPECT_EQ(told(name, ::geteuid()), "");
}

TEST_F(SameHostSocketTest, ListensNoMoreOnceItIsClosed) {
  open(::geteuid());
  same_host_socket_->close();
  loop_.run_until([this] { return ended_; });
  EXPECT_EQ(told(same_host_socket_->name(), ::geteuid()), "");
  root_.reset();
}

TEST_F(SameHostSocketTest, MayBeClosedBeforeItServes) {
  SameHostSocket early(net_, entropy_, ::geteuid());
  early.close();
  EXPECT_EQ(told(early.name(), ::geteuid()), "");
  loop_.run(early.serve(stop_));
}

TEST(MachineMark, IsTheSameForEveryProcessHere) {
  EXPECT_EQ(io::machine_mark(), io::machine_mark());
  EXPECT_FALSE(io::machine_mark().empty());
}

}  // namespace
}  // namespace aiacc::launcher
