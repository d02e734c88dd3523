// groupcomm/gradient: the gradient engine. Rooms' neighbours: the negotiator (pure, negotiator.h) decides what is reduced when;
// GroupRounds carries its words between the ranks; here are the tensors, their memory and the allreduces. Not here: the C ABI.
//
// Engine: takes gradients as they become ready, on any thread, and reduces them over its group.
//
// Threads. Calls of the user put what they bring into an inbox, under a mutex; the lane's thread takes it out and does all
// else. A submission wakes the lane only when there is enough to begin a round with, or once a millisecond: until then the rank
// that computes is left alone. A waiting caller drives the lane itself; between waits the progress thread does, because other
// ranks ask for rounds at any time: an engine keeps it driving from its creation to its end.
//
// Launches begin in the order of the negotiator, which is the same on all ranks, at most `in_flight` at a time, and complete in
// that order too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/data/cpu_compute.h"
#include "base/task/lane.h"
#include "base/task/scope.h"
#include "groupcomm/gradient/group_rounds.h"
#include "groupcomm/gradient/kind.h"
#include "groupcomm/gradient/launches.h"
#include "groupcomm/gradient/negotiator.h"
#include "groupcomm/gradient/slots.h"
#include "groupcomm/gradient/submission.h"
#include "runtime/group/group.h"

namespace aiacc::gradient {

struct EngineOptions {
  std::string name;  // for messages: "gradient engine 'name'"
  std::size_t fusion_bytes = 8 << 20;
  int in_flight = 4;
  int schedule_steps = 5;  // -1: never
  Duration timeout{};      // of its allreduces, and of a tensor that waits for other ranks; Duration::max(): none
};

struct TensorOrder {
  std::string_view name;
  std::size_t count = 0;
  Kind kind;
};

struct EngineStats {
  std::uint64_t steps = 0, rounds = 0, negotiation_messages = 0, launches = 0, tensors = 0, bytes = 0, packed_bytes = 0,
                breaks = 0;
  bool scheduled = false;
};

class Engine final : private GroupRounds::Observer, private Launches::Owner {
 public:
  static constexpr std::size_t kMostTensors = 100'000;
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
  void remove(std::span<const std::uint32_t> tensors);
  void* memory(std::uint32_t tensor);
  // `submission` may be null; it lives until it is done.
  void submit(std::uint32_t tensor, const void* in, void* out, Submission* submission);
  void flush();
  // The caller waits for a submission.
  void urge() noexcept;
  // For a lane that threads drive: flushes, and waits until all that was submitted is reduced. Throws the first error.
  void wait();
  // Returns the rank that joined last.
  int join();
  const std::string& describe() const noexcept { return described_; }

  // --- the lane's thread -----------------------------------------------------------------------------------------------
  EngineStats count() const noexcept;
  // Submissions that are not complete.
  std::size_t pending() const noexcept { return pending_; }
  // Ends the engine: afterwards nothing of it refers to the group, and all submissions have ended.
  Task<void> close(Stop& stop);

 private:
  class Wait;
  struct Positions;
  struct Tensor {
    std::string name;
    std::size_t count = 0;
    std::size_t bytes = 0;
    Kind kind;
    Slots::Slot slot;
    // Guarded by mutex_.
    bool removed = false;
    bool outstanding = false;
    // Written by submit() before it is in the inbox, and then the lane's.
    void* out = nullptr;
    Submission* submission = nullptr;
    // The lane's.
    bool pending = false;  // submitted and not complete
    bool owed = false;     // launched with this rank's gradient and not complete: its follow-up completes it
  };
  struct Item {
    enum class What : std::uint8_t { kAdd, kReady, kFlush } what;
    std::uint32_t number = 0;
    Tensor* tensor = nullptr;
  };
  struct Service final : Work {  // keeps the lane driven while the engine lives
    explicit Service(Engine& of) : engine(of) {}
    void begin() noexcept override { engine.begin(); }
    void end() noexcept { finish(); }
    Engine& engine;
  };
  struct Poke final : Job, RemoteJob {  // the lane looks into the inbox
    explicit Poke(Engine& of) : engine(of) {}
    void run() noexcept override { on_driver(); }
    void on_driver() noexcept override { engine.poked(); }
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

  // Any thread, under mutex_.
  void check_usable();
  [[noreturn]] void throw_over();
  Tensor& checked(std::uint32_t tensor);
  void poke() noexcept;

  // The lane's thread.
  void begin() noexcept;
  void poked() noexcept;
  bool is_poked() const noexcept {
    const std::lock_guard lock(mutex_);
    return poked_;
  }
  bool somebody_waits() const noexcept {
    const std::lock_guard lock(mutex_);
    return urges_ > 0 || !waits_.empty();
  }
  void look_again() noexcept;
  void drain() noexcept;
  void take(const Item& item) noexcept;
  void begin_wait(Wait& wait) noexcept;
  std::exception_ptr refuse_wait() noexcept;
  template <class Input>
  void feed(Input&& input) noexcept;  // an input of the negotiator, and then what it wants
  void act();
  void launch(const Launch& launched);
  void owe(std::span<const std::uint32_t> indices);
  std::vector<std::byte> packed(std::span<const std::byte> payload) const;
  void learn_positions(std::span<const Positions> of_ranks);
  void due() noexcept;
  void late() noexcept;
  void arm_timers() noexcept;
  void finish_part(Launches::Flight& flight, Launches::Part& part);
  void add_up(const Kind& kind, std::byte* into, const std::byte* other, std::size_t bytes);
  void complete(Tensor& tensor, const std::exception_ptr& error) noexcept;
  void tell_waiters() noexcept;
  void joined(int rank) noexcept;
  void left(int rank);
  Error freed_by(int rank) const;
  void fail(std::exception_ptr error) noexcept;
  void settle_soon() noexcept;
  void settle() noexcept;
  Instant now() const noexcept { return loop_.now(); }

  void asked(std::uint64_t round) override;
  void result(std::uint64_t round, const Word& merged) override;
  void rounds_failed(const std::exception_ptr& error) noexcept override;
  void launch_ended(Launches::Flight& flight) override;
  void exchange_ended(std::span<const std::vector<std::byte>> payloads) override;
  void launches_failed(const std::exception_ptr& error) noexcept override;
  bool is_held(const Launches::Flight& flight) const noexcept override { return flight.serial >= whole_before_; }

  Lane& lane_;
  Loop& loop_;
  const EngineOptions options_;
  const std::string described_;

  mutable std::mutex mutex_;  // guards what follows
  std::deque<Tensor> tensors_;
  std::unordered_map<std::string, std::uint32_t> names_;
  std::vector<Item> inbox_;
  std::size_t inbox_bytes_ = 0;
  bool urged_ = false;
  int urges_ = 0;             // submissions that somebody waits for; for a moment one may be counted as ended first
  bool poked_ = false;        // the lane will look into the inbox
  bool looks_again_ = false;  // it will soon, by its timer
  bool closed_ = false;
  std::exception_ptr over_;  // why the engine is over
  bool over_told_ = false;   // to the user
  std::uint64_t packed_bytes_ = 0;

  // The lane's.
  Group* group_;
  Slots slots_;      // and of add(), under mutex_
  CpuCompute sums_;  // slots are memory of the host
  Service service_{*this};
  Poke poke_{*this};
  Settle settle_{*this};
  Alarm look_again_{*this, &Engine::look_again};
  Alarm due_{*this, &Engine::due};
  Alarm late_{*this, &Engine::late};
  Negotiator negotiator_;
  std::optional<GroupRounds> rounds_;
  std::optional<Launches> launches_;
  std::vector<Item> taken_;
  std::vector<Tensor*> by_local_;
  std::vector<std::uint64_t> positions_;                   // by agreed index
  std::map<std::uint32_t, std::vector<std::byte>> first_;  // results of launches that this rank gave zeros to, by index
  std::vector<Wait*> waits_;
  std::size_t pending_ = 0;
  Instant progressed_{};  // a launch began or ended, or the first of several submissions came
  // Launches with this serial and later ones may lack a rank's gradients: nobody is told of them yet.
  std::uint64_t whole_before_ = ~std::uint64_t{0};
  std::exception_ptr failed_;  // why the group is over
  bool left_ = false;          // some rank has: nobody negotiates any more
  bool acting_ = false;
  EngineStats counted_;
  Event quiet_;  // for close(): something has changed
};

}  // namespace aiacc::gradient
