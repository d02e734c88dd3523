// Every algorithm between hosts, chosen by AIACC_ALGORITHM, against the slow reference: with one rank on each host, and below
// the algorithms of several ranks on each.
#include <algorithm>

#include "collectives/hier/hier_world_test.h"
#include "collectives/inter/algorithms.h"
#include "collectives/inter/selector.h"

namespace aiacc {
namespace {

using namespace hier_test;

struct Told final : inter::Selector::Listener {
  void no_permitted_algorithm(const std::string& sentence) noexcept override { sentences.push_back(sentence); }
  std::vector<std::string> sentences;
};

bool reduces(Collective kind) {
  return kind == Collective::kAllreduce || kind == Collective::kReduce || kind == Collective::kReduceScatter;
}

std::vector<Case> cases_of(Collective kind, int size) {
  std::vector<Case> cases;
  for (const std::size_t count : {0, 5}) {
    for (const bool in_place : {false, true}) {
      for (const int root : {0, size - 1}) {
        Case test{call_of(kind, count, DType::kFloat32, ReduceOp::kSum, root), Memory::kPrivate, in_place};
        cases.push_back(test);
        if (!reduces(kind)) continue;
        test.call.reduction.op = ReduceOp::kAvg;
        test.call.reduction.prescale = 0.5;
        cases.push_back(test);
        cases.push_back({call_of(kind, count, DType::kFloat16, ReduceOp::kSum, root), Memory::kPrivate, in_place});
      }
    }
  }
  if (kind == Collective::kAllreduce || kind == Collective::kReduce) cases.push_back({call_of(kind, 17'001)});
  const bool in_chunks = kind == Collective::kBroadcast;  // more of them than are in flight
  cases.push_back({call_of(kind, in_chunks ? 300'001 : 1'001, DType::kInt32, ReduceOp::kSum, 1)});
  return cases;
}

// Returns how often no permitted algorithm could serve a call.
std::size_t run_with(const std::string& setting, const Placement& placement, const std::vector<Case>& cases) {
  const inter::AlgorithmRules rules = inter::AlgorithmRules::parse("AIACC_ALGORITHM", setting);
  Told told;
  std::deque<inter::Selector> selectors;
  SCOPED_TRACE(setting);
  run_cases(placement, cases, Through::kSharedMemory, 1, [&](Team& team) {
    selectors.emplace_back(rules, told);
    team.selector = &selectors.back();
  });
  return told.sentences.size();
}

class EachCollective : public ::testing::TestWithParam<inter::NamedCollective> {};
INSTANTIATE_TEST_SUITE_P(HierAlgorithms, EachCollective, ::testing::ValuesIn(inter::named_collectives()),
                         [](const auto& each) {
                           std::string name(each.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(EachCollective, ByEachOfItsAlgorithms) {
  for (const Placement& placement : {Placement{0, 1, 2, 3, 4}, Placement{0, 1, 0, 0, 2}, Placement{0, 1, 2, 0, 1, 2},
                                     Placement{0, 1, 2, 3, 4, 5, 6, 7}}) {
    const std::vector<Case> cases = cases_of(GetParam().kind, static_cast<int>(placement.size()));
    for (const inter::AlgorithmInfo* algorithm : inter::algorithms_of(GetParam().kind)) {
      run_with(std::string(GetParam().name) + "=" + std::string(algorithm->name), placement, cases);
    }
  }
}

TEST(HierAlgorithms, TheRuleHoldsBetweenHostsOfSeveralRanks) {
  const std::vector<Case> cases = {{call_of(Collective::kAllreduce, 101)}};
  EXPECT_EQ(run_with("allreduce=ring", {0, 0, 1, 1, 2, 2}, cases), 0u);
  EXPECT_EQ(run_with("allreduce=halving-doubling", {0, 0, 1, 1, 2, 2}, cases), 1u) << "three hosts";
  // Short blocks go between hosts, one rank of each; long ones from rank to rank, but for those within a host.
  EXPECT_EQ(run_with("alltoall=bruck", {0, 0, 1, 2}, {{call_of(Collective::kAlltoall, 1)}}), 1u)
      << "of several lengths";
  EXPECT_EQ(run_with("alltoall=bruck", {0, 0, 1, 1}, {{call_of(Collective::kAlltoall, 1)}}), 0u);
  EXPECT_EQ(run_with("alltoall=bruck", {0, 0, 1, 1}, {{call_of(Collective::kAlltoall, 5'000)}}), 1u);
  EXPECT_EQ(run_with("gather=binomial", {0, 0, 1, 1}, {{call_of(Collective::kGather, 5'000)}}), 1u);
}

}  // namespace
}  // namespace aiacc
