#include "base/sim/world.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace aiacc::sim {
namespace {

std::string_view name_of(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::kScript: return "script";
    case EventKind::kTurn: return "turn";
    case EventKind::kAlarm: return "alarm";
    case EventKind::kDeparture: return "departure";
    case EventKind::kArrival: return "arrival";
    case EventKind::kLoss: return "loss";
    case EventKind::kStream: return "stream";
    case EventKind::kProcess: return "process";
    case EventKind::kFlag: return "flag";
  }
  return "unknown";
}

}  // namespace

void Event::cancel() noexcept {
  if (world_ != nullptr) world_->remove(*this);
}

World::World(std::uint64_t seed) : seed_(seed), random_(seed) { recent_.reserve(kRecent); }

World::~World() {
  scripts_.clear();
  // The owner of an event may outlive the world, so the event must not refer to it.
  for (Entry& entry : heap_) entry.event->world_ = nullptr;
  for (Node& node : nodes_) {
    for (Event* event : node.held) event->world_ = nullptr;
  }
}

NodeId World::add_node(std::string name) {
  nodes_.push_back(Node{std::move(name), State::kAlive, {}});
  return static_cast<NodeId>(nodes_.size() - 1);
}

void World::kill(NodeId node) noexcept {
  Node& dying = nodes_[node];
  if (dying.state == State::kDead) return;
  dying.state = State::kDead;
  for (Event* event : dying.held) event->world_ = nullptr;
  dying.held.clear();
  death_watchers_.for_each([node](DeathWatcher& watcher) { watcher.node_died(node); });
}

void World::freeze(NodeId node) noexcept {
  if (nodes_[node].state == State::kAlive) nodes_[node].state = State::kFrozen;
}

void World::thaw(NodeId node) noexcept {
  if (nodes_[node].state != State::kFrozen) return;
  nodes_[node].state = State::kAlive;
  for (Event* event : std::exchange(nodes_[node].held, {})) {
    event->world_ = nullptr;
    schedule(*event, now_, node);
  }
}

void World::at(Instant when, std::function<void()> action) {
  scripts_.remove_if([](const Script& script) { return !script.scheduled(); });
  Script& script = scripts_.emplace_back();
  script.action = std::move(action);
  schedule(script, when, kNobody);
}

void World::at_event(std::uint64_t number, std::function<void()> action) {
  event_scripts_.emplace(number, std::move(action));
}

void World::schedule(Event& event, Instant when, NodeId node) {
  event.cancel();
  if (dead(node)) return;
  event.world_ = this;
  event.when_ = std::max(when, now_);
  event.node_ = node;
  event.sequence_ = next_sequence_++;
  event.tie_ = random_.next();
  push(event);
}

bool World::step_until(Instant until) {
  for (auto script = event_scripts_.begin(); script != event_scripts_.end() && script->first <= events_;) {
    const std::function<void()> action = std::move(script->second);
    event_scripts_.erase(script);
    action();
    script = event_scripts_.begin();
  }
  while (!heap_.empty() && heap_.front().when <= until) {
    Event& event = *heap_.front().event;
    if (dead(event.node_)) {
      remove(event);
      continue;
    }
    if (frozen(event.node_)) {
      const NodeId node = event.node_;
      remove(event);
      event.world_ = this;
      event.place_ = Event::kHeld;
      nodes_[node].held.push_back(&event);
      continue;
    }
    remove(event);
    now_ = event.when_;
    trace(event);
    ++events_;
    FramePool::Use frames(frames_);
    event.happen();
    return true;
  }
  return false;
}

void World::run(std::uint64_t limit) {
  const std::uint64_t last = limit > ~std::uint64_t{0} - events_ ? ~std::uint64_t{0} : events_ + limit;
  while (step()) {
    if (events_ >= last) {
      throw Error(Code::kInternal,
                  fmt::format("the simulated world did not come to rest within {} events; the last were:\n{}", limit,
                              recent()));
    }
  }
}

void World::run_until(Instant until) {
  while (step_until(until)) {
  }
  now_ = std::max(now_, until);
}

bool World::run_while_not(const std::function<bool()>& done) {
  while (!done()) {
    if (!step()) return false;
  }
  return true;
}

std::string World::recent() const {
  std::string text;
  const std::size_t first = recent_.size() < kRecent ? 0 : static_cast<std::size_t>(events_ % kRecent);
  for (std::size_t i = 0; i < recent_.size(); ++i) {
    const Traced& traced = recent_[(first + i) % recent_.size()];
    const std::int64_t ns = traced.when.time_since_epoch().count();
    text +=
        fmt::format("{}.{:09} s  {}  {} #{}\n", ns / 1'000'000'000, ns % 1'000'000'000,
                    traced.node == kNobody ? "world" : nodes_[traced.node].name, name_of(traced.kind), traced.sequence);
  }
  return text;
}

void World::trace(const Event& event) noexcept {
  trace_.add(static_cast<std::uint64_t>(event.when_.time_since_epoch().count()))
      .add(static_cast<std::uint64_t>(event.node_) << 8 | static_cast<std::uint64_t>(event.kind_))
      .add(event.sequence_);
  const Traced traced{event.when_, event.sequence_, event.node_, event.kind_};
  if (recent_.size() < kRecent) {
    recent_.push_back(traced);
  } else {
    recent_[static_cast<std::size_t>(events_ % kRecent)] = traced;
  }
}

// --- a heap whose elements know their indices, so that any event can be removed -----------------------------------

bool World::before(const Entry& left, const Entry& right) noexcept {
  if (left.when != right.when) return left.when < right.when;
  if (left.tie != right.tie) return left.tie < right.tie;
  return left.event->sequence_ < right.event->sequence_;
}

void World::put(std::size_t place, Entry entry) noexcept {
  heap_[place] = entry;
  entry.event->place_ = place;
}

void World::sift_up(std::size_t place) noexcept {
  const Entry entry = heap_[place];
  while (place > 0) {
    const std::size_t parent = (place - 1) / kChildren;
    if (!before(entry, heap_[parent])) break;
    put(place, heap_[parent]);
    place = parent;
  }
  put(place, entry);
}

void World::sift_down(std::size_t place) noexcept {
  const Entry entry = heap_[place];
  for (;;) {
    const std::size_t first = kChildren * place + 1;
    if (first >= heap_.size()) break;
    const std::size_t last = std::min(first + kChildren, heap_.size());
    std::size_t child = first;
    for (std::size_t other = first + 1; other < last; ++other) {
      if (before(heap_[other], heap_[child])) child = other;
    }
    if (!before(heap_[child], entry)) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, entry);
}

void World::push(Event& event) {
  heap_.push_back(Entry{event.when_, event.tie_, &event});
  sift_up(heap_.size() - 1);
}

void World::remove(Event& event) noexcept {
  event.world_ = nullptr;
  if (event.place_ == Event::kHeld) {
    std::erase(nodes_[event.node_].held, &event);
    return;
  }
  const std::size_t place = event.place_;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (place == heap_.size()) return;
  put(place, last);
  sift_up(place);
  sift_down(last.event->place_);
}

}  // namespace aiacc::sim
