// Forwarding of standard input: how much is read, and what happens to it when nobody reads.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/task/scope.h"
#include "base/wire/launch_messages.h"
#include "launcher/stdio/input_feed.h"
#include "launcher/stdio/input_source.h"

namespace aiacc::launcher {
namespace {

std::string some_bytes(std::size_t count) {
  std::string text;
  for (std::uint64_t i = 0; i < count; ++i) text += static_cast<char>((i * 0x9e3779b97f4a7c15) >> 56);
  return text;
}

int left_in(const Fd& pipe) {
  int bytes = -1;
  return ::ioctl(pipe.get(), FIONREAD, &bytes) == 0 ? bytes : -1;
}

// A task that is stopped at the end of the test if it has not ended.
class Running final : private Root::Owner {
 public:
  Running(io::RealLoop& loop, Task<void> (*begin)(void* of, Stop& stop), void* of)
      : loop_(loop), root_(loop, begin(of, stop_), owner()) {
    root_.start();
  }
  ~Running() {
    stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the test is over")));
    loop_.run_until([this] { return over_; });
  }
  bool over() const { return over_; }

 private:
  Root::Owner& owner() { return *this; }
  void root_ended(Root&, std::exception_ptr) noexcept override { over_ = true; }

  io::RealLoop& loop_;
  Stop stop_;
  bool over_ = false;
  Root root_;
};

class Source : public testing::Test, private InputSource::Owner {
 protected:
  Source() : pipe_(io::make_pipe()), to_read_(::dup(pipe_.first.get())) {
    from_ = io::adopt(loop_, std::move(pipe_.first), "the input");
    source_.emplace(loop_, *from_, owner());
  }
  InputSource::Owner& owner() { return *this; }
  static Task<void> begin(void* source, Stop& stop) { return static_cast<InputSource*>(source)->run(stop); }
  void write(const std::string& text) {
    ASSERT_EQ(::write(pipe_.second.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void input_read(std::string bytes) override {
    if (bytes.empty()) ++ends_;
    read_ += bytes;
  }
  void input_failed(const Error& error) override { failure_ = error.message(); }

  io::RealLoop loop_;
  io::FdPair pipe_;
  Fd to_read_;
  std::unique_ptr<io::Stream> from_;
  std::optional<InputSource> source_;
  std::string read_, failure_;
  int ends_ = 0;
};

TEST_F(Source, ReadsWhatThereIsCreditForAndNoMore) {
  write(some_bytes(1000));
  const Running running(loop_, begin, &*source_);
  for (int i = 0; i < 10; ++i) loop_.turn(loop_.now());
  EXPECT_EQ(left_in(to_read_), 1000) << "there is no credit yet";
  source_->add_credit(300);
  source_->add_credit(1);
  loop_.run_until([this] { return read_.size() >= 301; });
  for (int i = 0; i < 10; ++i) loop_.turn(loop_.now());
  EXPECT_EQ(read_, some_bytes(1000).substr(0, 301));
  EXPECT_EQ(left_in(to_read_), 699);
  source_->add_credit(1'000'000);
  pipe_.second.reset();
  loop_.run_until([&] { return running.over(); });
  EXPECT_EQ(read_, some_bytes(1000));
  EXPECT_EQ(ends_, 1);
  EXPECT_EQ(failure_, "");
}

TEST_F(Source, ReadsNothingAfterCloseAndReportsNoEnd) {
  const Running running(loop_, begin, &*source_);
  source_->add_credit(10);
  for (int i = 0; i < 10; ++i) loop_.turn(loop_.now());
  EXPECT_FALSE(running.over());
  source_->close();
  loop_.run_until([&] { return running.over(); });
  EXPECT_EQ(ends_, 0);
  const Running again(loop_, begin, &*source_);
  EXPECT_TRUE(again.over());
}

TEST_F(Source, ReportsAReadErrorAsAnEndWithItsReason) {
  const std::unique_ptr<io::Stream> folder =
      io::adopt_inherited(loop_, Fd(::open("/", O_RDONLY | O_CLOEXEC)).get(), "standard input");
  InputSource source(loop_, *folder, owner());
  source.add_credit(10);
  const Running running(loop_, begin, &source);
  loop_.run_until([&] { return running.over(); });
  EXPECT_EQ(ends_, 1);
  EXPECT_EQ(failure_, "reading from standard input: Is a directory");
}

class Feed : public testing::Test {
 protected:
  Feed() : pipe_(io::make_pipe()) {
    std::tie(ours_, theirs_) = io::stream_pair(loop_, "aiaccrun");
    sender_.emplace(loop_, *theirs_);
    feed_.emplace(loop_, io::adopt(loop_, std::move(pipe_.second), "the rank's input"), *sender_);
    sending_.emplace(
        loop_, [](void* sender, Stop& stop) { return static_cast<FrameSender*>(sender)->run(stop); }, &*sender_);
    feeding_.emplace(
        loop_, [](void* feed, Stop& stop) { return static_cast<InputFeed*>(feed)->run(stop); }, &*feed_);
  }
  wire::Frame next() {
    Stop patience;
    Deadline deadline(loop_, after(loop_.now(), std::chrono::seconds(10)), patience, "no message came");
    return loop_.run(frames().next(patience)).value_or(wire::Frame{});
  }
  FrameReader& frames() {
    if (!frames_) frames_.emplace(*ours_);
    return *frames_;
  }
  std::uint64_t credit() { return next().as<wire::InputCredit>().bytes; }
  // The next `count` bytes that the rank receives.
  std::string take(std::size_t count) {
    std::string text(count, '\0');
    std::size_t got = 0;
    while (got < count) {
      loop_.run_until([this] { return left_in(pipe_.first) > 0; });
      const ssize_t some = ::read(pipe_.first.get(), text.data() + got, count - got);
      if (some <= 0) break;
      got += static_cast<std::size_t>(some);
    }
    text.resize(got);
    return text;
  }

  io::RealLoop loop_;
  io::FdPair pipe_;
  std::unique_ptr<io::Stream> ours_, theirs_;
  std::optional<FrameSender> sender_;
  std::optional<InputFeed> feed_;
  std::optional<Running> sending_, feeding_;
  std::optional<FrameReader> frames_;
};

TEST_F(Feed, GivesBackTheCreditOfWhatTheRankTook) {
  const std::string sent = some_bytes(3 * InputFeed::kWindow);
  std::uint64_t given = credit();
  EXPECT_EQ(given, InputFeed::kWindow);
  std::string taken;
  for (std::size_t at = 0; at < sent.size();) {
    const std::size_t part = std::min<std::size_t>(given, sent.size() - at);
    feed_->add(sent.substr(at, part));
    given -= part;
    at += part;
    if (at == sent.size()) break;
    taken += take(InputFeed::kWindow / 4);
    given += credit();
  }
  feed_->add("");
  taken += take(sent.size() - taken.size());
  EXPECT_TRUE(taken == sent);
  loop_.run_until([this] { return feeding_->over(); });
  char byte = 0;
  EXPECT_EQ(::read(pipe_.first.get(), &byte, 1), 0) << "the end";
}

// Bytes that the rank's pipe has not taken wait in the agent, which holds at most one window.
TEST_F(Feed, GivesBackNoCreditForWhatWaits) {
  constexpr std::uint64_t kStep = InputFeed::kWindow / 8;
  const std::uint64_t capacity = static_cast<std::uint64_t>(::fcntl(pipe_.first.get(), F_GETPIPE_SZ));
  ASSERT_LT(capacity, InputFeed::kWindow);
  feed_->add(some_bytes(credit()));
  loop_.run_until([&] { return left_in(pipe_.first) == static_cast<int>(capacity); });
  std::uint64_t back = 0;
  while (back + kStep <= capacity) back += credit();
  EXPECT_EQ(back, capacity / kStep * kStep);
  take(kStep);
  EXPECT_EQ(credit(), kStep);
}

TEST_F(Feed, GivesBackNoCreditForEveryLine) {
  credit();
  feed_->add("a line\n");
  EXPECT_EQ(take(7), "a line\n");
  feed_->add("");
  loop_.run_until([this] { return feeding_->over(); });
  sender_->close();
  loop_.run_until([this] { return sending_->over(); });
  theirs_->shutdown_write();
  EXPECT_EQ(next().type, 0) << "nothing came";
}

TEST_F(Feed, TakesNoMoreThanItAskedFor) {
  const std::uint64_t given = credit();
  EXPECT_THROW(feed_->add(std::string(given + 1, 'a')), Error);
  feed_->add(std::string(given, 'a'));
  EXPECT_THROW(feed_->add("b"), Error);
}

TEST_F(Feed, RefusesBytesAfterTheEnd) {
  credit();
  feed_->add("");
  EXPECT_THROW(feed_->add("a"), Error);
}

TEST_F(Feed, ARankThatClosesItsInputIsNoError) {
  credit();
  pipe_.first.reset();
  feed_->add("in vain");
  EXPECT_EQ(next().type, wire::InputClosed::kType);
  feed_->add("this was on its way");
}

TEST_F(Feed, StopsWaitingForARankThatHasEnded) {
  const std::uint64_t given = credit();
  feed_->add(std::string(given, 'a'));
  feed_->close();
  wire::Frame frame = next();
  while (frame.type == wire::InputCredit::kType) frame = next();
  EXPECT_EQ(frame.type, wire::InputClosed::kType);
  loop_.run_until([this] { return feeding_->over(); });
}

}  // namespace
}  // namespace aiacc::launcher
