// What a member of a host finds on the board of another: an abort, as it was posted, or something that nobody posts.
#include "runtime/group/group_board.h"

#include <gtest/gtest.h>

#include "base/error_about.h"
#include "base/hash.h"
#include "transports/sim/sim_domain.h"

namespace aiacc {
namespace {

constexpr std::uint64_t kView = 77;
constexpr std::uint32_t kLines = 7, kArrivals = 6, kCodeAndPeer = 1, kAbout = 2;
constexpr int kSize = 5;  // of the group; ranks 1 and 3 are on this host

struct Heard final : GroupBoard::Observer {
  void aborted_by_member(std::exception_ptr its) noexcept override { error = its; }
  std::exception_ptr error;
};

struct TwoBoards {
  TwoBoards() {
    for (int me = 0; me < 2; ++me) {
      loops.push_back(std::make_unique<sim::SimLoop>(world, "member " + std::to_string(me)));
      domains.push_back(memory.attach(me, *loops.back()));
      boards.push_back(std::make_unique<GroupBoard>(*domains.back(), kView, std::vector{0, 1}, std::vector{1, 3}, me,
                                                    kSize, heard[me]));
    }
    for (const auto& board : boards) run(board->open(stop));
  }
  ~TwoBoards() {
    for (const auto& board : boards) run(board->close());
  }
  void run(Task<void> task) {
    task.start();
    ASSERT_TRUE(world.run_while_not([&] { return task.done(); }));
    task.take();
  }
  // As member 1 says: a word of its board.
  void store(std::uint32_t line, std::uint32_t word, std::uint64_t value) {
    domains[1]->own_line(first() + line).word[word].store(value);
  }
  std::uint32_t first() const {
    return domains[0]->find_lines(1, Hash64().add(kView).add("board").value(), kLines).value();
  }
  Error abort() {
    domains[1]->publish(first(), 0, HostDomain::kUrgent);
    EXPECT_TRUE(world.run_while_not([this] { return heard[0].error != nullptr; }));
    return as_error(heard[0].error);
  }

  sim::World world{1};
  sim::SimHostMemory memory{world, 2};
  Stop stop;
  Heard heard[2];
  std::vector<std::unique_ptr<sim::SimLoop>> loops;
  std::vector<std::unique_ptr<sim::SimDomain>> domains;
  std::vector<std::unique_ptr<GroupBoard>> boards;
};

TEST(GroupBoard, TellsOfAnAbortAsItWasPosted) {
  TwoBoards both;
  both.boards[1]->post_abort(std::make_exception_ptr(Error(Code::kPeerFailed, "rank 4 is dead", 4)));
  const Error error = both.abort();
  EXPECT_EQ(error.code(), Code::kPeerFailed);
  EXPECT_EQ(error.peer(), 4);
  EXPECT_EQ(error.message(), "rank 4 is dead");
}

// There is room for so many bytes of the sentence.
TEST(GroupBoard, ALongSentenceEndsWithAWholeCharacter) {
  constexpr std::size_t kFits = 8 * (kArrivals * 16 - 2) - 1;
  for (std::size_t before = kFits - 4; before <= kFits + 1; ++before) {
    TwoBoards both;
    const std::string text = std::string(before, 'x') + "\u20ac at the end";  // of three bytes
    both.boards[1]->post_abort(std::make_exception_ptr(Error(Code::kSystem, text, 1)));
    const std::string told = both.abort().message();
    EXPECT_EQ(told, before + 3 <= kFits ? text.substr(0, kFits) : std::string(std::min(before, kFits), 'x'));
  }
}

TEST(GroupBoard, AnAbortThatNobodyPostsIsAnErrorOfItsMember) {
  struct Forged {
    std::int32_t code, peer;
    int about;  // -1: nobody
    const char* says;
  };
  for (const Forged& forged : {Forged{8, kSize, -1, "(code 8, about rank 5)"},
                               {8, -2, -1, "(code 8, about rank -2)"},
                               {0, -1, -1, "(code 0, about rank -1)"},
                               {12, 1, -1, "(code 12, about rank 1)"},
                               {15, 1, -1, "(code 15, about rank 1)"},
                               {-1, 1, -1, "(code -1, about rank 1)"},
                               {8, 1, kSize, "(code 8, about rank 5)"},
                               {8, 1, 895, "(code 8, about rank 895)"}}) {
    TwoBoards both;
    both.store(0, kCodeAndPeer,
               std::uint64_t{static_cast<std::uint32_t>(forged.code)} << 32 | static_cast<std::uint32_t>(forged.peer));
    if (forged.about >= 0) {
      const auto rank = static_cast<std::uint32_t>(forged.about);
      both.store(kArrivals, kAbout + rank / 64, std::uint64_t{1} << (rank % 64));
    }
    const Error error = both.abort();
    EXPECT_EQ(error.code(), Code::kProtocol);
    EXPECT_EQ(error.peer(), 3);
    EXPECT_NE(error.message().find(forged.says), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace aiacc
