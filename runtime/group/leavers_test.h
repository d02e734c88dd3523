// A job of simulated ranks that free a group and finalize. For tests only.
#pragma once

#include <chrono>
#include <deque>
#include <vector>

#include "runtime/group/calls_test.h"
#include "tests/sim_job.h"

namespace aiacc::sim {

class LeaversJob : public SimJob {
 public:
  using SimJob::SimJob;

  // A group of all ranks on each of them.
  void make_groups() {
    std::vector<int> members;
    for (int member = 0; member < size(); ++member) members.push_back(member);
    make_groups_of(members);
  }
  void make_groups_of(const std::vector<int>& members) {
    GroupOrder order;
    order.ranks = members;
    Stop stop;
    groups.assign(ranks.size(), nullptr);
    for (const int rank : members) {
      finish_task((*this)[rank].context->groups().make(*view, order, &groups[static_cast<std::size_t>(rank)], stop));
    }
  }
  void free(int rank) {
    groups[static_cast<std::size_t>(rank)]->handles_gone();
    collect(rank);
  }
  void collect(int rank) { finish_task((*this)[rank].context->groups().collect()); }
  GroupOperation& start(int rank, Group& group, const Call& call, std::size_t elements) {
    std::vector<float>& memory = memory_.emplace_back(elements, 1.0f);
    const Buffer buffer = elements == 0 ? Buffer{} : buffer_of(memory);
    CallOptions options;
    options.timeout = limit;
    (*this)[rank].operations.push_back(group.prepare(call, buffer, buffer, &options));
    (*this)[rank].lane.start(*(*this)[rank].operations.back());
    return *(*this)[rank].operations.back();
  }
  GroupOperation& start(int rank, const Call& call, std::size_t elements = 0) {
    return start(rank, *groups[static_cast<std::size_t>(rank)], call, elements);
  }
  GroupOperation& start_in_world(int rank, const Call& call, std::size_t elements = 0) {
    return start(rank, (*this)[rank].context->world(), call, elements);
  }
  // As aiacc_finalize.
  GroupOperation& finalize(int rank) {
    (*this)[rank].context->world().say_last(1);
    return start_in_world(rank, Call{});
  }

  std::vector<Group*> groups;  // by rank; null where it is no member
  Duration limit = std::chrono::seconds(100);

 private:
  void finish_task(Task<void> task) {
    task.start();
    EXPECT_TRUE(world.run_while_not([&] { return task.done(); }));
    task.take();
  }
  std::deque<std::vector<float>> memory_;
};

}  // namespace aiacc::sim
