// World: a whole cluster on one thread. An event queue in virtual time, one seed, nodes that can be killed and frozen, and
// a hash over everything that happened.
//
// Deterministic by construction: time is integer nanoseconds, order at one instant is drawn from the seed, nothing is
// ordered or hashed by address. So one seed replays one history in every build; another seed tries another order.
//
// A node is one simulated process: it has one SimLoop (base/sim/sim_loop.h), and everything that happens on it is an
// Event with its number. Events of a killed node never happen; those of a frozen node are kept until it thaws. Events
// of kNobody belong to the world itself: links, fault scripts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/intrusive_list.h"
#include "base/sim/random.h"
#include "base/task/frame_pool.h"
#include "base/time.h"

namespace aiacc::sim {

using NodeId = std::uint32_t;
inline constexpr NodeId kNobody = ~NodeId{0};

// The kind of an event, for the trace.
enum class EventKind : std::uint8_t {
  kScript = 1,     // a fault or another action of the test
  kTurn = 2,       // a node runs one job
  kAlarm = 3,      // a node's timer
  kDeparture = 4,  // a message leaves its sender
  kArrival = 5,    // a message, or the rest of one, reaches its receiver
  kLoss = 6,       // a node learns that a peer is gone
  kStream = 7,     // bytes of a stream move
  kProcess = 8,    // a process begins or its end is noticed
  kFlag = 9,       // a store becomes visible to a waiting node
};

class World;

// Something that happens once, at a virtual instant. It is a member of its owner and leaves the queue when destroyed.
class Event {
 public:
  explicit Event(EventKind kind) noexcept : kind_(kind) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool scheduled() const noexcept { return world_ != nullptr; }
  Instant when() const noexcept { return when_; }
  void cancel() noexcept;

 protected:
  ~Event() { cancel(); }

 private:
  friend class World;
  // Its node is frozen: it is in the node's list, not in the queue.
  static constexpr std::size_t kHeld = ~std::size_t{0};

  virtual void happen() noexcept = 0;

  World* world_ = nullptr;
  Instant when_{};
  std::uint64_t tie_ = 0;       // random: orders events of one instant
  std::uint64_t sequence_ = 0;  // order of scheduling: part of the trace, and orders events with equal ties
  std::size_t place_ = 0;       // index in the heap, or kHeld
  NodeId node_ = kNobody;
  EventKind kind_;
};

// Notified of the death of every node, at that instant and in order of registration; it must not do a survivor's work
// directly but schedule it.
class DeathWatcher : public ListNode<DeathWatcher> {
 public:
  virtual void node_died(NodeId node) noexcept = 0;

 protected:
  ~DeathWatcher() = default;
};

class World {
 public:
  explicit World(std::uint64_t seed);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  Instant now() const noexcept { return now_; }
  std::uint64_t seed() const noexcept { return seed_; }
  Random& random() noexcept { return random_; }

  // --- nodes and faults ----------------------------------------------------------------------------------------------
  NodeId add_node(std::string name);  // numbers are never reused
  const std::string& name(NodeId node) const noexcept { return nodes_[node].name; }
  bool dead(NodeId node) const noexcept { return node != kNobody && nodes_[node].state == State::kDead; }
  bool frozen(NodeId node) const noexcept { return node != kNobody && nodes_[node].state == State::kFrozen; }

  void kill(NodeId node) noexcept;
  void freeze(NodeId node) noexcept;
  void thaw(NodeId node) noexcept;  // kept events happen now, in a random order
  void watch_deaths(DeathWatcher& watcher) noexcept { death_watchers_.push_back(watcher); }

  // Calls `action` at an instant, or just before the event with this number happens (the first event has number 0).
  void at(Instant when, std::function<void()> action);
  void at_event(std::uint64_t number, std::function<void()> action);

  // --- the queue -----------------------------------------------------------------------------------------------------
  // `event` happens on `node` at `when`, or now if that is past. Scheduling a scheduled event moves it.
  void schedule(Event& event, Instant when, NodeId node);

  // The next event; false if there is none.
  bool step() { return step_until(kNever); }
  // Runs until no event is left. Throws kInternal after `limit` events, because then events follow each other
  // endlessly.
  void run(std::uint64_t limit = ~std::uint64_t{0});
  // Runs events up to and including `until`; afterwards the time is `until`.
  void run_until(Instant until);
  // Runs until `done()` or no event is left; returns whether it is done.
  bool run_while_not(const std::function<bool()>& done);

  // The hash of time, node, kind and sequence number of every event so far.
  std::uint64_t trace_hash() const noexcept { return trace_.value(); }
  std::uint64_t events() const noexcept { return events_; }
  // The last events as text, for a failing test: "12.000345 s  rank 7  arrival #4711".
  std::string recent() const;

 private:
  friend class Event;
  enum class State : std::uint8_t { kAlive, kFrozen, kDead };
  struct Node {
    std::string name;
    State state = State::kAlive;
    std::vector<Event*> held;
  };
  struct Entry {  // the key is beside the pointer, so comparisons stay in the heap's memory
    Instant when;
    std::uint64_t tie;
    Event* event;
  };
  struct Script final : Event {
    Script() noexcept : Event(EventKind::kScript) {}
    void happen() noexcept override { action(); }
    std::function<void()> action;
  };
  struct Traced {
    Instant when;
    std::uint64_t sequence;
    NodeId node;
    EventKind kind;
  };
  static constexpr std::size_t kRecent = 32;
  // Children of a node of the heap: each move in the heap touches an event, and a wider heap needs fewer moves.
  static constexpr std::size_t kChildren = 4;

  bool step_until(Instant until);
  static bool before(const Entry& left, const Entry& right) noexcept;
  void put(std::size_t place, Entry entry) noexcept;
  void sift_up(std::size_t place) noexcept;
  void sift_down(std::size_t place) noexcept;
  void push(Event& event);
  void remove(Event& event) noexcept;
  void trace(const Event& event) noexcept;

  std::uint64_t seed_;
  Random random_;
  FramePool frames_;  // for all coroutines that start inside events
  Instant now_{};
  std::uint64_t next_sequence_ = 0;
  std::uint64_t events_ = 0;
  Hash64 trace_;
  std::vector<Traced> recent_;
  std::vector<Entry> heap_;
  std::deque<Node> nodes_;
  IntrusiveList<DeathWatcher> death_watchers_;
  std::list<Script> scripts_;
  std::multimap<std::uint64_t, std::function<void()>> event_scripts_;
};

}  // namespace aiacc::sim
