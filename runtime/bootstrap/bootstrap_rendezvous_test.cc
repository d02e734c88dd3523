// What is particular to ranks with a rendezvous endpoint: which ranks are refused, and what waiting ranks report.
#include "runtime/bootstrap/bootstrap_rendezvous.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "runtime/bootstrap/rendezvous_world_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;

class JoiningWorld : public RendezvousWorld {
 public:
  JoiningWorld() : RendezvousWorld(0) {}

  struct Outcome {
    Code code = Code::kOk;
    std::string sentence;
    std::optional<BootstrapResult> bootstrapped;
  };
  // Joins all; those that end with an error have its sentence.
  std::vector<Outcome> join_all(Duration limit = 30s) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(size()));
    std::vector<Task<void>> tasks;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      tasks.push_back(join_one(loop_, provider(static_cast<int>(i)), limit, outcomes[i]));
    }
    run(std::move(tasks));
    return outcomes;
  }

 private:
  static Task<void> join_one(Loop& loop, Bootstrap& provider, Duration limit, Outcome& outcome) {
    Stop stop;
    const Deadline deadline(loop, after(loop.now(), limit), stop, "too late");
    try {
      outcome.bootstrapped = co_await provider.join(stop);
    } catch (const Error& error) {
      outcome.code = error.code();
      outcome.sentence = error.message();
    }
  }
};

bool says(const std::string& sentence, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (sentence.find(part) == std::string::npos) {
      ADD_FAILURE() << "'" << part << "' is not in: " << sentence;
      return false;
    }
  }
  return true;
}

bool has(const JoiningWorld::Outcome& outcome, const char* part) {
  return outcome.sentence.find(part) != std::string::npos;
}

// How ranks that do not come together end after `limit`, or after longer where that was too short for what is expected(): this machine may
// be slow.
std::vector<JoiningWorld::Outcome> joined_in_vain(
    Duration limit, const std::function<void(JoiningWorld&)>& add,
    const std::function<bool(const std::vector<JoiningWorld::Outcome>&)>& expected) {
  std::vector<JoiningWorld::Outcome> outcomes;
  for (const int factor : {1, 6, 36}) {
    JoiningWorld job;
    add(job);
    outcomes = job.join_all(limit * factor);
    if (expected(outcomes)) break;
  }
  return outcomes;
}

TEST(Rendezvous, RanksOfOneMachineShareItsMemory) {
  JoiningWorld job;
  for (int rank = 0; rank < 3; ++rank) job.add(JoiningWorld::settings(rank, 3));
  for (const JoiningWorld::Outcome& one : job.join_all()) {
    ASSERT_TRUE(one.bootstrapped) << one.sentence;
    EXPECT_EQ(one.bootstrapped->world->hosts(), 1);
    EXPECT_EQ(one.bootstrapped->host->size(), 3);
    EXPECT_TRUE(one.bootstrapped->remarks.empty());
  }
}

TEST(Rendezvous, ANameIsNoProofOfOneHost) {
  JoiningWorld job;
  for (int rank = 0; rank < 4; ++rank) job.add(JoiningWorld::settings(rank, 4, rank != 1));
  const auto outcomes = job.join_all();
  for (const JoiningWorld::Outcome& one : outcomes) {
    ASSERT_TRUE(one.bootstrapped) << one.sentence;
    EXPECT_EQ(one.bootstrapped->world->hosts(), 2) << "rank 1 has the same name and shares with nobody";
    EXPECT_EQ(one.bootstrapped->world->host_of(0), one.bootstrapped->world->host_of(3));
    EXPECT_NE(one.bootstrapped->port, nullptr);
  }
  EXPECT_EQ(outcomes[1].bootstrapped->host, nullptr);
  EXPECT_EQ(outcomes[3].bootstrapped->host->size(), 3);
}

TEST(Rendezvous, AnotherSizeEndsTheJobForAllWithBothNumbers) {
  JoiningWorld job;
  job.add(JoiningWorld::settings(0, 3));
  job.add(JoiningWorld::settings(1, 3));
  job.add(JoiningWorld::settings(2, 8));
  for (const JoiningWorld::Outcome& one : job.join_all()) {
    EXPECT_EQ(one.code, Code::kMismatch);
    says(one.sentence, {"rank 2 (here, tcp:127.0.0.1:", "8 ranks", "rank 0 (here) says 3"});
  }
}

TEST(Rendezvous, AnotherVersionEndsTheJobForAll) {
  JoiningWorld job;
  job.add(JoiningWorld::settings(0, 2));
  RendezvousBootstrap::Settings other = JoiningWorld::settings(1, 2);
  other.version = "9.9.9";
  job.add(other);
  for (const JoiningWorld::Outcome& one : job.join_all()) {
    EXPECT_EQ(one.code, Code::kMismatch);
    says(one.sentence, {"rank 1 (tcp:127.0.0.1:", "aiacc 9.9.9", "aiacc 1.2.3"});
  }
}

TEST(Rendezvous, AnotherJobIsRefusedAndThisOneGoesOn) {
  RendezvousBootstrap::Settings other = JoiningWorld::settings(1, 2);
  other.job = "other";
  const auto outcomes = joined_in_vain(
      1500ms,
      [&](JoiningWorld& job) {
        job.add(JoiningWorld::settings(0, 2));
        job.add(other);
      },
      [](const auto& ends) { return ends[1].code == Code::kMismatch; });
  EXPECT_EQ(outcomes[1].code, Code::kMismatch);
  says(outcomes[1].sentence, {"rank 1 (here, ", "the job 'other'", "the job ''"});
  EXPECT_EQ(outcomes[0].code, Code::kTimeout) << "its own rank 1 may still come";
  says(outcomes[0].sentence, {"1 of 2 ranks came", "rank 1 did not", outcomes[1].sentence});

  JoiningWorld whole;
  whole.add(JoiningWorld::settings(0, 2));
  whole.add(other);
  whole.add(JoiningWorld::settings(1, 2));
  const auto three = whole.join_all();
  ASSERT_TRUE(three[0].bootstrapped && three[2].bootstrapped) << three[0].sentence;
  EXPECT_EQ(three[1].code, Code::kMismatch);
  ASSERT_EQ(three[0].bootstrapped->remarks.size(), 1u);
  says(three[0].bootstrapped->remarks[0], {"the job 'other'"});
}

TEST(Rendezvous, OneProcessARank) {
  JoiningWorld job;
  job.add(JoiningWorld::settings(0, 3));
  job.add(JoiningWorld::settings(1, 3));
  job.add(JoiningWorld::settings(1, 3));
  job.add(JoiningWorld::settings(2, 3));
  const auto outcomes = job.join_all();
  ASSERT_TRUE(outcomes[0].bootstrapped && outcomes[3].bootstrapped) << outcomes[0].sentence << outcomes[3].sentence;
  const int refused = outcomes[1].bootstrapped ? 2 : 1;
  EXPECT_EQ(outcomes[static_cast<std::size_t>(refused)].code, Code::kInvalidState);
  says(outcomes[static_cast<std::size_t>(refused)].sentence, {"rank 1 (here, tcp:", "rank 1 is taken"});
  ASSERT_EQ(outcomes[0].bootstrapped->remarks.size(), 1u);
}

TEST(Rendezvous, ARankThatNeverComesIsNamedToAll) {
  const auto outcomes = joined_in_vain(
      1500ms,
      [](JoiningWorld& job) {
        for (const int rank : {0, 1, 3}) job.add(JoiningWorld::settings(rank, 5));
      },
      [](const auto& ends) {
        return has(ends[0], "3 of 5 ranks came") && has(ends[1], "3 of 5 ranks came") &&
               has(ends[2], "3 of 5 ranks came");
      });
  for (const JoiningWorld::Outcome& one : outcomes) {
    EXPECT_EQ(one.code, Code::kTimeout);
    says(one.sentence, {"within 30 s (AIACC_INIT_TIMEOUT)", "3 of 5 ranks came to AIACC_RENDEZVOUS=127.0.0.1:",
                        "rank 0 on host here, rank 1 on host here (tcp:127.0.0.1:",
                        "rank 3 on host here (tcp:127.0.0.1:", "ranks 2, 4 did not"});
  }
}

TEST(Rendezvous, WithoutRankZeroTheSentenceSaysWhatWasTried) {
  const auto outcomes = joined_in_vain(
      300ms, [](JoiningWorld& job) { job.add(JoiningWorld::settings(1, 2)); },
      [](const auto& ends) { return has(ends[0], "refused"); });
  EXPECT_EQ(outcomes[0].code, Code::kTimeout);
  says(outcomes[0].sentence, {"rank 1 did not reach rank 0 at AIACC_RENDEZVOUS=127.0.0.1:", "attempts)", "refused"});
}

TEST(Rendezvous, AnotherSecretIsAnUnauthenticatedPeer) {
  const auto outcomes = joined_in_vain(
      1500ms,
      [](JoiningWorld& job) {
        job.add(JoiningWorld::settings(0, 2));
        job.add(JoiningWorld::settings(1, 2), JoiningWorld::secret('x'));
      },
      [](const auto& ends) { return has(ends[0], "did not prove") && has(ends[1], "is another one"); });
  EXPECT_EQ(outcomes[0].code, Code::kTimeout);
  says(outcomes[0].sentence, {"1 of 2 ranks came", "rank 1 did not", "did not prove to know the secret"});
  EXPECT_EQ(outcomes[1].code, Code::kTimeout);
  says(outcomes[1].sentence, {"the secret of the job that listens here is another one"});
}

TEST(Rendezvous, AnAddressInUseIsNamedAndWhatToDo) {
  const auto outcomes = joined_in_vain(
      300ms,
      [](JoiningWorld& job) {
        job.add(JoiningWorld::settings(0, 2));
        job.add(JoiningWorld::settings(0, 2));
      },
      [](const auto& ends) { return ends[1].code == Code::kSystem; });
  EXPECT_EQ(outcomes[1].code, Code::kSystem);
  says(outcomes[1].sentence, {"rank 0 cannot listen at AIACC_RENDEZVOUS=127.0.0.1:", "Address already in use",
                              "a port that nobody else uses"});
}

}  // namespace
}  // namespace aiacc
