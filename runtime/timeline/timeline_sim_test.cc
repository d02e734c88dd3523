// One file of several ranks in virtual time, whichever rank begins first, and whichever ends.
#include "runtime/timeline/timeline.h"

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/json.h"
#include "tests/sim_job.h"

namespace aiacc::sim {
namespace {

using std::chrono::milliseconds;

class SimTimeline : public testing::Test {
 protected:
  ~SimTimeline() override { std::remove(path.c_str()); }
  Timeline& of(int rank) { return job[rank].context->timeline(); }
  void run(Duration span) {
    const Instant end = job.world.now() + span;
    job.world.run_while_not([&] { return job.world.now() > end; });
  }
  // From now to `span` later.
  void say(int rank, const char* name, Duration span) {
    Timeline& timeline = of(rank);
    timeline.span(timeline.row("row '" + std::string(name) + "'"), name, job.world.now(), job.world.now() + span);
  }
  void stop(int rank) {
    Stop none;
    Task<void> stopping = of(rank).stop(none);
    stopping.start();
    EXPECT_TRUE(job.world.run_while_not([&] { return stopping.done(); }));
    stopping.take();
  }
  Json file() const {
    std::ifstream stream(path);
    return Json::parse(std::string(std::istreambuf_iterator<char>(stream), {}));
  }
  // The spans of that name, by rank: their begin in microseconds.
  std::map<std::int64_t, double> read(const std::string& name) {
    const Json whole = file();
    std::map<std::int64_t, double> found;
    for (const Json& event : whole.items()) {
      if (event["name"].as_string() == name) found[event["pid"].as_integer()] = event["ts"].as_double();
    }
    return found;
  }

  SimJob job{{0, 0, 1, 2}};
  const std::string path = testing::TempDir() + "timeline_sim_test.json";
};

TEST_F(SimTimeline, RanksThatBeginEarlierAreInItFromTheirBegin) {
  for (const int rank : {1, 2, 3}) {
    of(rank).start("");
    say(rank, "early", milliseconds(1));
  }
  EXPECT_FALSE(of(0).on());
  const Instant said = job.world.now();
  run(milliseconds(350));
  const double before = static_cast<double>((job.world.now() - said).count()) / 1e3;
  of(0).start(path);
  EXPECT_TRUE(read("process_name").contains(0)) << "whole from the begin";
  for (int rank = 0; rank < 4; ++rank) say(rank, "together", milliseconds(2));
  run(milliseconds(300));
  EXPECT_EQ(read("together").size(), 4u) << "while it is written";
  say(3, "last", milliseconds(1));
  stop(0);
  const auto early = read("early"), together = read("together");
  ASSERT_EQ(early.size(), 3u);
  ASSERT_EQ(together.size(), 4u);
  for (const auto& [rank, when] : early) EXPECT_NEAR(when, -before, 50) << rank;
  for (const auto& [rank, when] : together) EXPECT_NEAR(when, 0, 50) << rank;
  EXPECT_EQ(read("last").size(), 1u) << "what was said before the stop";
  for (int rank = 0; rank < 4; ++rank) EXPECT_FALSE(of(rank).on()) << "rank 0 ends it everywhere";
}

TEST_F(SimTimeline, AnotherFileFollows) {
  for (int session = 0; session < 3; ++session) {
    for (int rank = 0; rank < 4; ++rank) of(rank).start(path);
    EXPECT_THROW(of(0).start(path), Error);
    run(milliseconds(20));
    for (int rank = 0; rank < 4; ++rank) say(rank, session == 2 ? "third" : "before", milliseconds(1));
    for (int rank = 3; rank >= 0; --rank) stop(rank);
  }
  EXPECT_EQ(read("third").size(), 4u);
  EXPECT_TRUE(read("before").empty());
  say(0, "off", milliseconds(1));
  stop(0);
  EXPECT_TRUE(read("off").empty());
}

TEST_F(SimTimeline, ALongTextGoesInPiecesAndALostRankHoldsUpNothing) {
  constexpr int kSpans = 10'000;
  for (int rank = 0; rank < 4; ++rank) of(rank).start(path);
  const Timeline::Row row = of(2).row("many");
  for (int i = 0; i < kSpans; ++i) of(2).span(row, "many", job.world.now(), job.world.now() + milliseconds(1), i);
  stop(2);
  std::set<std::int64_t> numbers;
  run(milliseconds(200));
  const Json whole = file();
  for (const Json& event : whole.items()) {
    if (event["name"].as_string() == "many") numbers.insert(event["args"]["number"].as_integer());
  }
  EXPECT_EQ(numbers.size(), static_cast<std::size_t>(kSpans));
  job[0].context->on_rank_lost(3, std::make_exception_ptr(Error(Code::kPeerFailed, "rank 3 has exited", 3)));
  const Instant began = job.world.now();
  stop(0);
  EXPECT_LT(job.world.now() - began, milliseconds(500)) << "rank 1 answers, rank 2 has ended";
  stop(3);
}

TEST_F(SimTimeline, AFileThatCannotBeWrittenIsOneSentenceAndEndsNothing) {
  for (const int rank : {1, 2, 3}) of(rank).start("");
  EXPECT_THROW(of(0).start(path + "/none"), Error);
  run(milliseconds(200));
  for (int rank = 0; rank < 4; ++rank) EXPECT_FALSE(of(rank).on()) << rank;
  for (int rank = 0; rank < 4; ++rank) of(rank).start(path);
  run(milliseconds(20));
  for (int rank = 0; rank < 4; ++rank) say(rank, "after", milliseconds(1));
  stop(0);
  EXPECT_EQ(read("after").size(), 4u);
}

}  // namespace
}  // namespace aiacc::sim
