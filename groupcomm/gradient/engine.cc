#include "groupcomm/gradient/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "collectives/hier/select.h"
#include "collectives/inter/selector.h"
#include "groupcomm/gradient/engine_wait.h"
#include "runtime/context.h"
#include "runtime/group/group.h"

namespace aiacc::gradient {
namespace {

// The ranks tell each other who lacks what before a tensor's time is over, so that the error can say it.
Duration before_timeout(Duration timeout) {
  constexpr Duration kForTheReport = std::chrono::seconds(5);
  return timeout == Duration::max() ? timeout : timeout - std::min(timeout / 4, kForTheReport);
}

// Only schedules are tuned, and a rank alone has nothing to gain.
bool tunes(const Group& group, const EngineOptions& options) {
  return options.tunes && options.schedule_steps > 0 && group.size() > 1;
}

std::uint64_t placement_of(const Group& group) {
  return Hash64()
      .add(static_cast<std::uint64_t>(group.size()))
      .add(static_cast<std::uint64_t>(group.local_size()))
      .value();
}

NegotiatorOptions negotiator_options(const Group& group, const EngineOptions& options) {
  NegotiatorOptions given;
  given.rank = group.rank();
  given.ranks = group.size();
  given.round_bytes = given.fusion_bytes = options.fusion_bytes;
  given.schedule_steps = options.schedule_steps;
  given.nan_check = options.nan_check;
  given.stall = std::min(options.late_after, before_timeout(options.timeout));
  given.tunes = tunes(group, options);
  return given;
}

// To what is chosen for its sums of fp32 of that length. Members of one host share it, and bring it between hosts in slices.
std::vector<const inter::AlgorithmInfo*> alternatives_of(Group& group, std::size_t bytes) {
  constexpr std::size_t kMost = 2;
  const View& view = *group.team().view;
  if (view.hosts() == 1) return {};
  if (view.most_on_a_host() > 1) bytes = std::min(bytes / hier::shards_of(view, bytes), hier::kSliceBytes);
  Call call;
  call.kind = Collective::kAllreduce;
  call.count = bytes / size_of(call.reduction.type);
  const auto most = static_cast<std::size_t>(view.most_on_a_host());
  const inter::Shape between = hier::shape_between(inter::shape_of(call, group.size()), view.hosts(), most,
                                                   view.fewest_on_a_host() == view.most_on_a_host());
  Context& context = group.context();
  return inter::alternatives(between, context.config().algorithms, context.algorithm_table(), kMost);
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
      trace_(group.context().timeline(), loop_, options_.name),
      inbox_(lane_, *this, described(group, options_.name), options_.fusion_bytes,
             group.local_size() > 1 ? group.context().host() : nullptr, group.team().view->most_on_a_host() == 1,
             options_.nan_check, group.context().timeline()),
      negotiator_(negotiator_options(group, options_)),
      quiet_(loop_) {
  rounds_.emplace(group, static_cast<GroupRounds::Observer&>(*this));
  launches_.emplace(group, static_cast<Launches::Owner&>(*this), options_.in_flight, options_.timeout,
                    options_.nan_check);
  group.context().metrics().add(static_cast<Metrics::Source&>(*this));
  if (!tunes(group, options_)) return;
  TuningOptions tuning;
  tuning.start = {options_.fusion_bytes, options_.in_flight};
  if (options_.wire == WireType::kFloat32) alternatives_ = alternatives_of(group, options_.fusion_bytes);
  for (const inter::AlgorithmInfo* one : alternatives_) tuning.alternatives.emplace_back(one->name);
  tuning.described = inbox_.describe();
  tuning.rank = group.rank();
  tuning.placement = placement_of(group);
  tuning.cache = options_.tune_cache;
  tuning.tells = options_.tells;
  tuning_.emplace(std::move(tuning));
}

Engine::~Engine() {
  if (group_ != nullptr) group_->context().metrics().remove(static_cast<Metrics::Source&>(*this));
}

void Engine::start() { lane_.start(service_); }

void Engine::begin() noexcept {
  feed([] {});
  rounds_->start();
}

void Engine::add(std::span<const TensorOrder> tensors, std::uint32_t* indices) {
  std::vector<TensorOrder> orders(tensors.begin(), tensors.end());
  for (TensorOrder& order : orders) choose_wire(order);
  inbox_.add(orders, indices);
}

void Engine::choose_wire(TensorOrder& order) const {
  constexpr std::size_t kLeastMixedBytes = 64 << 10;
  const WireType wanted = order.wire.value_or(options_.wire);
  if (wanted == WireType::kFloat32) return;
  if (order.kind.type != DType::kFloat32 || !order.kind.sums() || order.kind.is_table()) {
    if (!order.wire) return;
    throw Error(Code::kInvalidArgument,
                fmt::format("tensor '{}' is {}: only sums and averages of fp32 that are no tables have a 16-bit wire",
                            order.name, order.kind.describe(order.count)));
  }
  if (wanted != WireType::kMixed) {
    order.kind.wire = wanted == WireType::kBFloat16 ? DType::kBFloat16 : DType::kFloat16;
  } else if (spans_hosts_ && order.count * sizeof(float) >= kLeastMixedBytes) {
    order.kind.codec = Codec::kFloat16;
  }
}

void Engine::wait() {
  Wait wait(*this, false);
  lane_.run(wait);
  if (wait.why) std::rethrow_exception(wait.why);
}

bool Engine::wait_for(std::uint32_t tensor, Duration limit) {
  if (!inbox_.outstanding(tensor)) return true;
  TensorWait wait(*this, tensor, limit);
  lane_.run(wait);
  if (wait.why) std::rethrow_exception(wait.why);
  return wait.in_time;
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
  const Inbox::Taken what = inbox_.take(taken_);
  for (const Inbox::Item& item : taken_) take(item);
  taken_.clear();
  if (what.dropped) review_tensor_waits();
  if (what.urged) feed([this] { negotiator_.urge(now()); });
}

// Some wait for a tensor whose submission was refused after they had begun.
void Engine::review_tensor_waits() noexcept {
  for (std::size_t at = 0; at < tensor_waits_.size();) {
    TensorWait& wait = *tensor_waits_[at];
    bool is_outstanding = inbox_.is_outstanding(wait.tensor);
    std::exception_ptr error;
    try {
      is_outstanding = is_outstanding || inbox_.outstanding(wait.tensor);
    } catch (...) {
      error = std::current_exception();
    }
    if (is_outstanding) {
      ++at;
      continue;
    }
    drop(wait);
    wait.end(error);
  }
}

void Engine::take(const Inbox::Item& item) noexcept {
  switch (item.what) {
    case Inbox::Item::What::kAdd:
      by_local_.push_back(item.tensor);
      return feed([&] {
        TensorRecord record = item.tensor->kind.record(item.tensor->name, item.tensor->count);
        record.priority = item.tensor->priority;
        negotiator_.add(std::move(record));
      });
    case Inbox::Item::What::kReady:
      item.tensor->pending = true;
      item.tensor->negotiating = {};
      trace_.submitted();
      if (++pending_ == 1) progressed_ = now();
      if (failed_) return complete(*item.tensor, failed_);
      if (left_) return leave_out(*item.tensor);
      return feed([&] {
        negotiator_.ready(item.number, now(), item.finite);
        if (somebody_waits()) negotiator_.urge(now());  // another thread than the one that submits
      });
    case Inbox::Item::What::kFlush: trace_.flushed(); return feed([this] { negotiator_.flush(now()); });
  }
}

void Engine::begin_wait(Wait& wait) noexcept {
  drain();
  if (const std::exception_ptr error = refuse_wait(); error) return wait.end(error);
  waits_.push_back(&wait);
  wait.began = now();
  trace_.flushed();
  if (!left_) feed([&] { wait.joins ? negotiator_.join(now()) : negotiator_.flush(now()); });
  tell_waiters();
}

void Engine::begin_wait(TensorWait& wait) noexcept {
  drain();
  try {
    if (!inbox_.outstanding(wait.tensor)) return wait.end(nullptr);
  } catch (...) {
    return wait.end(std::current_exception());
  }
  tensor_waits_.push_back(&wait);
  wait.arm(after(now(), wait.limit));
  feed([this] { negotiator_.urge(now()); });
}

// Its time is over.
void Engine::drop(TensorWait& wait) noexcept { std::erase(tensor_waits_, &wait); }

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
  while (next_action(action)) {
    switch (action.kind) {
      case Action::Kind::kBegin:
        trace_.contributed(by_local_);
        rounds_->begin(action.round, *action.word);
        break;
      case Action::Kind::kLaunch: launch(action.launch); break;
      case Action::Kind::kExchange: launches_->exchange(described_tensors(action.payload)); break;
      case Action::Kind::kHold:
        whole_before_ = 0;
        if (tuning_) tuning_->interrupted();
        break;
      case Action::Kind::kRelease:
        whole_before_ = action.launch.serial;
        owe(action.launch.tensors);
        settle_soon();
        break;
      case Action::Kind::kPass: begin_pass(action.votes); break;
      case Action::Kind::kNonFinite: not_finite_ranks_[action.index] = action.rank; break;
      case Action::Kind::kStall: stalled(*action.text); break;
      case Action::Kind::kJoined: end_joins(action.rank, nullptr); break;
      case Action::Kind::kLeft: left(action.rank, action.launch.serial); break;
      case Action::Kind::kFailed: throw *action.error;
    }
  }
}

bool Engine::next_action(Action& action) {
  if (negotiator_.next(action)) return true;
  if (!negotiator_.wants_room() || !launches_->has_room()) return false;
  negotiator_.room(now());
  return negotiator_.next(action);
}

void Engine::launch(const Launch& launched) {
  const TensorTable& table = negotiator_.tensors();
  auto flight = std::make_unique<Launches::Flight>();
  flight->serial = launched.serial;
  flight->follow_up = launched.follow_up;
  flight->piece_bytes = launched.piece_bytes;
  if (tuning_ && !launched.scheduled) tuning_->interrupted();
  if (tuning_ && launched.ends_pass) flight->pass = tuning_->pass_launched();
  flight->kind = Kind::of(table.agreed(launched.tensors.front()));
  flight->in_a_row = true;
  std::uint64_t next = Positions::kNowhere;
  for (std::size_t i = 0; i < launched.tensors.size(); ++i) {
    Launches::Part part;
    part.index = launched.tensors[i];
    part.mine = launched.mine[i] != 0;
    const TensorRecord& record = table.agreed(part.index);
    part.table_rows = record.rows;
    if (!record.is_table()) part.bytes = record.bytes;
    const std::uint32_t local = table.local_of(part.index);
    if (local != kNoIndex) part.tensor = by_local_[local];
    const std::uint64_t position = positions_.of(part.index);
    if (part.bytes > 0) {  // a tensor without elements is nowhere
      if (position == Positions::kNowhere || (next != Positions::kNowhere && position != next))
        flight->in_a_row = false;
      next = position + Slots::padded(part.bytes);
    }
    flight->parts.push_back(std::move(part));
  }
  progressed_ = now();
  trace_.launched(*flight);
  launches_->launch(std::move(flight), table.agreed(launched.tensors.front()).name);
}

const inter::AlgorithmInfo* Engine::alternative(TunedSetting setting) const noexcept {
  return setting.algorithm == 0 ? nullptr : alternatives_[static_cast<std::size_t>(setting.algorithm) - 1];
}

void Engine::begin_pass(bool votes) {
  const TunedSetting setting = tuning_->begin_pass();
  launches_->set_in_flight(setting.in_flight);
  launches_->prefer(alternative(setting));
  inbox_.set_enough(setting.fusion_bytes);
  if (votes) launches_->vote(tuning_->vote(negotiator_.tensors()));
}

void Engine::vote_ended(std::span<const std::byte> most) {
  feed([&] {
    Tuning::Words words;
    std::memcpy(words.data(), most.data(), sizeof words);
    const Tuner::Plan plan = tuning_->voted(words);
    negotiator_.tuned(plan.setting.fusion_bytes, static_cast<std::uint64_t>(plan.passes), now());
  });
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
  trace_.round_ended(round);
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

// A report that comes only because the time is nearly over is for the error.
void Engine::stalled(const std::string& report) {
  lacking_ = report;
  lacking_since_ = now();
  if (options_.late_after <= before_timeout(options_.timeout))
    group_->context().report_late(fmt::format("{}: {}", inbox_.describe(), report));
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
  const std::string who = lacking_.empty() || lacking_since_ < progressed_ ? "" : ": " + lacking_;
  fail(std::make_exception_ptr(
      Error(Code::kTimeout,
            fmt::format("tensor '{}' and {} more of {} were submitted on rank {}, and after {:.6g} s not "
                        "all ranks have submitted them{}",
                        name, pending_ - 1, inbox_.describe(), group_->rank(), seconds(options_.timeout), who))));
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
  stats.setting = {options_.fusion_bytes, options_.in_flight};
  if (tuning_) {
    stats.tunes = true;
    stats.settled = tuning_->settled();
    stats.setting = tuning_->setting();
    stats.tune_steps = tuning_->trials();
    stats.tune_searches = tuning_->searches();
    if (const inter::AlgorithmInfo* const tuned = alternative(stats.setting)) stats.algorithm = tuned->name.data();
  }
  return stats;
}

MetricsSample Engine::sample() const noexcept {
  const EngineStats stats = count();
  MetricsSample sample = measured_;
  sample.steps = stats.steps;
  sample.rounds = stats.rounds;
  sample.negotiation_messages = stats.negotiation_messages;
  sample.launches = stats.launches;
  sample.tensors = stats.tensors;
  sample.bytes = stats.bytes;
  sample.wire_bytes = stats.wire_bytes;
  sample.packed_bytes = stats.packed_bytes;
  sample.breaks = stats.breaks;
  return sample;
}

}  // namespace aiacc::gradient
