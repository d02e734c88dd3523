// For tests: calls that are made as the C ABI makes them, as what waits without an operation if they can. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/data/cpu_compute.h"
#include "runtime/group/calls_test.h"
#include "tests/sim_job.h"

namespace aiacc::sim {

class WaitingCallsTest : public ::testing::Test {
 protected:
  explicit WaitingCallsTest(const std::vector<std::uint32_t>& hosts) : job_(hosts, 1, {}, {}, &compute_) {}

  struct Started {
    std::vector<float>* result;
    std::unique_ptr<RequestedWork> work;
  };

  // Starts the call on a rank as the C ABI does: as what waits if it can.
  bool start(int rank, const Call& call, std::vector<float> send, std::size_t recv_count) {
    Context& context = *job_[rank].context;
    std::vector<float>& from = data_.emplace_back(std::move(send));
    std::vector<float>& into = data_.emplace_back(recv_count, -1.0f);
    started_[rank].push_back(
        {&into, context.world().prepare_waiting(PlainCall::of(call), buffer_of(from), buffer_of(into))});
    const bool waits = started_[rank].back().work != nullptr;
    if (!waits) started_[rank].back().work = context.world().prepare(call, buffer_of(from), buffer_of(into), nullptr);
    job_[rank].lane.begin_here(*started_[rank].back().work);
    return waits;
  }
  bool sum(int rank, std::size_t count = 1) {
    return start(rank, call_of(Collective::kAllreduce, count),
                 std::vector<float>(count, static_cast<float>(started_[rank].size() + 1)), count);
  }
  bool all_done() {
    return job_.all_done() && std::all_of(started_.begin(), started_.end(), [](const auto& its) {
             return std::all_of(its.second.begin(), its.second.end(), [](const auto& one) { return one.work->done(); });
           });
  }
  void finish() {
    EXPECT_TRUE(job_.world.run_while_not([this] { return all_done(); }));
  }
  Error error_of(int rank, std::size_t i) {
    const RequestedWork& work = *started_[rank][i].work;
    EXPECT_TRUE(work.done());
    return work.error() ? as_error(work.error()) : Error(Code::kOk, "");
  }
  void expect_sums() {
    for (auto& [rank, its] : started_) {
      for (std::size_t i = 0; i < its.size(); ++i) {
        ASSERT_EQ(error_of(rank, i).message(), "");
        ASSERT_EQ(its[i].result->back(), static_cast<float>(job_.size() * (i + 1))) << "rank " << rank << ", " << i;
      }
    }
  }
  void expect_idle() {
    for (auto& rank : job_.ranks) {
      EXPECT_EQ(rank->context->world().outstanding(), 0);
      EXPECT_TRUE(rank->context->watch().idle());
    }
  }

  CpuCompute compute_;
  std::deque<std::vector<float>> data_;
  SimJob job_;
  std::map<int, std::vector<Started>> started_;
};

}  // namespace aiacc::sim
