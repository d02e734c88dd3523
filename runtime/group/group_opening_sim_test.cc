// Operations on a group that not all members of this host have created yet: they wait for it and keep their order.
#include "tests/sim_job.h"

namespace aiacc {
namespace {

using sim::error_of;
using sim::SimContext;
using sim::SimJob;
using std::chrono::microseconds;

// One rank of a job that makes a group of all ranks.
struct OpeningMember {
  explicit OpeningMember(SimContext& of) : rank(of) {}

  void make_group(const ViewPtr& view) {
    GroupOrder order;
    for (int i = 0; i < view->size(); ++i) order.ranks.push_back(i);
    Task<void> making = rank.context->groups().make(*view, order, &group, rank.stop);
    making.start();
    ASSERT_TRUE(making.done());
    making.take();
  }
  void sum(std::size_t count) {
    auto& data = rank.data.emplace_back(count, 1.0f);
    const Buffer buffer{reinterpret_cast<std::byte*>(data.data()), count * sizeof(float)};
    Call call;
    call.kind = Collective::kAllreduce;
    call.count = count;
    rank.operations.push_back(group->prepare(call, buffer, buffer, nullptr));
    rank.lane.start(*rank.operations.back());
  }

  SimContext& rank;
  Group* group = nullptr;
};

// Rank 0 calls before the others have the group, and once more at the event with that number after; returns the number
// of events.
std::uint64_t call_twice(const std::vector<std::uint32_t>& hosts, std::uint64_t event) {
  SimJob job(hosts);
  std::deque<OpeningMember> members;
  for (auto& rank : job.ranks) members.emplace_back(*rank);
  members[0].make_group(job.view);
  members[0].sum(20'000);
  const std::uint64_t first = job.world.events();
  job.world.at(after(job.began, microseconds(20)), [&] {
    for (std::size_t i = 1; i < members.size(); ++i) {
      members[i].make_group(job.view);
      members[i].sum(20'000);
      members[i].sum(300);
    }
  });
  job.world.at_event(first + event, [&] { members[0].sum(300); });
  job.finish();
  for (auto& rank : job.ranks) {
    for (std::size_t i = 0; i < rank->operations.size(); ++i) {
      EXPECT_EQ(error_of(*rank->operations[i]).message(), "");
      EXPECT_EQ(rank->data[i].back(), static_cast<float>(job.size()));
    }
  }
  return job.world.events() - first;
}

TEST(GroupOpening, OperationsKeepTheirOrderWhateverTheMomentOfTheCall) {
  for (const std::vector<std::uint32_t>& hosts : {std::vector<std::uint32_t>{0, 0}, {0, 0, 1, 1}}) {
    const std::uint64_t events = call_twice(hosts, 1);
    for (std::uint64_t event = 2; event + 1 < events; ++event) {
      SCOPED_TRACE(event);
      call_twice(hosts, event);
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
  }
}

}  // namespace
}  // namespace aiacc
