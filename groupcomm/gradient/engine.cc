#include "groupcomm/gradient/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/wire/codec.h"
#include "runtime/context.h"

namespace aiacc::gradient {
namespace {

// How long what was submitted may stay in the inbox.
constexpr Duration kLinger = std::chrono::milliseconds(1);

// No place that all ranks have alike.
constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

NegotiatorOptions negotiator_options(const Group& group, const EngineOptions& options) {
  NegotiatorOptions given;
  given.rank = group.rank();
  given.ranks = group.size();
  given.round_bytes = given.fusion_bytes = options.fusion_bytes;
  given.schedule_steps = options.schedule_steps;
  return given;
}

}  // namespace

// Where the memory of a rank's new tensors is among those of their kind.
struct Engine::Positions {
  std::vector<std::uint64_t> names;  // hashes
  std::vector<std::uint64_t> positions;
  auto fields() { return std::tie(names, positions); }
};

// A caller that waits for all that it has submitted.
class Engine::Wait final : public Work {
 public:
  Wait(Engine& engine, bool until_all_join) noexcept : engine_(engine), joins(until_all_join) {}
  void end(std::exception_ptr error) noexcept {
    why = std::move(error);
    finish();
  }

 private:
  void begin() noexcept override { engine_.begin_wait(*this); }
  Engine& engine_;

 public:
  const bool joins;
  std::exception_ptr why;
  int last_rank = -1;  // to join
};

void Submission::expect() noexcept {
  if (done() || expected_.exchange(true, std::memory_order_relaxed)) return;
  engine_->urge();
}

Engine::Engine(Group& group, EngineOptions options)
    : lane_(group.context().lane()),
      loop_(lane_.loop()),
      options_(std::move(options)),
      described_(options_.name.empty() ? fmt::format("the gradient engine of {}", group.describe())
                                       : fmt::format("the gradient engine '{}'", options_.name)),
      group_(&group),
      slots_(group.local_size() > 1 ? group.context().host() : nullptr),
      negotiator_(negotiator_options(group, options_)),
      quiet_(loop_) {
  rounds_.emplace(group, static_cast<GroupRounds::Observer&>(*this));
  launches_.emplace(group, static_cast<Launches::Owner&>(*this), options_.fusion_bytes, options_.in_flight,
                    options_.timeout);
}

Engine::~Engine() = default;

void Engine::start() { lane_.start(service_); }

void Engine::begin() noexcept {
  feed([] {});
  rounds_->start();
}

// --- any thread: tensors ---------------------------------------------------------------------------------------------

void Engine::check_usable() {
  if (closed_) throw Error(Code::kInvalidHandle, fmt::format("{} was freed", described_));
  if (over_) throw_over();
}

// The caller who hears of it first hears the error itself.
void Engine::throw_over() {
  if (!std::exchange(over_told_, true)) std::rethrow_exception(over_);
  const Error error = as_error(over_);
  throw Error(Code::kAborted, fmt::format("{} is over: {}", described_, error.message()), error.peer());
}

Engine::Tensor& Engine::checked(std::uint32_t tensor) {
  if (tensor >= tensors_.size() || tensors_[tensor].removed) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} has no tensor number {}{}", described_, tensor,
                            tensor < tensors_.size() ? fmt::format(": '{}' was removed", tensors_[tensor].name) : ""));
  }
  return tensors_[tensor];
}

void Engine::add(std::span<const TensorOrder> orders, std::uint32_t* indices) {
  const std::lock_guard lock(mutex_);
  check_usable();
  std::map<std::uint64_t, std::size_t> room;
  std::unordered_map<std::string_view, const TensorOrder*> fresh;
  for (const TensorOrder& order : orders) {
    const auto refuse = [&](const Kind& kind, std::size_t count) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("tensor '{}' is {} and was added to {} as {}", order.name,
                              order.kind.describe(order.count), described_, kind.describe(count)));
    };
    if (const auto known = names_.find(std::string(order.name)); known != names_.end()) {
      const Tensor& tensor = tensors_[known->second];
      if (tensor.count != order.count || !(tensor.kind == order.kind)) refuse(tensor.kind, tensor.count);
      continue;
    }
    const auto [again, is_new] = fresh.try_emplace(order.name, &order);
    const TensorOrder& first = *again->second;
    if (!is_new && (first.count != order.count || !(first.kind == order.kind))) refuse(first.kind, first.count);
    if (is_new) room[order.kind.key()] += Slots::padded(order.count * size_of(order.kind.type));
  }
  if (tensors_.size() + fresh.size() > kMostTensors) {
    throw Error(Code::kInvalidArgument, fmt::format("{} has {} tensors, and {} more are above the most, which is {}",
                                                    described_, tensors_.size(), fresh.size(), kMostTensors));
  }
  for (const auto& [kind, bytes] : room) slots_.reserve(kind, bytes);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const TensorOrder& order = orders[i];
    const auto [name, is_new] =
        names_.try_emplace(std::string(order.name), static_cast<std::uint32_t>(tensors_.size()));
    indices[i] = name->second;
    if (!is_new) {
      tensors_[name->second].removed = false;
      continue;
    }
    Tensor& tensor = tensors_.emplace_back();
    tensor.name = order.name;
    tensor.count = order.count;
    tensor.kind = order.kind;
    tensor.bytes = order.count * size_of(order.kind.type);
    tensor.slot = slots_.take(order.kind.key(), tensor.bytes);
    inbox_.push_back({Item::What::kAdd, name->second, &tensor});
  }
}

void Engine::remove(std::span<const std::uint32_t> tensors) {
  const std::lock_guard lock(mutex_);
  check_usable();
  for (const std::uint32_t tensor : tensors) {
    if (!checked(tensor).outstanding) continue;
    throw Error(Code::kInvalidState, fmt::format("tensor '{}' was submitted to {} and is not reduced yet",
                                                 tensors_[tensor].name, described_));
  }
  for (const std::uint32_t tensor : tensors) tensors_[tensor].removed = true;
}

void* Engine::memory(std::uint32_t tensor) {
  const std::lock_guard lock(mutex_);
  if (closed_) check_usable();
  return checked(tensor).slot.data;
}

// --- any thread: a step ----------------------------------------------------------------------------------------------

void Engine::submit(std::uint32_t number, const void* in, void* out, Submission* submission) {
  Tensor* tensor = nullptr;
  {
    const std::lock_guard lock(mutex_);
    check_usable();
    tensor = &checked(number);
    if (tensor->outstanding) {
      throw Error(Code::kInvalidState,
                  fmt::format("tensor '{}' was submitted to {} twice: the first submission is not reduced yet",
                              tensor->name, described_));
    }
    tensor->outstanding = true;
  }
  if (in != nullptr && in != tensor->slot.data && tensor->bytes > 0) std::memcpy(tensor->slot.data, in, tensor->bytes);
  const std::lock_guard lock(mutex_);
  try {
    check_usable();
    inbox_.push_back({Item::What::kReady, number, tensor});
  } catch (...) {
    tensor->outstanding = false;
    throw;
  }
  tensor->out = out;
  tensor->submission = submission;
  if (in != nullptr) packed_bytes_ += tensor->bytes;
  if (out != nullptr) packed_bytes_ += tensor->bytes;
  inbox_bytes_ += tensor->bytes;
  if (inbox_bytes_ >= options_.fusion_bytes || !looks_again_) poke();
}

void Engine::flush() {
  const std::lock_guard lock(mutex_);
  check_usable();
  inbox_.push_back({Item::What::kFlush, 0, nullptr});
  poke();
}

void Engine::urge() noexcept {
  const std::lock_guard lock(mutex_);
  ++urges_;
  if (closed_ || over_) return;
  urged_ = true;
  poke();
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

// Under mutex_. Once for all that is in the inbox.
void Engine::poke() noexcept {
  if (std::exchange(poked_, true)) return;
  if (lane_.driven_outside()) {
    loop_.post(poke_);
  } else {
    loop_.post_from_any_thread(poke_);
  }
}

// --- the lane: what the user brought ---------------------------------------------------------------------------------

void Engine::poked() noexcept {
  {
    const std::lock_guard lock(mutex_);
    poked_ = false;
  }
  quiet_.set();
  drain();
}

// While the user submits, the lane looks once in a while, so that not every submission wakes it.
void Engine::look_again() noexcept {
  {
    const std::lock_guard lock(mutex_);
    looks_again_ = false;
    if (inbox_.empty()) return;
  }
  drain();
}

void Engine::drain() noexcept {
  bool urged = false;
  bool look_again = false;
  {
    const std::lock_guard lock(mutex_);
    taken_.clear();
    taken_.swap(inbox_);
    inbox_bytes_ = 0;
    urged = std::exchange(urged_, false);
    look_again = !taken_.empty() && !closed_ && !std::exchange(looks_again_, true);
  }
  if (look_again) loop_.arm(look_again_, after(now(), kLinger));
  for (const Item& item : taken_) take(item);
  taken_.clear();
  if (urged) feed([this] { negotiator_.urge(now()); });
}

void Engine::take(const Item& item) noexcept {
  switch (item.what) {
    case Item::What::kAdd:
      by_local_.push_back(item.tensor);
      return feed([&] { negotiator_.add(item.tensor->kind.record(item.tensor->name, item.tensor->count)); });
    case Item::What::kReady:
      item.tensor->pending = true;
      if (++pending_ == 1) progressed_ = now();
      if (failed_) return complete(*item.tensor, failed_);
      return feed([&] {
        negotiator_.ready(item.number, now());
        if (somebody_waits()) negotiator_.urge(now());  // another thread than the one that submits
      });
    case Item::What::kFlush: return feed([this] { negotiator_.flush(now()); });
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
  const std::lock_guard lock(mutex_);
  try {
    if (pending_ == 0 && !(left_ && !failed_ && !closed_)) check_usable();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// --- the lane: negotiation -------------------------------------------------------------------------------------------

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
      case Action::Kind::kExchange: launches_->exchange(packed(action.payload)); break;
      case Action::Kind::kHold: whole_before_ = 0; break;
      case Action::Kind::kRelease:
        whole_before_ = action.launch.serial;
        owe(action.launch.tensors);
        settle_soon();
        break;
      case Action::Kind::kNonFinite: break;  // nothing is looked at yet
      case Action::Kind::kStall: group_->context().report_late(fmt::format("{}: {}", described_, *action.text)); break;
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
  std::uint64_t next = kNowhere;
  for (std::size_t i = 0; i < launched.tensors.size(); ++i) {
    Launches::Part part;
    part.index = launched.tensors[i];
    part.mine = launched.mine[i] != 0;
    part.bytes = table.agreed(part.index).bytes;
    const std::uint32_t local = table.local_of(part.index);
    if (local != kNoIndex) part.slot = by_local_[local]->slot.data;
    const std::uint64_t position = part.index < positions_.size() ? positions_[part.index] : kNowhere;
    if (part.bytes > 0) {  // a tensor without elements is nowhere
      if (position == kNowhere || (next != kNowhere && position != next)) flight->in_a_row = false;
      next = position + Slots::padded(part.bytes);
    }
    flight->parts.push_back(part);
  }
  progressed_ = now();
  launches_->launch(std::move(flight), table.agreed(launched.tensors.front()).name);
}

std::vector<std::byte> Engine::packed(std::span<const std::byte> payload) const {
  Positions mine;
  for (std::uint32_t local = 0; local < by_local_.size(); ++local) {
    if (negotiator_.tensors().index_of(local) != kNoIndex) continue;
    mine.names.push_back(Hash64().add(by_local_[local]->name).value());
    mine.positions.push_back(by_local_[local]->slot.position);
  }
  const wire::Bytes tail = wire::encode(mine);
  const std::uint64_t bytes = payload.size();
  std::vector<std::byte> all(sizeof bytes + payload.size() + tail.size());
  std::memcpy(all.data(), &bytes, sizeof bytes);
  std::copy(payload.begin(), payload.end(), all.begin() + sizeof bytes);
  std::copy(tail.begin(), tail.end(), all.end() - static_cast<std::ptrdiff_t>(tail.size()));
  return all;
}

void Engine::exchange_ended(std::span<const std::vector<std::byte>> given) {
  std::vector<std::span<const std::byte>> payloads;
  std::vector<Positions> positions;
  for (std::size_t rank = 0; rank < given.size(); ++rank) {
    std::uint64_t bytes = 0;
    const std::span<const std::byte> all = given[rank];
    if (all.size() >= sizeof bytes) std::memcpy(&bytes, all.data(), sizeof bytes);
    if (all.size() < sizeof bytes || bytes > all.size() - sizeof bytes) {
      throw Error(Code::kProtocol, fmt::format("what rank {} says of its tensors is cut off", rank),
                  static_cast<int>(rank));
    }
    payloads.push_back(all.subspan(sizeof bytes, bytes));
    positions.push_back(wire::decode<Positions>(all.subspan(sizeof bytes + bytes), "the places of a rank's tensors"));
  }
  feed([&] {
    negotiator_.exchanged(payloads, now());
    learn_positions(positions);
  });
}

// A place that all ranks have alike is known as such to all of them.
void Engine::learn_positions(std::span<const Positions> of_ranks) {
  struct Known {
    std::uint64_t position;
    std::size_t ranks;
  };
  std::unordered_map<std::uint64_t, Known> known;
  for (const Positions& one : of_ranks) {
    for (std::size_t i = 0; i < std::min(one.names.size(), one.positions.size()); ++i) {
      Known& place = known.try_emplace(one.names[i], Known{one.positions[i], 0}).first->second;
      if (place.position == one.positions[i]) ++place.ranks;
    }
  }
  const TensorTable& table = negotiator_.tensors();
  for (std::size_t index = positions_.size(); index < table.agreed_tensors(); ++index) {
    const auto place = known.find(Hash64().add(table.agreed(static_cast<std::uint32_t>(index)).name).value());
    const bool alike = place != known.end() && place->second.ranks == of_ranks.size();
    positions_.push_back(alike ? place->second.position : kNowhere);
  }
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
                                  name, pending_ - 1, described_, group_->rank(), seconds(options_.timeout)))));
}

// --- the lane: what ends -----------------------------------------------------------------------------------------------

void Engine::launch_ended(Launches::Flight& flight) {
  progressed_ = now();
  for (Launches::Part& part : flight.parts) finish_part(flight, part);
  tell_waiters();
}

// A tensor that some rank gave zeros for is owed: what this launch left is kept until the follow-up brings the rest.
void Engine::finish_part(Launches::Flight& flight, Launches::Part& part) {
  const std::uint32_t local = negotiator_.tensors().local_of(part.index);
  Tensor* const tensor = local == kNoIndex ? nullptr : by_local_[local];
  const bool elsewhere = part.data != part.slot;
  if (!flight.follow_up && part.mine) {
    if (elsewhere && part.bytes > 0) std::memcpy(part.slot, part.data, part.bytes);
    tensor->owed = part.owed;
    if (!tensor->owed) complete(*tensor, nullptr);
    return;
  }
  if (!flight.follow_up) {
    if (part.owed) first_[part.index].assign(part.data, part.data + part.bytes);
    return;
  }
  const auto first = first_.find(part.index);
  if (part.mine) {
    if (elsewhere && part.bytes > 0) std::memcpy(part.slot, part.data, part.bytes);
    if (first != first_.end()) add_up(flight.kind, part.slot, first->second.data(), part.bytes);
    complete(*tensor, nullptr);
  } else if (tensor != nullptr && tensor->owed) {
    add_up(flight.kind, part.slot, part.data, part.bytes);
    complete(*tensor, nullptr);
  }
  if (first != first_.end()) first_.erase(first);
}

void Engine::add_up(const Kind& kind, std::byte* into, const std::byte* other, std::size_t bytes) {
  if (bytes == 0) return;
  Reduction sum;
  sum.type = kind.type;
  std::byte* const destinations[] = {into};
  const std::byte* const operands[] = {into, other};
  sums_.reduce_now(destinations, operands, bytes / size_of(kind.type), sum, 1);
}

void Engine::complete(Tensor& tensor, const std::exception_ptr& error) noexcept {
  if (!error && tensor.out != nullptr && tensor.out != tensor.slot.data && tensor.bytes > 0) {
    std::memcpy(tensor.out, tensor.slot.data, tensor.bytes);
  }
  tensor.owed = tensor.pending = false;
  Submission* const submission = std::exchange(tensor.submission, nullptr);
  {
    const std::lock_guard lock(mutex_);
    tensor.outstanding = false;
    if (submission != nullptr && submission->expected_.load(std::memory_order_relaxed)) --urges_;
  }
  --pending_;
  if (!error) {
    ++counted_.tensors;
    counted_.bytes += tensor.bytes;
  }
  if (submission == nullptr) return;
  lane_.begin_here(*submission);
  submission->end(error);
}

void Engine::tell_waiters() noexcept {
  if (pending_ != 0) return;
  const auto wait = std::stable_partition(waits_.begin(), waits_.end(), [](const Wait* one) { return one->joins; });
  const std::vector<Wait*> ended(wait, waits_.end());
  waits_.erase(wait, waits_.end());
  for (Wait* one : ended) one->end(failed_);
}

void Engine::joined(int rank) noexcept {
  const auto wait = std::stable_partition(waits_.begin(), waits_.end(), [](const Wait* one) { return !one->joins; });
  const std::vector<Wait*> ended(wait, waits_.end());
  waits_.erase(wait, waits_.end());
  for (Wait* one : ended) {
    one->last_rank = rank;
    one->end(nullptr);
  }
}

// --- the lane: the end -------------------------------------------------------------------------------------------------

void Engine::left(int rank) {
  left_ = true;
  quiet_.set();
  whole_before_ = ~std::uint64_t{0};  // a rank that gave zeros would not leave
  settle_soon();
  // What is launched has the gradients of all ranks, and ends well.
  const bool joins = std::any_of(waits_.begin(), waits_.end(), [](const Wait* wait) { return wait->joins; });
  const bool owed = std::any_of(by_local_.begin(), by_local_.end(), [](const Tensor* tensor) { return tensor->owed; });
  if (joins || owed || negotiator_.pending() != 0) throw freed_by(rank);
  const std::lock_guard lock(mutex_);
  if (!over_) over_ = std::make_exception_ptr(freed_by(rank));
}

Error Engine::freed_by(int rank) const {
  return Error(Code::kAborted, fmt::format("rank {} has freed {}", rank, described_), rank);
}

// The first error ends the group on all ranks. What is outstanding ends when nobody touches its memory any more.
void Engine::fail(std::exception_ptr error) noexcept {
  if (failed_) return;
  group_->abort(error);
  failed_ = group_->stop().reason();
  due_.disarm();
  late_.disarm();
  launches_->drop_queue();
  {
    const std::lock_guard lock(mutex_);
    if (!over_) over_ = failed_;
  }
  quiet_.set();
  settle_soon();
}

void Engine::settle_soon() noexcept {
  if (!settle_.linked()) loop_.post(settle_);
}

void Engine::settle() noexcept {
  if (!failed_) return feed([this] { launches_->settle(); });
  if (launches_->running()) return;  // launches_failed() comes when the last has ended
  drain();
  for (Tensor* tensor : by_local_) {
    if (tensor->pending) complete(*tensor, failed_);
  }
  {
    const std::lock_guard lock(mutex_);
    over_told_ = over_told_ || !waits_.empty();
  }
  const std::vector<Wait*> ended = std::move(waits_);
  waits_.clear();
  for (Wait* one : ended) one->end(failed_);
}

void Engine::rounds_failed(const std::exception_ptr& error) noexcept { fail(error); }

void Engine::launches_failed(const std::exception_ptr& error) noexcept {
  fail(error);
  settle_soon();
}

Task<void> Engine::close(Stop& stop) {
  constexpr Duration kPatience = std::chrono::seconds(1);
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  drain();
  if (!failed_ && !left_) {
    feed([this] { negotiator_.leave(now()); });
    Stop limited(stop);
    const Deadline deadline(loop_, after(now(), kPatience), limited, "not all ranks answer");
    try {
      while (!failed_ && !left_) {
        quiet_.reset();
        co_await quiet_.wait(limited);
      }
    } catch (const Error&) {  // they hear of it by the end of the group
    }
  }
  if (!failed_ && (pending_ != 0 || !left_ || !waits_.empty())) fail(std::make_exception_ptr(freed_by(group_->rank())));
  co_await launches_->finish();
  if (failed_) settle();
  co_await rounds_->close();
  while (is_poked()) {
    quiet_.reset();
    Stop none;
    co_await quiet_.wait(none);
  }
  due_.disarm();
  late_.disarm();
  look_again_.disarm();
  settle_.unlink();
  rounds_.reset();
  launches_.reset();
  slots_.clear();
  group_ = nullptr;
  service_.end();
}

EngineStats Engine::count() const noexcept {
  EngineStats stats = counted_;
  stats.steps = negotiator_.stats().steps;
  stats.rounds = negotiator_.stats().rounds;
  stats.breaks = negotiator_.stats().breaks;
  stats.scheduled = negotiator_.scheduled();
  if (rounds_) stats.negotiation_messages = rounds_->messages();
  if (launches_) stats.launches = launches_->calls();
  const std::lock_guard lock(mutex_);
  stats.packed_bytes = packed_bytes_;
  return stats;
}

}  // namespace aiacc::gradient
