// SimLoop: the loop of one simulated process. Jobs keep their order within a node (as a real loop keeps it) and are
// permuted against those of other nodes, and against timers and arrivals, by the seed.
//
// A killed node keeps its suspended coroutines, and none of them runs again. Its owner ends them with bury() after
// requesting their Stops, outside of virtual time, so that scopes are joined and frames destroyed in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "base/io/clock.h"
#include "base/sim/world.h"
#include "base/task/loop.h"
#include "base/task/timer_queue.h"

namespace aiacc::sim {

class SimLoop final : public Loop {
 public:
  SimLoop(World& world, std::string name) : world_(world), node_(world.add_node(std::move(name))) {}

  World& world() const noexcept { return world_; }
  NodeId node() const noexcept { return node_; }
  bool dead() const noexcept { return world_.dead(node_); }

  Instant now() noexcept override { return std::max(world_.now(), buried_at_); }
  void post(Job& job) noexcept override;
  // One thread drives the whole world, so everything is posted directly.
  void wake() noexcept override {}

  // Runs the remaining jobs and timers of a dead or abandoned node without advancing time. No event is traced.
  void bury() noexcept;

 private:
  struct Turn final : Event {
    explicit Turn(SimLoop& loop) noexcept : Event(EventKind::kTurn), owner(loop) {}
    void happen() noexcept override { owner.run_one_job(); }
    SimLoop& owner;
  };
  struct Alarm final : Event {
    explicit Alarm(SimLoop& loop) noexcept : Event(EventKind::kAlarm), owner(loop) {}
    void happen() noexcept override { owner.run_one_timer(); }
    SimLoop& owner;
  };

  void do_arm(Timer& timer) override;
  void do_disarm(Timer& timer) noexcept override;
  void run_one_job() noexcept;
  void run_one_timer() noexcept;
  void set_alarm() noexcept;

  World& world_;
  NodeId node_;
  IntrusiveList<Job> jobs_;
  TimerQueue timers_;
  Instant buried_at_{};  // its time, once bury() has begun
  Turn turn_{*this};
  Alarm alarm_{*this};
};

class SimClock final : public io::Clock {
 public:
  explicit SimClock(World& world) noexcept : world_(world) {}
  Instant now() noexcept override { return world_.now(); }
  std::int64_t wall_ns() noexcept override { return kEpochNs + world_.now().time_since_epoch().count(); }

 private:
  static constexpr std::int64_t kEpochNs = 946'684'800'000'000'000;  // every world begins on 2000-01-01 UTC
  World& world_;
};

// Bytes that depend only on the world's seed and the node's number.
class SimEntropy final : public io::Entropy {
 public:
  SimEntropy(World& world, NodeId node) noexcept : random_(Hash64().add(world.seed()).add(node).value()) {}
  void fill(std::span<std::byte> bytes) override;

 private:
  Random random_;
};

}  // namespace aiacc::sim
