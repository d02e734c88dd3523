// For tests: the ranks of a SimJob, each with a program, which is one coroutine and makes one call at a time. For components that a
// user's thread runs, and whose steps between collectives block in nothing.
#pragma once

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/sim_job.h"

namespace aiacc::sim {

class SimPrograms {
  struct Ended final : GroupOperation::Observer {
    explicit Ended(Loop& loop) : event(loop) {}
    void operation_ended(GroupOperation&) noexcept override { event.set(); }
    aiacc::Event event;
  };
  std::deque<Ended> ends_;  // operations end with the job

 public:
  using Program = std::function<Task<void>(int rank)>;

  SimJob job;

  explicit SimPrograms(const std::vector<std::uint32_t>& hosts, std::uint64_t seed = 1) : job(hosts, seed) {}
  ~SimPrograms() {
    const auto over = std::make_exception_ptr(Error(Code::kAborted, "the simulation is over"));
    for (int rank = 0; rank < job.size(); ++rank) {
      if (tasks_.empty() || ended(rank)) continue;
      job[rank].stop.request(over);
      job[rank].context->world().abort(over);
      job[rank].loop.bury();  // what its program has under way ends before the program does
    }
  }
  SimPrograms(const SimPrograms&) = delete;
  SimPrograms& operator=(const SimPrograms&) = delete;

  // Starts `program` on each living rank, and runs until it has ended on all that live then. False: it never does.
  bool run(Program program) {
    program_ = std::move(program);
    tasks_.clear();
    errors_.assign(static_cast<std::size_t>(job.size()), nullptr);
    for (int rank = 0; rank < job.size(); ++rank) tasks_.push_back(caught(rank));
    for (int rank = 0; rank < job.size(); ++rank) {
      if (!job[rank].loop.dead()) tasks_[static_cast<std::size_t>(rank)].start();
    }
    return job.world.run_while_not([this] {
      for (int rank = 0; rank < job.size(); ++rank) {
        if (!job[rank].loop.dead() && !tasks_[static_cast<std::size_t>(rank)].done()) return false;
      }
      return true;
    });
  }
  bool ended(int rank) const { return tasks_[static_cast<std::size_t>(rank)].done(); }
  // What the program of a rank threw; kOk if nothing.
  Error error(int rank) const {
    const std::exception_ptr& why = errors_[static_cast<std::size_t>(rank)];
    return why ? as_error(why) : Error(Code::kOk, "");
  }

  // For programs: a call on the world.
  Task<void> call(int rank, Call call, Buffer send, Buffer recv) {
    SimContext& context = job[rank];
    context.operations.push_back(context.context->world().prepare(call, send, recv, nullptr));
    GroupOperation& operation = *context.operations.back();
    Ended& ended = ends_.emplace_back(context.loop);
    operation.observe(ended);
    context.lane.start(operation);
    co_await ended.event.wait(context.stop);
    if (operation.error()) std::rethrow_exception(operation.error());
  }
  Task<void> sleep(int rank, Duration span) { co_await sleep_for(job[rank].loop, span, job[rank].stop); }

  // Kills a rank at that event; the others hear of it one after another, as from their agents.
  void kill_at_event(std::uint64_t event, int dead) {
    job.world.at_event(event, [this, dead] {
      job.world.kill(job[dead].loop.node());
      for (int rank = 0; rank < job.size(); ++rank) {
        if (rank == dead) continue;
        job.world.at(after(job.world.now(), std::chrono::milliseconds(2 + rank)), [this, rank, dead] {
          const Error why(Code::kPeerFailed, "rank " + std::to_string(dead) + " was killed by signal 9", dead);
          if (!job[rank].loop.dead()) job[rank].context->on_rank_lost(dead, std::make_exception_ptr(why));
        });
      }
    });
  }

 private:
  Task<void> caught(int rank) {
    try {
      co_await program_(rank);
    } catch (...) {
      errors_[static_cast<std::size_t>(rank)] = std::current_exception();
    }
  }

  Program program_;
  std::vector<std::exception_ptr> errors_;
  std::deque<Task<void>> tasks_;  // their frames are in pools of the job's
};

inline Buffer buffer_over(void* data, std::size_t bytes) {
  Buffer buffer;
  buffer.data = static_cast<std::byte*>(data);
  buffer.bytes = bytes;
  return buffer;
}

}  // namespace aiacc::sim
