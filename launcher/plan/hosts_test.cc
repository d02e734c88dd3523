#include "launcher/plan/hosts.h"

#include <gtest/gtest.h>

#include "launcher/plan/planned.h"

namespace aiacc::launcher {
namespace {

using namespace test;

TEST(Hosts, NamesOfThisHost) {
  for (const char* name : {"localhost", "LOCALHOST", "127.0.0.1", "::1", "c01", "C01", "c01.cluster"}) {
    EXPECT_TRUE(is_this_host(name, "c01.cluster")) << name;
  }
  for (const char* name : {"c02", "c01.other", "c0", "c011", "127.0.0.2", ""})
    EXPECT_FALSE(is_this_host(name, "c01.cluster")) << name;
  EXPECT_FALSE(is_this_host("c01.cluster", "c01"));
}

TEST(Hosts, ASlotWithoutANumberAndMore) {
  EXPECT_EQ(plan("-H localhost p").size(), 1);
  EXPECT_EQ(plan("-H localhost:4 p").size(), 4);
  EXPECT_EQ(plan("-H localhost,127.0.0.1:2,[::1]:3 -H c01 p").hosts.at(0).slots, 7);
  EXPECT_EQ(plan("-np 2 -H localhost:4 p").size(), 2);
  EXPECT_EQ(plan("-np 3 -H localhost:3 p").hosts.at(0).name, "c01.cluster");
}

TEST(Hosts, MoreRanksThanSlotsAreRefusedWithBothNumbers) {
  const UsageError error = refusal("-np 8 -H localhost:4 p");
  EXPECT_EQ(error.id(), MessageId::kSlots);
  expect_says(error.message(), {"8 ranks", "4 slots", "--oversubscribe"});
  expect_says(refusal("-np 2 -H localhost p").message(), {"2 ranks", "1 slot "});
  EXPECT_EQ(refusal("-N 5 -H localhost:4 p").id(), MessageId::kSlots);
  EXPECT_EQ(plan("-np 8 -H localhost:4 --oversubscribe p").size(), 8);
}

TEST(Hosts, RanksPerHost) {
  EXPECT_EQ(plan("-N 3 p").size(), 3);
  EXPECT_EQ(plan("-N 3 -np 2 p").size(), 2);
  expect_says(refusal("-N 3 -np 7 p").message(), {"7 ranks", "-N 3", "3 hosts"});
}

TEST(Hosts, NoNumberOfRanks) {
  const UsageError error = refusal("p");
  EXPECT_EQ(error.id(), MessageId::kRanks);
  expect_says(error.message(), {"-np N", "-H HOST:SLOTS"});
}

std::string in_words(const Plan& plan) {
  std::string text;
  for (const HostPlan& host : plan.hosts) {
    text += (text.empty() ? "" : " ") + host.name + ":";
    for (const int rank : host.ranks) text += std::to_string(rank);
  }
  return text;
}

TEST(Hosts, SeveralAreFilledOneAfterTheOtherOrInTurn) {
  EXPECT_EQ(in_words(plan("-H a:2,b:3 p")), "a:01 b:234");
  EXPECT_EQ(in_words(plan("-np 3 -H a:2,b:3 p")), "a:01 b:2");
  EXPECT_EQ(in_words(plan("-np 2 -H a:2,b:3 p")), "a:01") << "a host without ranks is none of the job's";
  EXPECT_EQ(in_words(plan("-np 4 --map-by node -H a:2,b:3 p")), "a:02 b:13");
  EXPECT_EQ(in_words(plan("-np 5 --map-by node -H a:1,b:1,c:3 p")), "a:0 b:1 c:234");
  EXPECT_EQ(in_words(plan("-np 4 -N 2 -H a:3,b:3 p")), "a:01 b:23");
  EXPECT_EQ(in_words(plan("-N 1 -H a:3,b:3 p")), "a:0 b:1");
}

TEST(Hosts, WhatHasNoSlotGoesRound) {
  EXPECT_EQ(in_words(plan("-np 5 --oversubscribe -H a,b p")), "a:012 b:34");
  EXPECT_EQ(in_words(plan("-np 5 --oversubscribe --map-by node -H a,b p")), "a:024 b:13");
  EXPECT_EQ(in_words(plan("-np 4 -N 2 --oversubscribe -H a,b p")), "a:01 b:23");
}

TEST(Hosts, ANameThatStandsTwiceAddsItsSlots) {
  EXPECT_EQ(in_words(plan("-H a,b,A:2 p")), "a:012 b:3");
  EXPECT_EQ(in_words(plan("-H localhost,b,c01:2 p")), "c01.cluster:012 b:3");
  EXPECT_TRUE(plan("-H localhost,b p").hosts[0].local);
  EXPECT_FALSE(plan("-H localhost,b p").hosts[1].local);
}

Surroundings after_reaching(std::vector<Words> same) {
  Surroundings here = surroundings();
  here.same_machines = std::move(same);
  return here;
}

TEST(Hosts, NamesOfOneMachineAreOneHostAtTheFirstOnesPlace) {
  EXPECT_EQ(in_words(plan("-H a:2,b:2 p", after_reaching({{"a", "b"}}))), "a:0123");
  EXPECT_EQ(in_words(plan("-H a:2,c:2,b:2 p", after_reaching({{"a", "b"}}))), "a:0123 c:45");
  EXPECT_EQ(in_words(plan("-np 3 --map-by node -H a:1,b:1,c:1 p", after_reaching({{"a", "b"}}))), "a:02 c:1");
  EXPECT_EQ(in_words(plan("-np 3 -H a,b,c,d,e p", after_reaching({{"a", "c"}, {"b", "d"}}))), "a:01 b:2");
  EXPECT_EQ(in_words(plan("-N 1 -H a:2,b:2,c p", after_reaching({{"a", "b"}}))), "a:0 c:1");
  EXPECT_EQ(in_words(plan("-H a,b,c p", after_reaching({{"b", "c"}, {"a", "b"}}))), "a:012") << "found in two turns";
}

TEST(Hosts, OneLineSaysWhichNamesAreOneMachine) {
  const Plan p = plan("-H c01,c01.example.org,b:2,[10.0.0.1]:2,x p", after_reaching({{"b", "10.0.0.1", "x"}}));
  ASSERT_EQ(p.notices.size(), 1u);
  EXPECT_EQ(p.notices[0].id, MessageId::kSameMachine);
  EXPECT_EQ(p.notices[0].sentence, "hosts b, 10.0.0.1 and x are the same machine; their slots are added up");
  EXPECT_EQ(p.hosts[2].slots, 5);
}

TEST(Hosts, AMachineThatIsThisOneNeedsNoWayToIt) {
  const Plan p = plan("-H a:2,localhost:1 p", after_reaching({{"a", "c01.cluster"}}));
  EXPECT_EQ(in_words(p), "c01.cluster:012");
  EXPECT_TRUE(p.hosts[0].local);
  EXPECT_EQ(p.hosts[0].slots, 3);
  EXPECT_EQ(p.notices.at(0).sentence, "hosts c01.cluster and a are the same machine; their slots are added up");
}

TEST(Hosts, RanksForHostsThatAreOneMachineMayBeTooMany) {
  const Surroundings here = after_reaching({{"a", "b"}});
  expect_says(refusal("-np 2 -N 1 -H a,b p", here).message(), {"2 ranks with -N 1 need 2 hosts, and there is one"});
}

TEST(Hosts, AUserMakesAnyHostOneToBeReached) {
  const Plan p = plan("-H ann@localhost:2 p");
  EXPECT_FALSE(p.hosts[0].local);
  EXPECT_EQ(p.hosts[0].name, "localhost");
  EXPECT_EQ(p.hosts[0].user, "ann");
}

TEST(Hosts, OneHostWithTwoUsersIsRefusedCitingBothPlaces) {
  Options given = options("-np 2 p");
  given.hosts = {{{"a", 1, "ann", 0, "line 1 of hosts"}, {"b"}, {"a", 1, "bob", 0, "line 7 of hosts"}}, Source::kFlag};
  try {
    make_plan(given, surroundings());
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.id(), MessageId::kHosts);
    expect_says(error.message(), {"host a", "user ann", "line 1 of hosts", "user bob", "line 7 of hosts"});
  }
  given.hosts.value = {{"a", 1, "", 22, "line 1 of hosts"}, {"a", 1, "", 2222, "line 2 of hosts"}};
  EXPECT_THROW(make_plan(given, surroundings()), UsageError);
}

TEST(Hosts, SlotsOfSeveralAreNamed) {
  expect_says(refusal("-np 8 -H a:2,b:3 p").message(), {"8 ranks", "5 slots", "2 hosts", "a: 2, b: 3"});
  expect_says(refusal("-np 8 -N 3 -H a:4,b:4 p").message(), {"8 ranks", "-N 3", "3 hosts", "there are 2"});
}

}  // namespace
}  // namespace aiacc::launcher
