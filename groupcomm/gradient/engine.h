// groupcomm/gradient: the gradient engine. Rooms' neighbours: the negotiator (pure, negotiator.h) decides what is reduced when;
// GroupRounds carries its words between the ranks; here are the tensors, their memory and the allreduces. Not here: the C ABI.
//
// Engine: takes gradients as they become ready, on any thread, and reduces them over its group.
//
// Calls of the user bring tensors to an Inbox, on any thread; all else is done on the lane's thread. A waiting caller drives the
// lane itself; between waits the progress thread does, because other ranks ask for rounds at any time: an engine keeps it
// driving from its creation to its end.
//
// Launches begin in the order of the negotiator, which is the same on all ranks, at most `in_flight` at a time, or more that are
// short, and complete in that order too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/task/lane.h"
#include "base/task/scope.h"
#include "groupcomm/gradient/group_rounds.h"
#include "groupcomm/gradient/inbox.h"
#include "groupcomm/gradient/launches.h"
#include "groupcomm/gradient/negotiator.h"
#include "groupcomm/gradient/positions.h"
#include "groupcomm/gradient/results.h"
#include "groupcomm/gradient/trace.h"
#include "groupcomm/gradient/tuning.h"
#include "runtime/group/group.h"
#include "runtime/metrics/metrics.h"

namespace aiacc::gradient {

struct EngineOptions {
  std::string name;  // for messages: "gradient engine 'name'"
  std::size_t fusion_bytes = 8 << 20;
  int in_flight = 4;
  int schedule_steps = 5;  // -1: never
  WireType wire = WireType::kFloat32;
  bool nan_check = false;
  bool tunes = false;                                              // fusion_bytes, in_flight and the algorithm
  std::string tune_cache;                                          // a path; empty: nothing is remembered
  std::function<void(const std::string& line, bool warns)> tells;  // a line of the log
  Duration timeout{};  // of its allreduces, and of a tensor that waits for other ranks; Duration::max(): none
  Duration late_after = std::chrono::seconds(60);  // until all ranks report who has not submitted what
};

struct EngineStats {
  std::uint64_t steps = 0, rounds = 0, negotiation_messages = 0, launches = 0, tensors = 0, bytes = 0, packed_bytes = 0,
                breaks = 0, wire_bytes = 0;
  bool scheduled = false;
  bool tunes = false, settled = false;
  TunedSetting setting;
  std::uint64_t tune_steps = 0, tune_searches = 0;
  const char* algorithm = nullptr;  // of long allreduces between hosts, by the tuner; null: the usual one
};

class Engine final : private Inbox::Owner,
                     private GroupRounds::Observer,
                     private Launches::Owner,
                     private Metrics::Source {
 public:
  static constexpr std::size_t kLongestName = 1000;

  // On the lane's thread. `group` is the engine's own and is there until close() has ended; the context outlives the engine.
  Engine(Group& group, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- any thread ------------------------------------------------------------------------------------------------------
  // Call first, once. From then on the lane is driven until close() has ended.
  void start();
  // All or none.
  void add(std::span<const TensorOrder> tensors, std::uint32_t* indices);
  void remove(std::span<const std::uint32_t> tensors) { inbox_.remove(tensors); }
  void* memory(std::uint32_t tensor) { return inbox_.memory(tensor); }
  bool in_place(std::uint32_t tensor) { return inbox_.in_place(tensor); }
  // `submission` may be null; it lives until it is done.
  void submit(std::uint32_t tensor, const void* in, void* out, Submission* submission) {
    inbox_.submit(tensor, in, out, submission);
  }
  void submit_rows(std::uint32_t tensor, RowsView rows, Submission* submission) {
    inbox_.submit_rows(tensor, rows, submission);
  }
  RowsView rows(std::uint32_t tensor) { return inbox_.rows(tensor); }
  void flush() { inbox_.flush(); }
  // The caller waits for a submission.
  void urge() noexcept { inbox_.urge(); }
  // For a lane that threads drive: flushes, and waits until all that was submitted is reduced. Throws the first error.
  void wait();
  // False: the tensor is still outstanding after `limit`. Throws if the engine is over; what is not finite, wait() tells.
  bool wait_for(std::uint32_t tensor, Duration limit);
  // Returns the rank that joined last.
  int join();
  // What these three run on the lane (engine_wait.h). A lane that is driven from outside only starts them.
  class Wait;
  class TensorWait;

  // --- the lane's thread -----------------------------------------------------------------------------------------------
  EngineStats count() const noexcept;
  MetricsSample sample() const noexcept override;
  // Ends the engine: afterwards nothing of it refers to the group, and all submissions have ended.
  Task<void> close(Stop& stop);

 private:
  using Tensor = Inbox::Tensor;
  struct Service final : Work {  // keeps the lane driven while the engine lives
    explicit Service(Engine& of) : engine(of) {}
    void begin() noexcept override { engine.begin(); }
    void end() noexcept { finish(); }
    Engine& engine;
  };
  struct Settle final : Job {
    explicit Settle(Engine& of) : engine(of) {}
    void run() noexcept override { engine.settle(); }
    Engine& engine;
  };
  struct Alarm final : Timer {
    Alarm(Engine& of, void (Engine::*what)() noexcept) : engine(of), rings(what) {}
    void expired() noexcept override { (engine.*rings)(); }
    Engine& engine;
    void (Engine::*rings)() noexcept;
  };

  // What the user brought, and what the negotiator wants (engine.cc).
  void begin() noexcept;
  void brought() noexcept override;
  void drain() noexcept;
  void take(const Inbox::Item& item) noexcept;
  bool somebody_waits() const noexcept { return inbox_.somebody_waits() || !waits_.empty() || !tensor_waits_.empty(); }
  void begin_wait(Wait& wait) noexcept;
  void begin_wait(TensorWait& wait) noexcept;
  void drop(TensorWait& wait) noexcept;
  void review_tensor_waits() noexcept;
  std::exception_ptr refuse_wait() noexcept;
  template <class Input>
  void feed(Input&& input) noexcept;  // an input of the negotiator, and then what it wants
  void act();
  bool next_action(Action& action);
  void launch(const Launch& launched);
  void owe(std::span<const std::uint32_t> indices);
  std::vector<std::byte> described_tensors(std::span<const std::byte> payload);
  void due() noexcept;
  void late() noexcept;
  void stalled(const std::string& report);
  void arm_timers() noexcept;
  void asked(std::uint64_t round) override;
  void result(std::uint64_t round, const Word& merged) override;
  void begin_pass(bool votes);
  const inter::AlgorithmInfo* alternative(TunedSetting setting) const noexcept;  // null: none
  void vote_ended(std::span<const std::byte> most) override;
  void exchange_ended(std::span<const std::vector<std::byte>> payloads) override;

  void choose_wire(TensorOrder& order) const;

  // What ends: launches, waits, and the engine (engine_ends.cc).
  void launch_ended(Launches::Flight& flight) override;
  bool is_held(const Launches::Flight& flight) const noexcept override { return flight.serial >= whole_before_; }
  void complete(Tensor& tensor, const std::exception_ptr& error) noexcept;
  std::exception_ptr error_of(const Launches::Part& part, const Tensor& tensor);
  void submit_again();
  void tell_waiters() noexcept;
  void tell_waiters(const Tensor& tensor, const std::exception_ptr& error) noexcept;
  void end_joins(int last_rank, const std::exception_ptr& error) noexcept;
  void left(int rank, std::uint64_t not_whole_from);
  void leave_out(Tensor& tensor) noexcept;
  bool leaves_out(const Launches::Flight& flight, const Launches::Part& part) const noexcept;
  std::exception_ptr freed_by(int rank) const;
  void fail(std::exception_ptr error) noexcept;
  void settle_soon() noexcept;
  void settle() noexcept;
  void end_all() noexcept;
  void rounds_failed(const std::exception_ptr& error) noexcept override;
  void launches_failed(const std::exception_ptr& error) noexcept override;
  void call_ended(bool reduces) noexcept override;
  void nothing_runs() noexcept override;
  Task<void> say_goodbye(Stop& stop);

  Instant now() const noexcept { return loop_.now(); }

  Lane& lane_;
  Loop& loop_;
  const EngineOptions options_;
  const bool spans_hosts_;
  Group* group_;
  EngineTrace trace_;
  Inbox inbox_;
  Service service_{*this};
  Settle settle_{*this};
  Alarm due_{*this, &Engine::due};
  Alarm late_{*this, &Engine::late};
  Negotiator negotiator_;
  std::optional<Tuning> tuning_;                           // if there is something to tune
  std::vector<const inter::AlgorithmInfo*> alternatives_;  // of its allreduces between hosts
  std::optional<GroupRounds> rounds_;
  std::optional<Launches> launches_;
  Positions positions_;
  Results results_;
  std::vector<Inbox::Item> taken_;
  std::vector<Tensor*> by_local_;
  std::vector<Wait*> waits_;
  std::vector<TensorWait*> tensor_waits_;
  std::size_t pending_ = 0;  // submissions that are not complete
  Instant progressed_{};     // a launch began, an allreduce ended, or the first of several submissions came
  std::string lacking_;      // who has not submitted what, as the ranks found at lacking_since_
  Instant lacking_since_{};
  // Launches with this serial and later ones may lack a rank's gradients: nobody is told of them yet.
  std::uint64_t whole_before_ = ~std::uint64_t{0};
  std::exception_ptr failed_;                         // why the group is over
  std::exception_ptr left_;                           // some rank has: nobody negotiates any more
  bool left_some_out_ = false;                        // of what was submitted: told to each wait
  std::uint64_t not_whole_from_ = ~std::uint64_t{0};  // launches that only some ranks had begun by then
  bool acting_ = false;
  std::vector<Tensor*> again_;  // left the range of the wire, on all ranks: they are submitted once more
  std::map<std::uint32_t, int> not_finite_ranks_;  // by agreed index, told before the tensor's launch: the rank
  std::set<std::uint32_t> not_finite_first_;       // first launches that follow-ups complete
  std::exception_ptr not_finite_;                  // of a tensor since the last wait
  EngineStats counted_;
  MetricsSample measured_;  // what counted_ has not
  Event quiet_;             // for close(): something has changed
};

template <class Input>
void Engine::feed(Input&& input) noexcept {
  if (failed_) return;
  try {
    input();
    act();
  } catch (...) {
    fail(std::current_exception());
  }
  arm_timers();
}

}  // namespace aiacc::gradient
