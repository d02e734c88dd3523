#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/io/real_net.h"

namespace aiacc {
namespace {

class FixedClock final : public io::Clock {
 public:
  Instant now() noexcept override { return {}; }
  std::int64_t wall_ns() noexcept override { return 1'700'000'000'123'456'789; }
};

class LogTest : public testing::Test {
 protected:
  LogTest() : pipe_(io::make_pipe()) { fcntl(pipe_.first.get(), F_SETFL, O_NONBLOCK); }
  std::string written() {
    std::string text(100'000, '\0');
    const ssize_t got = read(pipe_.first.get(), text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }
  FixedClock clock_;
  io::FdPair pipe_;
};

TEST_F(LogTest, ALineHasTimeLevelWhoAndPart) {
  Logger log(LogLevels::parse("info"), "rank 3 on node-7", clock_, pipe_.second.get());
  AIACC_LOG(log, kNet, kWarn, "lost {} of {}", 2, 3);
  EXPECT_EQ(written(), "2023-11-14T22:13:20.123456 aiacc warn [rank 3 on node-7] net: lost 2 of 3\n");
}

TEST_F(LogTest, WhatIsOffIsNeitherWrittenNorEvaluated) {
  Logger log(LogLevels::parse("warn,memory=trace,launch=off"), "x", clock_, pipe_.second.get());
  int evaluated = 0;
  AIACC_LOG(log, kNet, kInfo, "{}", ++evaluated);
  AIACC_LOG(log, kLaunch, kError, "{}", ++evaluated);
  EXPECT_EQ(evaluated, 0);
  EXPECT_EQ(written(), "");
  AIACC_LOG(log, kMemory, kTrace, "{}", ++evaluated);
  AIACC_LOG(log, kNet, kError, "{}", ++evaluated);
  EXPECT_EQ(evaluated, 2);
}

TEST_F(LogTest, WordsOfOthersCannotForgeLines) {
  Logger log(LogLevels::parse("warn"), "x\ny", clock_, pipe_.second.get());
  AIACC_LOG(log, kCore, kError, "{}", "a\nb\x1b[31m");
  AIACC_LOG(log, kCore, kError, "{}",
            "c\xc2\x9b"
            "31m\xff\u202ed");
  const std::string text = written();
  EXPECT_NE(text.find("[x\\x0ay] core: a\\x0ab\\x1b[31m\n"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(c\xc2\x9b31m\xff\xe2\x80\xaed)"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST_F(LogTest, LinesOfThreadsDoNotMix) {
  Logger log(LogLevels::parse("info"), "x", clock_, pipe_.second.get());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log, t] {
      for (int i = 0; i < 100; ++i) AIACC_LOG(log, kCore, kInfo, "{}", std::string(20, static_cast<char>('a' + t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = written();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 400);
  for (std::size_t at = text.find("core: "); at != std::string::npos; at = text.find("core: ", at + 1)) {
    EXPECT_EQ(text.substr(at + 6, 21), std::string(20, text[at + 6]) + "\n");
  }
}

TEST_F(LogTest, AFullOrClosedPipeDropsLinesAndStopsNobody) {
  fcntl(pipe_.second.get(), F_SETFL, O_NONBLOCK);
  Logger log(LogLevels::parse("info"), "x", clock_, pipe_.second.get());
  for (int i = 0; i < 100; ++i) AIACC_LOG(log, kCore, kInfo, "{}", std::string(2000, 'x'));
  const std::uint64_t dropped = log.dropped();
  EXPECT_GT(dropped, 0u);
  pipe_.first.reset();
  AIACC_LOG(log, kCore, kInfo, "nobody reads this");
  EXPECT_EQ(log.dropped(), dropped + 1);
}

}  // namespace
}  // namespace aiacc
