// Random programs in virtual time whose ranks free their group and finalize as early as they may, over paths of which some are so slow
// that what a rank has sent comes long after it has said that it makes no more calls. A correct program ends well. Where a rank leaves
// out one call, who waits for that is told soon after it has left and all others have made the call, and by name.
//
// LEAVING_PROGRAMS in the environment is how many of each kind.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/sim/random.h"
#include "runtime/group/leavers_test.h"

namespace aiacc::sim {
namespace {

constexpr Duration kToldWithin = std::chrono::seconds(5);

// A collective of all members, or a message.
struct Step {
  bool in_group = false;
  Collective kind = Collective::kSend;
  int from = -1, to = -1;  // of a message: ranks of the world
  bool from_any = false;   // it is received so
  std::uint32_t tag = 0;
  std::size_t count = 1;

  bool is_message() const { return kind == Collective::kSend; }
};

struct LeavingProgram {
  std::vector<std::uint32_t> hosts;
  std::vector<int> members;             // of the group
  std::vector<Step> steps;              // each rank makes its calls in this order
  std::optional<std::size_t> left_out;  // a step that `guilty` leaves out: its last one
  int guilty = -1;

  bool is_member(int rank) const { return std::find(members.begin(), members.end(), rank) != members.end(); }
  bool takes_part(int rank, const Step& step) const {
    if (step.is_message()) return rank == step.from || rank == step.to;
    return !step.in_group || is_member(rank);
  }
  int number(const Step& step, int rank) const {
    if (!step.in_group) return rank;
    return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  }
};

Step random_step(const LeavingProgram& program, Random& random, std::uint32_t number) {
  const int size = static_cast<int>(program.hosts.size());
  constexpr std::size_t kCounts[] = {1, 4, 1000, 40'000, 300'000};
  Step step;
  step.in_group = random.below(2) == 0;
  step.count = kCounts[random.below(5)];
  if (random.below(4) == 0) {
    constexpr Collective kKinds[] = {Collective::kAllreduce, Collective::kBarrier, Collective::kBroadcast};
    step.kind = kKinds[random.below(3)];
    if (step.kind == Collective::kBarrier) step.count = 0;
    return step;
  }
  const auto some = [&] {
    return step.in_group ? program.members[random.below(program.members.size())] : static_cast<int>(random.below(size));
  };
  step.from = some();
  do {
    step.to = some();
  } while (step.to == step.from);
  step.from_any = random.below(8) == 0;
  constexpr std::uint32_t kTags[] = {0, 1, 7};
  step.tag = step.from_any ? 100 + number : kTags[random.below(3)];
  return step;
}

LeavingProgram random_program(Random& random) {
  LeavingProgram program;
  const std::uint64_t size = 2 + random.below(5);
  const std::uint64_t hosts = 1 + random.below(size);
  for (std::uint64_t rank = 0; rank < size; ++rank)
    program.hosts.push_back(static_cast<std::uint32_t>(rank < hosts ? rank : random.below(hosts)));
  while (program.members.size() < 2) {
    program.members.clear();
    for (std::uint64_t rank = 0; rank < size; ++rank)
      if (random.below(3) != 0) program.members.push_back(static_cast<int>(rank));
  }
  const std::uint32_t steps = 3 + static_cast<std::uint32_t>(random.below(18));
  for (std::uint32_t number = 0; number < steps; ++number)
    program.steps.push_back(random_step(program, random, number));
  return program;
}

// A call whose absence somebody must notice; what its rank would do afterwards is left out by all.
bool leave_out(LeavingProgram& program, std::size_t at, Random& random) {
  const Step step = program.steps[at];
  if (step.kind == Collective::kBroadcast) return false;
  if (!step.is_message()) {
    if (!step.in_group) return false;  // another call stands in its place: the last barrier
    program.guilty = program.members[random.below(program.members.size())];
  } else if (random.below(3) == 0) {
    const auto host_of = [&](int rank) { return program.hosts[static_cast<std::size_t>(rank)]; };
    if (step.count * sizeof(float) <= Mailbox::kEagerBytes || host_of(step.from) == host_of(step.to)) return false;
    program.guilty = step.to;
  } else {
    if (step.from_any) return false;
    program.guilty = step.from;
  }
  std::vector<Step> later(program.steps.begin() + static_cast<std::ptrdiff_t>(at) + 1, program.steps.end());
  program.steps.resize(at + 1);
  for (const Step& each : later)
    if (!program.takes_part(program.guilty, each)) program.steps.push_back(each);
  program.left_out = at;
  return true;
}

Task<void> pause(Loop& loop, Duration time, Stop& stop) { co_await sleep_for(loop, time, stop); }

class LeavingWorldOfPrograms {
 public:
  LeavingWorldOfPrograms(LeavingProgram program, std::uint64_t seed)
      : program_(std::move(program)), random_(seed * 7919 + 13), job_(program_.hosts, seed) {
    job_.limit = std::chrono::seconds(1'000'000);
    job_.make_groups_of(program_.members);
    for (int rank = 0; rank < job_.size(); ++rank) {
      Rank& its = ranks_.emplace_back();
      its.blocks = random_.below(2) == 0;
      its.frees_early = random_.below(2) == 0;
    }
    for (int path = 0; path < job_.size(); ++path) change_a_path();
  }

  void run() {
    while (!all_left()) {
      int next = -1;
      ASSERT_TRUE(job_.world.run_while_not([&] {
        note_ends();
        for (int rank = 0; rank < job_.size() && next < 0; ++rank)
          if (may_go_on(rank)) next = rank;
        return next >= 0 || all_left();
      })) << job_.world.recent();
      if (next >= 0) go_on(next);
    }
  }
  void expect_well() {
    for (int rank = 0; rank < job_.size(); ++rank) {
      for (const Made& made : at(rank).made) EXPECT_EQ(error_of(*made.operation).message(), "") << "rank " << rank;
      EXPECT_EQ(error_of(*at(rank).last_barrier).message(), "") << "rank " << rank;
    }
  }
  void expect_told() {
    const Step& step = program_.steps[*program_.left_out];
    const int named = program_.number(step, program_.guilty);
    const Instant left = step.in_group ? at(program_.guilty).freed : at(program_.guilty).finalized;
    std::optional<Instant> told, waited;
    for (int rank = 0; rank < job_.size(); ++rank) {
      for (const Made& made : at(rank).made) {
        const Error error = error_of(*made.operation);
        if (program_.steps[made.step].in_group != step.in_group) {
          EXPECT_EQ(error.message(), "") << "of another group";
        }
        if (made.step != *program_.left_out) continue;
        // The call may come when an earlier one of this rank has failed for the same reason.
        const bool is_later = error.message().find("was aborted earlier") != std::string::npos;
        EXPECT_EQ(error.code(), is_later ? Code::kAborted : Code::kMismatch) << error.message();
        EXPECT_EQ(error.peer(), named) << error.message();
        EXPECT_NE(error.message().find("rank " + std::to_string(named) + " has "), std::string::npos)
            << error.message();
        if (!told || made.ended < *told) told = made.ended;
        if (!waited || made.began > *waited) waited = made.began;
      }
      if (step.in_group) {
        EXPECT_EQ(error_of(*at(rank).last_barrier).message(), "") << "of the world";
      }
    }
    ASSERT_TRUE(told);
    EXPECT_LT(*told - std::max(left, *waited), kToldWithin);
  }

 private:
  struct Made {
    std::size_t step;
    GroupOperation* operation;
    Instant began;
    Instant ended{};
  };
  struct Rank {
    bool blocks = false;       // makes no call before the one before has ended
    bool frees_early = false;  // while its operations of the group run
    std::size_t next = 0;      // step
    std::vector<Made> made;
    std::vector<int> senders = std::vector<int>(64);
    std::optional<Task<void>> sleep;
    bool has_freed = false;
    Instant freed{}, finalized{};
    GroupOperation* last_barrier = nullptr;
    std::optional<LeaveDeadline> deadline;
    std::optional<Task<void>> closing;
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  bool is_well() const { return !program_.left_out; }
  bool all_left() {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](Rank& rank) {
      return rank.last_barrier != nullptr && rank.last_barrier->done() &&
             (!is_well() || (rank.closing && rank.closing->done()));
    });
  }
  void note_ends() {
    for (Rank& rank : ranks_)
      for (Made& made : rank.made)
        if (made.ended == Instant{} && made.operation->done()) made.ended = job_.world.now();
  }
  bool all_made_ended(Rank& rank, bool of_group_only) {
    return std::all_of(rank.made.begin(), rank.made.end(), [&](const Made& made) {
      return (of_group_only && !program_.steps[made.step].in_group) || made.operation->done();
    });
  }
  std::optional<std::size_t> next_step(int rank) {
    for (std::size_t step = at(rank).next; step < program_.steps.size(); ++step)
      if (!(step == program_.left_out && rank == program_.guilty) && program_.takes_part(rank, program_.steps[step]))
        return step;
    return std::nullopt;
  }
  bool makes_more_in_group(int rank) {
    for (std::size_t step = at(rank).next; step < program_.steps.size(); ++step)
      if (program_.steps[step].in_group && program_.takes_part(rank, program_.steps[step]) &&
          !(step == program_.left_out && rank == program_.guilty))
        return true;
    return false;
  }
  bool may_free(int rank) {
    Rank& its = at(rank);
    return program_.is_member(rank) && !its.has_freed && !makes_more_in_group(rank) &&
           (its.frees_early || all_made_ended(its, true));
  }
  bool may_go_on(int rank) {
    Rank& its = at(rank);
    if (its.closing) return false;
    if (its.last_barrier != nullptr) return is_well() && its.last_barrier->done();
    if (its.sleep && !its.sleep->done()) return false;
    if (may_free(rank)) return true;
    if (!next_step(rank)) return all_made_ended(its, false);
    return !its.blocks || its.made.empty() || its.made.back().operation->done();
  }

  void go_on(int rank) {
    Rank& its = at(rank);
    if (random_.below(4) == 0) change_a_path();
    its.sleep.reset();
    if (its.last_barrier != nullptr) {
      its.deadline.emplace(job_[rank].loop);
      its.closing.emplace(job_[rank].context->close(*its.deadline, job_[rank].stop));
      return its.closing->start();
    }
    if (may_free(rank)) return free(rank);
    if (const std::optional<std::size_t> step = next_step(rank)) {
      make(rank, *step);
      return sleep(rank);
    }
    if (program_.is_member(rank)) job_.collect(rank);
    if (its.freed == Instant{}) its.freed = job_.world.now();
    its.finalized = job_.world.now();
    its.last_barrier = &job_.finalize(rank);
  }
  void free(int rank) {
    Rank& its = at(rank);
    its.has_freed = true;
    if (all_made_ended(its, true)) its.freed = job_.world.now();
    job_.free(rank);
  }
  void make(int rank, std::size_t number) {
    Rank& its = at(rank);
    its.next = number + 1;
    const Step& step = program_.steps[number];
    Call call = call_of(step.kind, step.count);
    if (step.is_message()) {
      const bool sends = rank == step.from;
      call = message_of(sends ? Collective::kSend : Collective::kRecv,
                        program_.number(step, sends ? step.to : step.from), step.tag, step.count);
      if (!sends && step.from_any) {
        call.kind = Collective::kRecvAny;
        call.sender = &its.senders[number];
      }
    }
    GroupOperation& operation =
        step.in_group ? job_.start(rank, call, step.count) : job_.start_in_world(rank, call, step.count);
    its.made.push_back({number, &operation, job_.world.now()});
  }
  void sleep(int rank) {
    constexpr Duration kLongest[] = {std::chrono::milliseconds(1), std::chrono::seconds(1), std::chrono::seconds(40)};
    if (random_.below(3) != 0) return;
    const auto longest = static_cast<std::uint64_t>(kLongest[random_.below(3)].count());
    at(rank).sleep.emplace(pause(job_[rank].loop, Duration(random_.below(longest)), job_[rank].stop));
    at(rank).sleep->start();
  }
  // Some are slow for seconds. What is sent later may be faster.
  void change_a_path() {
    if (!job_.fabric) return;
    const auto one = static_cast<int>(random_.below(program_.hosts.size()));
    const auto other = static_cast<int>(random_.below(program_.hosts.size()));
    if (job_.view->host_of(one) == job_.view->host_of(other)) return;
    constexpr unsigned kSlow[] = {1, 1, 100, 2000, 100'000, 400'000};
    job_.fabric->slow(one, other, kSlow[random_.below(is_well() ? 6 : 4)]);
  }

  LeavingProgram program_;
  Random random_;
  LeaversJob job_;
  std::vector<Rank> ranks_;
};

std::uint64_t programs() {
  const char* text = std::getenv("LEAVING_PROGRAMS");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? 100 : std::strtoull(text, nullptr, 10);
}

TEST(LeavingPrograms, AreNotRefusedWhereTheyAreCorrect) {
  for (std::uint64_t seed = 1; seed <= programs() && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    LeavingWorldOfPrograms world(random_program(random), seed);
    world.run();
    if (!testing::Test::HasFatalFailure()) world.expect_well();
  }
}

TEST(LeavingPrograms, NameWhoLeavesOutACallToWhomeverWaitsForIt) {
  for (std::uint64_t seed = 1; seed <= programs() && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    LeavingProgram program = random_program(random);
    while (!leave_out(program, random.below(program.steps.size()), random)) program = random_program(random);
    LeavingWorldOfPrograms world(program, seed);
    world.run();
    if (!testing::Test::HasFatalFailure()) world.expect_told();
  }
}

}  // namespace
}  // namespace aiacc::sim
