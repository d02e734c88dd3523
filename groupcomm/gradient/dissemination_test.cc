#include "groupcomm/gradient/dissemination.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace aiacc::gradient {
namespace {

std::size_t messages_sent(int member, int members) {
  std::size_t sent = 0;
  for (const DisseminationStep& step : dissemination_plan(member, members)) sent += step.to.size();
  return sent;
}

int steps_of(int members, int radix) {
  int steps = 0;
  for (long reached = 1; reached < members; reached *= radix) ++steps;
  return steps;
}

TEST(Dissemination, BringsEveryWordToEveryMember) {
  for (int radix : {2, 3, 4, 8}) {
    for (int members = 1; members <= 70; ++members) {
      std::vector<std::set<int>> has(static_cast<std::size_t>(members));
      for (int member = 0; member < members; ++member) has[static_cast<std::size_t>(member)] = {member};
      const int steps = steps_of(members, radix);
      for (int step = 0; step < steps; ++step) {
        const std::vector<std::set<int>> before = has;
        for (int member = 0; member < members; ++member) {
          const std::vector<DisseminationStep> plan = dissemination_plan(member, members, radix);
          ASSERT_EQ(plan.size(), static_cast<std::size_t>(steps));
          for (int from : plan[static_cast<std::size_t>(step)].from) {
            const std::set<int>& words = before[static_cast<std::size_t>(from)];
            has[static_cast<std::size_t>(member)].insert(words.begin(), words.end());
          }
        }
      }
      for (const std::set<int>& words : has) ASSERT_EQ(words.size(), static_cast<std::size_t>(members)) << radix;
    }
  }
}

TEST(Dissemination, ReceivesExactlyWhatIsSent) {
  for (int members = 1; members <= 70; ++members) {
    for (int member = 0; member < members; ++member) {
      const std::vector<DisseminationStep> plan = dissemination_plan(member, members);
      ASSERT_EQ(plan.size(), static_cast<std::size_t>(steps_of(members, kDisseminationRadix)));
      for (std::size_t step = 0; step < plan.size(); ++step) {
        for (int to : plan[step].to) {
          ASSERT_NE(to, member);
          const std::vector<int> from = dissemination_plan(to, members).at(step).from;
          ASSERT_EQ(std::count(from.begin(), from.end(), member), 1);
        }
        ASSERT_EQ(plan[step].to.size(), plan[step].from.size());
      }
    }
  }
}

// The target of the gradient engine: the busiest of 128 ranks on 16 hosts sends at most 8 messages a round. Ranks of a host
// share memory; their leader sends.
TEST(Dissemination, CostsTheBusiestOf128RanksOn16HostsAtMostEightMessages) {
  for (int host = 0; host < 16; ++host) EXPECT_LE(messages_sent(host, 16), 8U);
  EXPECT_EQ(messages_sent(0, 16), 6U);
}

TEST(Dissemination, SendsNothingOnOneHost) { EXPECT_TRUE(dissemination_plan(0, 1).empty()); }

}  // namespace
}  // namespace aiacc::gradient
