// For tests: whole engines of simulated ranks that end at different times: one has fewer steps than others or joins, leaves a tensor
// out, frees its engine at once or while gradients are outstanding, stands still, or dies. What each submission, wait and join ended
// with is compared with what the manual says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/sim/random.h"
#include "groupcomm/gradient/engine.h"
#include "groupcomm/gradient/engine_wait.h"
#include "groupcomm/gradient/submission.h"
#include "tests/sim_job.h"

namespace aiacc::gradient::test {

struct RankPlan {
  int steps = 3;
  std::size_t left_out_one_in = 0;  // tensor of the last step; 0: none
  int most_gap_us = 40;             // between two submissions
  bool joins = false;
  bool waits = true;               // for its last step; false: it frees its engine while that is outstanding
  std::size_t looks_one_in = 0;    // submission: waits for the tensor alone, for a short time
  Duration before_free{};          // after its last wait
  std::optional<Duration> killed;  // after the beginning
  std::optional<Duration> frozen;
  Duration frozen_for{};
};

struct LeavingPlan {
  std::vector<std::uint32_t> hosts;
  std::uint64_t seed = 1;
  std::vector<std::size_t> counts;  // elements of each tensor
  std::set<std::size_t> tables;     // of these: tables with as many rows of one element, some of which are submitted
  std::vector<RankPlan> ranks;
  int schedule_steps = 3;
  int in_flight = 2;
  std::size_t fusion_bytes = 20'000;
  bool priorities = false;
  bool tunes = false;
  WireType wire = WireType::kFloat32;
  bool nan_check = false;
  std::uint64_t not_finite_one_in = 0;  // submission; 0: none
  // Of the n-th submission of a tensor.
  bool is_finite(std::size_t rank, std::size_t tensor, std::size_t nth) const {
    if (not_finite_one_in == 0 || counts[tensor] == 0) return true;
    return sim::Random(seed * 1'000'003 + rank * 10'007 + tensor * 101 + nth).below(not_finite_one_in) != 0;
  }
  bool dies() const {
    return std::any_of(ranks.begin(), ranks.end(), [](const RankPlan& rank) { return rank.killed.has_value(); });
  }
  bool all_wait() const {
    return std::all_of(ranks.begin(), ranks.end(), [](const RankPlan& rank) { return rank.waits; });
  }
};

// Of one submission.
struct Outcome {
  bool ended = false;
  Error error{Code::kOk, ""};
  bool ok() const { return ended && error.code() == Code::kOk; }
};

// What the n-th submission of a tensor has on a rank: small whole numbers, whose sums are exact. Of a table a rank has none of most rows
// in most submissions, and most of them in others.
inline float leaving_value(const LeavingPlan& plan, std::size_t rank, std::size_t tensor, std::size_t nth,
                           std::size_t at) {
  const float value = static_cast<float>((rank * 3 + nth * 7 + tensor * 5 + at) % 16);
  if (!plan.tables.contains(tensor)) return value;
  const std::size_t one_in = (rank + nth) % 4 == 0 ? 10'007 : nth % 3 == 0 ? 1 : 5;
  return (at * 7 + rank) % one_in == 0 ? value : 0;
}

class LeavingRank {
 public:
  LeavingRank(sim::SimContext& context, std::size_t rank, const LeavingPlan& plan)
      : context_(context), rank_(rank), plan_(plan), random_(plan.seed * 1000 + rank), submitted(plan.counts.size()) {
    EngineOptions options;
    options.name = "sim";
    options.fusion_bytes = plan.fusion_bytes;
    options.schedule_steps = plan.schedule_steps;
    options.in_flight = plan.in_flight;
    options.tunes = plan.tunes;
    options.wire = plan.wire;
    options.nan_check = plan.nan_check;
    options.timeout = std::chrono::seconds(20);
    engine = std::make_shared<Engine>(context.context->world(), options);
    engine->start();
    for (std::size_t tensor = 0; tensor < plan.counts.size(); ++tensor) {
      const std::string name = "tensor " + std::to_string(tensor);
      TensorOrder order;
      order.name = name;
      order.count = plan.counts[tensor];
      if (plan.tables.contains(tensor)) order.kind.row_elements = 1;
      order.priority = plan.priorities ? -static_cast<std::int32_t>(tensor % 3) : 0;
      std::uint32_t number = 0;
      engine->add({&order, 1}, &number);
    }
    current_.resize(plan.counts.size());
    told_.resize(plan.counts.size());
  }

  Task<void> run(Stop& stop) {
    const RankPlan& mine = plan_.ranks[rank_];
    bool goes_on = true;
    for (int step = 0; step < mine.steps && goes_on; ++step) {
      const bool last = step + 1 == mine.steps;
      goes_on = co_await submit_step(last, stop);
      if (goes_on && (!last || mine.waits)) goes_on = co_await wait(stop) || leaves_out_step();
    }
    if (goes_on && mine.joins && mine.waits) co_await join(stop);
    co_await sleep_for(context_.loop, mine.before_free, stop);
    frees = context_.loop.now();
    co_await engine->close(stop);
    freed = context_.loop.now();
    collect();
  }

  // The engine of a rank that was killed in a wait still refers to it.
  std::deque<Engine::Wait> waits;
  std::deque<Engine::TensorWait> tensor_waits;
  std::shared_ptr<Engine> engine;
  std::optional<Instant> frees, freed;  // began, ended
  std::vector<std::string> faults;
  std::vector<Error> errors;  // that its waits and submissions were told
  std::optional<int> last_joined;
  bool refused_join = false;
  std::uint64_t scheduled_steps = 0;

 private:
  struct Current {
    std::unique_ptr<Submission> submission;
    std::vector<float> out;
  };

  Task<bool> submit_step(bool last, Stop& stop) {
    const RankPlan& mine = plan_.ranks[rank_];
    std::vector<std::size_t> order(plan_.counts.size());
    for (std::size_t at = 0; at < order.size(); ++at) order[at] = order.size() - 1 - at;
    if (random_.below(12) == 0) std::swap(order[random_.below(order.size())], order[random_.below(order.size())]);
    for (const std::size_t tensor : order) {
      co_await sleep_for(context_.loop,
                         std::chrono::microseconds(random_.below(static_cast<std::uint64_t>(mine.most_gap_us) + 1)),
                         stop);
      if (last && mine.left_out_one_in != 0 && random_.below(mine.left_out_one_in) == 0) continue;
      if (!submit(tensor)) co_return false;
      if (random_.below(20) == 0) flush();
      if (mine.looks_one_in != 0 && random_.below(mine.looks_one_in) == 0) co_await look(tensor, stop);
    }
    co_return true;
  }

  void flush() {
    try {
      engine->flush();
    } catch (...) {
      errors.push_back(as_error(std::current_exception()));
    }
  }

  bool submit(std::size_t tensor) {
    collect();
    Current& current = current_[tensor];
    const std::size_t nth = submitted[tensor].size();
    std::vector<float> in(plan_.counts[tensor]);
    for (std::size_t at = 0; at < in.size(); ++at) in[at] = leaving_value(plan_, rank_, tensor, nth, at);
    if (!plan_.is_finite(rank_, tensor, nth)) in.back() = std::numeric_limits<float>::quiet_NaN();
    current.out.assign(in.size(), -1.0f);
    auto submission = std::make_unique<Submission>(engine);
    try {
      if (plan_.tables.contains(tensor)) {
        submit_rows(tensor, in, *submission);
      } else {
        engine->submit(static_cast<std::uint32_t>(tensor), in.data(), current.out.data(), submission.get());
      }
    } catch (...) {
      errors.push_back(as_error(std::current_exception()));
      return false;
    }
    current.submission = std::move(submission);
    submitted[tensor].push_back({});
    return true;
  }

  void submit_rows(std::size_t tensor, const std::vector<float>& table, Submission& submission) {
    std::vector<std::int64_t> rows;
    std::vector<float> elements;
    for (std::size_t at = table.size(); at-- > 0;) {  // in no order
      if (table[at] == 0) continue;
      rows.push_back(static_cast<std::int64_t>(at));
      elements.push_back(table[at]);
    }
    engine->submit_rows(static_cast<std::uint32_t>(tensor), {rows, reinterpret_cast<const std::byte*>(elements.data())},
                        &submission);
  }

  // The rows of the result in a table of zeros. False: the engine is closed, and its memory gone.
  bool read_rows(std::size_t tensor, std::vector<float>& table) {
    if (freed) return false;
    const RowsView rows = engine->rows(static_cast<std::uint32_t>(tensor));
    std::fill(table.begin(), table.end(), 0.0F);
    for (std::size_t at = 0; at < rows.numbers.size(); ++at)
      std::memcpy(&table[static_cast<std::size_t>(rows.numbers[at])], rows.elements + at * sizeof(float),
                  sizeof(float));
    return true;
  }

  // Of what has ended: how it did.
  void collect() {
    for (std::size_t tensor = 0; tensor < current_.size(); ++tensor) {
      Current& current = current_[tensor];
      if (current.submission == nullptr || !current.submission->done()) continue;
      Outcome& outcome = submitted[tensor].back();
      outcome.ended = true;
      if (current.submission->error()) {
        outcome.error = as_error(current.submission->error());
        if (outcome.error.code() != Code::kNotFinite &&
            std::any_of(current.out.begin(), current.out.end(), [](float value) { return value != -1.0f; }))
          faults.push_back("an error has written to the result of " + named(tensor));
        if (plan_.tables.contains(tensor) && !freed &&
            !engine->rows(static_cast<std::uint32_t>(tensor)).numbers.empty())
          faults.push_back("there are rows after an error of " + named(tensor));
      } else if (!plan_.tables.contains(tensor) || read_rows(tensor, current.out)) {
        results[{tensor, submitted[tensor].size() - 1}] = current.out;
      }
      current.submission = nullptr;
    }
  }
  bool outstanding() {
    collect();
    return std::any_of(current_.begin(), current_.end(), [](const Current& one) { return one.submission != nullptr; });
  }
  std::string named(std::size_t tensor) const {
    return "tensor " + std::to_string(tensor) + ", submission " + std::to_string(submitted[tensor].size() - 1) +
           " of rank " + std::to_string(rank_);
  }

  // True: all is well. By the engine's own wait, or by each request.
  Task<bool> wait(Stop& stop) {
    if (random_.below(3) == 0) {
      flush();
      for (Current& one : current_)
        if (one.submission != nullptr) one.submission->expect();
      while (outstanding()) co_await sleep_for(context_.loop, std::chrono::microseconds(20), stop);
    } else {
      Engine::Wait& wait = waits.emplace_back(*engine, false);
      context_.lane.start(wait);
      while (!wait.done()) co_await sleep_for(context_.loop, std::chrono::microseconds(20), stop);
      if (outstanding())
        faults.push_back("a wait has ended before what was submitted on rank " + std::to_string(rank_));
      if (wait.why) errors.push_back(as_error(wait.why));
      const bool all = all_well();
      if (!wait.why && !all)
        faults.push_back("a wait ended well, and a gradient with an error on rank " + std::to_string(rank_));
      if (wait.why && all && as_error(wait.why).code() == Code::kAborted && !engine_is_over(as_error(wait.why)))
        faults.push_back("a wait ended with an error, and all gradients well");
    }
    if (engine->count().scheduled) ++scheduled_steps;
    const bool all = all_well();
    for (std::size_t tensor = 0; tensor < submitted.size(); ++tensor) told_[tensor] = submitted[tensor].size();
    co_return all;
  }
  // Whether nothing but gradients that are not finite has failed.
  bool leaves_out_step() const {
    return std::all_of(submitted.begin(), submitted.end(), [](const auto& of) {
      return of.empty() || of.back().ok() || of.back().error.code() == Code::kNotFinite;
    });
  }
  bool engine_is_over(const Error&) const { return plan_.dies(); }
  // What was submitted since the last wait.
  bool all_well() const {
    for (std::size_t tensor = 0; tensor < submitted.size(); ++tensor) {
      if (submitted[tensor].size() > told_[tensor] && !submitted[tensor].back().ok()) return false;
    }
    return true;
  }

  Task<void> look(std::size_t tensor, Stop& stop) {
    Engine::TensorWait* const wait = &tensor_waits.emplace_back(*engine, static_cast<std::uint32_t>(tensor),
                                                                std::chrono::microseconds(random_.below(3000)));
    context_.lane.start(*wait);
    while (!wait->done()) co_await sleep_for(context_.loop, std::chrono::microseconds(5), stop);
    collect();
    const Outcome& outcome = submitted[tensor].back();
    const bool was_reduced = outcome.ok() || outcome.error.code() == Code::kNotFinite;
    if (wait->in_time && !wait->why && !was_reduced)
      faults.push_back("a wait for " + named(tensor) + " ended well, which is not reduced");
    if (wait->why) errors.push_back(as_error(wait->why));
  }

  Task<void> join(Stop& stop) {
    Engine::Wait& wait = waits.emplace_back(*engine, true);
    context_.lane.start(wait);
    while (!wait.done()) co_await sleep_for(context_.loop, std::chrono::microseconds(20), stop);
    if (wait.why) {
      errors.push_back(as_error(wait.why));
      refused_join = true;
    } else {
      last_joined = wait.last_rank;
    }
  }

  sim::SimContext& context_;
  const std::size_t rank_;
  const LeavingPlan& plan_;
  sim::Random random_;
  std::vector<Current> current_;
  std::vector<std::size_t> told_;  // by tensor: submissions before the last wait

 public:
  std::vector<std::vector<Outcome>> submitted;  // by tensor
  std::map<std::pair<std::size_t, std::size_t>, std::vector<float>> results;
};

class LeavingWorld {
 public:
  explicit LeavingWorld(LeavingPlan the_plan) : plan(std::move(the_plan)), job(plan.hosts, plan.seed) {
    for (int rank = 0; rank < job.size(); ++rank)
      ranks.push_back(std::make_unique<LeavingRank>(job[rank], static_cast<std::size_t>(rank), plan));
  }
  ~LeavingWorld() {
    const auto over = std::make_exception_ptr(Error(Code::kAborted, "the simulation is over"));
    for (std::size_t rank = 0; rank < tasks_.size(); ++rank) {
      if (tasks_[rank].done()) continue;
      sim::SimContext& context = job[static_cast<int>(rank)];
      context.stop.request(over);
      context.context->world().abort(over);
      context.loop.bury();
    }
  }

  // Runs all ranks to their ends, for `limit` at most, and looks at what they had.
  void run(Duration limit = std::chrono::seconds(60)) {
    for (int rank = 0; rank < job.size(); ++rank) {
      const RankPlan& mine = plan.ranks[static_cast<std::size_t>(rank)];
      if (mine.killed) job.world.at(after(job.began, *mine.killed), [this, rank] { kill(rank); });
      if (mine.frozen) {
        job.world.at(after(job.began, *mine.frozen), [this, rank] { job.world.freeze(job[rank].loop.node()); });
        job.world.at(after(job.began, *mine.frozen + mine.frozen_for),
                     [this, rank] { job.world.thaw(job[rank].loop.node()); });
      }
      tasks_.push_back(ranks[static_cast<std::size_t>(rank)]->run(job[rank].stop));
    }
    for (Task<void>& task : tasks_) task.start();
    const Instant end = after(job.began, limit);
    job.world.run_while_not([&] { return job.world.now() > end || all_ended(); });
    for (int rank = 0; rank < job.size(); ++rank) {
      if (!lives(rank)) continue;
      if (!tasks_[static_cast<std::size_t>(rank)].done()) {
        faults.push_back("rank " + std::to_string(rank) +
                         (ranks[static_cast<std::size_t>(rank)]->frees ? " still frees its engine" : " still waits"));
      } else {
        tasks_[static_cast<std::size_t>(rank)].take();
      }
      const LeavingRank& one = *ranks[static_cast<std::size_t>(rank)];
      faults.insert(faults.end(), one.faults.begin(), one.faults.end());
    }
    if (!faults.empty()) return;
    check_results();
    check_errors();
    if (!plan.dies()) check_agreement();
  }
  bool lives(int rank) { return !job[rank].loop.dead(); }

  const LeavingPlan plan;
  sim::SimJob job;
  std::vector<std::unique_ptr<LeavingRank>> ranks;
  std::vector<std::string> faults;

 private:
  bool all_ended() {
    for (int rank = 0; rank < job.size(); ++rank)
      if (lives(rank) && !tasks_[static_cast<std::size_t>(rank)].done()) return false;
    return true;
  }
  void kill(int dead) {
    job.world.kill(job[dead].loop.node());
    for (int rank = 0; rank < job.size(); ++rank) {
      if (rank == dead) continue;
      job.world.at(after(job.world.now(), std::chrono::milliseconds(2 + rank)), [this, rank, dead] {
        const Error why(Code::kPeerFailed, "rank " + std::to_string(dead) + " was killed by signal 9", dead);
        if (lives(rank)) job[rank].context->on_rank_lost(dead, std::make_exception_ptr(why));
      });
    }
  }

  // A rank that never submitted it has joined, and gave zeros; otherwise there is no result.
  void check_results() {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!lives(static_cast<int>(rank))) continue;
      for (const auto& [which, result] : ranks[rank]->results) {
        const auto& [tensor, nth] = which;
        if (plan.nan_check && !all_finite(tensor, nth)) {
          faults.push_back("rank " + std::to_string(rank) + " has a result of tensor " + std::to_string(tensor) +
                           ", submission " + std::to_string(nth) + ", which is not finite");
        }
        for (std::size_t at = 0; at < result.size(); ++at) {
          float sum = 0;
          for (std::size_t of = 0; of < ranks.size(); ++of)
            if (ranks[of]->submitted[tensor].size() > nth) sum += leaving_value(plan, of, tensor, nth, at);
          if (result[at] == sum) continue;
          faults.push_back("wrong result of tensor " + std::to_string(tensor) + ", submission " + std::to_string(nth) +
                           " on rank " + std::to_string(rank));
          break;
        }
        for (std::size_t of = 0; of < ranks.size(); ++of) {
          if (ranks[of]->submitted[tensor].size() <= nth && !plan.ranks[of].joins)
            faults.push_back("rank " + std::to_string(rank) + " has a result of tensor " + std::to_string(tensor) +
                             ", submission " + std::to_string(nth) + ", which rank " + std::to_string(of) +
                             " has not submitted");
        }
      }
    }
  }

  bool all_finite(std::size_t tensor, std::size_t nth) const {
    for (std::size_t of = 0; of < ranks.size(); ++of) {
      if (ranks[of]->submitted[tensor].size() > nth && !plan.is_finite(of, tensor, nth)) return false;
    }
    return true;
  }
  void check_error(std::size_t rank, const Error& error) {
    if (error.code() == Code::kOk) return;
    if (error.code() == Code::kNotFinite && plan.nan_check && plan.not_finite_one_in != 0) return;
    const std::string said = "rank " + std::to_string(rank) + " was told '" + error.message() + "'";
    const int named = error.peer();
    if (named < 0 || named >= job.size()) return faults.push_back(said + ", which names no rank");
    if (error.message().find("rank " + std::to_string(named)) == std::string::npos)
      return faults.push_back(said + ", and not rank " + std::to_string(named));
    const bool died = !lives(named);
    const bool has_freed = ranks[static_cast<std::size_t>(named)]->frees.has_value();
    if (!died && !has_freed) faults.push_back(said + ", but that rank has not ended");
    if (!plan.dies() && error.code() != Code::kAborted)
      faults.push_back(said + " with status " + std::to_string(static_cast<int>(error.code())));
  }
  void check_errors() {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!lives(static_cast<int>(rank))) continue;
      for (const Error& error : ranks[rank]->errors) check_error(rank, error);
      for (const auto& of : ranks[rank]->submitted) {
        for (const Outcome& outcome : of) {
          if (!outcome.ended) faults.push_back("a submission of rank " + std::to_string(rank) + " has not ended");
          check_error(rank, outcome.error);
        }
      }
    }
  }

  // Without a death a submission ends alike on all ranks that have it. If no rank frees its engine before its gradients are reduced,
  // what all ranks have submitted is reduced, whoever frees the engine after that.
  void check_agreement() {
    for (std::size_t tensor = 0; tensor < plan.counts.size(); ++tensor) {
      std::size_t most = 0;
      for (const auto& rank : ranks) most = std::max(most, rank->submitted[tensor].size());
      for (std::size_t nth = 0; nth < most; ++nth) {
        std::size_t have = 0, well = 0;
        for (const auto& rank : ranks) {
          if (rank->submitted[tensor].size() <= nth) continue;
          ++have;
          well += rank->submitted[tensor][nth].ok() ? 1 : 0;
        }
        const std::string what = "tensor " + std::to_string(tensor) + ", submission " + std::to_string(nth);
        if (well != 0 && well != have)
          faults.push_back(what + " ended well on " + std::to_string(well) + " of " + std::to_string(have) + " ranks");
        for (std::size_t of = 0; of < ranks.size() && all_finite(tensor, nth); ++of) {
          const auto& outcomes = ranks[of]->submitted[tensor];
          if (outcomes.size() > nth && outcomes[nth].error.code() == Code::kNotFinite)
            faults.push_back(what + " is finite on all ranks, and not for rank " + std::to_string(of));
        }
        if (plan.all_wait() && have == ranks.size() && well != have && all_finite(tensor, nth))
          faults.push_back(what + " was submitted by all ranks, and not reduced");
      }
    }
    std::optional<int> last;
    for (const auto& rank : ranks) {
      if (!rank->last_joined) continue;
      if (last && *last != *rank->last_joined) faults.push_back("joins name different ranks as the last");
      last = rank->last_joined;
    }
  }

  std::vector<Task<void>> tasks_;
};

}  // namespace aiacc::gradient::test
