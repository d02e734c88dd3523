#include "groupcomm/gradient/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "groupcomm/gradient/engine_wait.h"
#include "runtime/context.h"

namespace aiacc::gradient {
namespace {

NegotiatorOptions negotiator_options(const Group& group, const EngineOptions& options) {
  NegotiatorOptions given;
  given.rank = group.rank();
  given.ranks = group.size();
  given.round_bytes = given.fusion_bytes = options.fusion_bytes;
  given.schedule_steps = options.schedule_steps;
  given.nan_check = options.nan_check;
  return given;
}

std::string described(const Group& group, const std::string& name) {
  return name.empty() ? fmt::format("the gradient engine of {}", group.describe())
                      : fmt::format("the gradient engine '{}'", name);
}

}  // namespace

void Submission::expect() noexcept {
  if (done() || expected_.exchange(true, std::memory_order_relaxed)) return;
  engine_->urge();
}

Engine::Engine(Group& group, EngineOptions options)
    : lane_(group.context().lane()),
      loop_(lane_.loop()),
      options_(std::move(options)),
      spans_hosts_(group.local_size() < group.size()),
      group_(&group),
      inbox_(lane_, *this, described(group, options_.name), options_.fusion_bytes,
             group.local_size() > 1 ? group.context().host() : nullptr, options_.nan_check),
      negotiator_(negotiator_options(group, options_)),
      quiet_(loop_) {
  rounds_.emplace(group, static_cast<GroupRounds::Observer&>(*this));
  launches_.emplace(group, static_cast<Launches::Owner&>(*this), options_.fusion_bytes, options_.in_flight,
                    options_.timeout, options_.nan_check);
}

Engine::~Engine() = default;

void Engine::start() { lane_.start(service_); }

void Engine::begin() noexcept {
  feed([] {});
  rounds_->start();
}

void Engine::add(std::span<const TensorOrder> tensors, std::uint32_t* indices) {
  std::vector<TensorOrder> orders(tensors.begin(), tensors.end());
  for (TensorOrder& order : orders) order.kind.wire = wire_of(order);
  inbox_.add(orders, indices);
}

std::optional<DType> Engine::wire_of(const TensorOrder& order) const {
  constexpr std::size_t kLeastMixedBytes = 64 << 10;
  const WireType wanted = order.wire.value_or(options_.wire);
  if (wanted == WireType::kFloat32) return std::nullopt;
  if (order.kind.type != DType::kFloat32 || !order.kind.sums()) {
    if (!order.wire) return std::nullopt;
    throw Error(Code::kInvalidArgument,
                fmt::format("tensor '{}' is {}: only sums and averages of fp32 have a 16-bit wire", order.name,
                            order.kind.describe(order.count)));
  }
  if (wanted == WireType::kBFloat16) return DType::kBFloat16;
  const bool small = order.count * sizeof(float) < kLeastMixedBytes;
  if (wanted == WireType::kMixed && (small || !spans_hosts_)) return std::nullopt;
  return DType::kFloat16;
}

void Engine::wait() {
  Wait wait(*this, false);
  lane_.run(wait);
  if (wait.why) std::rethrow_exception(wait.why);
}

int Engine::join() {
  Wait wait(*this, true);
  lane_.run(wait);
  if (wait.why) std::rethrow_exception(wait.why);
  return wait.last_rank;
}

// --- what the user brought -------------------------------------------------------------------------------------------

void Engine::brought() noexcept {
  quiet_.set();
  drain();
}

void Engine::drain() noexcept {
  const bool urged = inbox_.take(taken_);
  for (const Inbox::Item& item : taken_) take(item);
  taken_.clear();
  if (urged) feed([this] { negotiator_.urge(now()); });
}

void Engine::take(const Inbox::Item& item) noexcept {
  switch (item.what) {
    case Inbox::Item::What::kAdd:
      by_local_.push_back(item.tensor);
      return feed([&] { negotiator_.add(item.tensor->kind.record(item.tensor->name, item.tensor->count)); });
    case Inbox::Item::What::kReady:
      item.tensor->pending = true;
      if (++pending_ == 1) progressed_ = now();
      if (failed_) return complete(*item.tensor, failed_);
      return feed([&] {
        negotiator_.ready(item.number, now(), item.finite);
        if (somebody_waits()) negotiator_.urge(now());  // another thread than the one that submits
      });
    case Inbox::Item::What::kFlush: return feed([this] { negotiator_.flush(now()); });
  }
}

void Engine::begin_wait(Wait& wait) noexcept {
  drain();
  if (const std::exception_ptr error = refuse_wait(); error) return wait.end(error);
  waits_.push_back(&wait);
  feed([&] { wait.joins ? negotiator_.join(now()) : negotiator_.flush(now()); });
  tell_waiters();
}

// Why the engine cannot be waited for any more, or null.
std::exception_ptr Engine::refuse_wait() noexcept {
  try {
    if (pending_ == 0 && !(left_ && !failed_ && !inbox_.closed())) inbox_.check_usable();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// --- negotiation -----------------------------------------------------------------------------------------------------

void Engine::act() {
  AIACC_INVARIANT(!acting_, "an action feeds the negotiator from the loop");
  acting_ = true;
  struct Done {
    bool& acting;
    ~Done() { acting = false; }
  } const done{acting_};
  Action action;
  while (negotiator_.next(action)) {
    switch (action.kind) {
      case Action::Kind::kBegin: rounds_->begin(action.round, *action.word); break;
      case Action::Kind::kLaunch: launch(action.launch); break;
      case Action::Kind::kExchange: launches_->exchange(described_tensors(action.payload)); break;
      case Action::Kind::kHold: whole_before_ = 0; break;
      case Action::Kind::kRelease:
        whole_before_ = action.launch.serial;
        owe(action.launch.tensors);
        settle_soon();
        break;
      case Action::Kind::kNonFinite: not_finite_ranks_[action.index] = action.rank; break;
      case Action::Kind::kStall:
        group_->context().report_late(fmt::format("{}: {}", inbox_.describe(), *action.text));
        break;
      case Action::Kind::kJoined: joined(action.rank); break;
      case Action::Kind::kLeft: left(action.rank); break;
      case Action::Kind::kFailed: throw *action.error;
    }
  }
}

void Engine::launch(const Launch& launched) {
  const TensorTable& table = negotiator_.tensors();
  auto flight = std::make_unique<Launches::Flight>();
  flight->serial = launched.serial;
  flight->follow_up = launched.follow_up;
  flight->kind = Kind::of(table.agreed(launched.tensors.front()));
  flight->in_a_row = true;
  std::uint64_t next = Positions::kNowhere;
  for (std::size_t i = 0; i < launched.tensors.size(); ++i) {
    Launches::Part part;
    part.index = launched.tensors[i];
    part.mine = launched.mine[i] != 0;
    part.bytes = table.agreed(part.index).bytes;
    const std::uint32_t local = table.local_of(part.index);
    if (local != kNoIndex) {
      part.tensor = by_local_[local];
      part.slot = part.tensor->slot.data;
    }
    const std::uint64_t position = positions_.of(part.index);
    if (part.bytes > 0) {  // a tensor without elements is nowhere
      if (position == Positions::kNowhere || (next != Positions::kNowhere && position != next))
        flight->in_a_row = false;
      next = position + Slots::padded(part.bytes);
    }
    flight->parts.push_back(part);
  }
  progressed_ = now();
  launches_->launch(std::move(flight), table.agreed(launched.tensors.front()).name);
}

std::vector<std::byte> Engine::described_tensors(std::span<const std::byte> payload) {
  for (std::uint32_t local = 0; local < by_local_.size(); ++local) {
    if (negotiator_.tensors().index_of(local) != kNoIndex) continue;
    positions_.add(by_local_[local]->name, by_local_[local]->slot.position);
  }
  return positions_.take_with(payload);
}

void Engine::exchange_ended(std::span<const std::vector<std::byte>> given) {
  const std::vector<std::span<const std::byte>> payloads = positions_.split(given);
  feed([&] {
    negotiator_.exchanged(payloads, now());
    positions_.learn(negotiator_.tensors());
  });
}

// Of the launches that were held: some rank gave zeros for these tensors.
void Engine::owe(std::span<const std::uint32_t> indices) {
  if (indices.empty()) return;
  launches_->for_each_part([&](Launches::Part& part) {
    part.owed = part.owed || std::find(indices.begin(), indices.end(), part.index) != indices.end();
  });
}

void Engine::asked(std::uint64_t round) {
  drain();
  feed([&] { negotiator_.asked(round, now()); });
}

void Engine::result(std::uint64_t round, const Word& merged) {
  drain();
  feed([&] { negotiator_.result(round, merged, now()); });
}

void Engine::due() noexcept {
  feed([this] { negotiator_.tick(now()); });
}

void Engine::arm_timers() noexcept {
  if (failed_) return;
  const Instant when = negotiator_.deadline();
  if (when == kNever) {
    due_.disarm();
  } else {
    loop_.arm(due_, when);
  }
  if (pending_ == 0 || options_.timeout == Duration::max()) {
    late_.disarm();
  } else if (!late_.armed()) {
    loop_.arm(late_, after(std::max(progressed_, now()), options_.timeout));
  }
}

// Nothing was launched for as long as an allreduce may take.
void Engine::late() noexcept {
  if (failed_ || pending_ == 0) return;
  const Instant limit = after(progressed_, options_.timeout);
  if (now() < limit) return loop_.arm(late_, limit);
  std::string name;
  for (const Tensor* tensor : by_local_) {
    if (name.empty() && tensor->pending) name = tensor->name;
  }
  fail(std::make_exception_ptr(Error(
      Code::kTimeout, fmt::format("tensor '{}' and {} more of {} were submitted on rank {}, and after {:.6g} s not "
                                  "all ranks have submitted them",
                                  name, pending_ - 1, inbox_.describe(), group_->rank(), seconds(options_.timeout)))));
}

EngineStats Engine::count() const noexcept {
  EngineStats stats = counted_;
  stats.steps = negotiator_.stats().steps;
  stats.rounds = negotiator_.stats().rounds;
  stats.breaks = negotiator_.stats().breaks;
  stats.scheduled = negotiator_.scheduled();
  if (rounds_) stats.negotiation_messages = rounds_->messages();
  if (launches_) stats.launches = launches_->calls();
  stats.packed_bytes = inbox_.packed_bytes();
  return stats;
}

}  // namespace aiacc::gradient
