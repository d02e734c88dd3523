// What ends: launches and with them tensors, waits, and the engine itself.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/data/codec.h"
#include "groupcomm/gradient/engine_wait.h"
#include "runtime/context.h"
#include "runtime/group/group.h"

namespace aiacc::gradient {

namespace {

// Of a part of a launch, as its elements travelled.
std::size_t travelled(const Launches::Flight& flight, const Launches::Part& part) {
  const std::size_t count = part.bytes / size_of(flight.kind.type);
  if (flight.wire) return count * size_of(*flight.wire);
  return flight.codec == Codec::kNone ? part.bytes : encoded_bytes(flight.codec, count);
}

}  // namespace

void Engine::launch_ended(Launches::Flight& flight) {
  progressed_ = now();
  if (tuning_ && flight.pass != 0) tuning_->pass_ended(flight.pass, now());
  for (Launches::Part& part : flight.parts) {
    if (part.mine) counted_.wire_bytes += travelled(flight, part);
    if (left_ && leaves_out(flight, part)) {
      if (part.mine) leave_out(*part.tensor);
      continue;
    }
    part.copied_out = part.mine && part.tensor->out != nullptr;
    if (part.out_of_range) {
      if (part.mine) again_.push_back(part.tensor);
      continue;
    }
    if (part.not_finite && part.owed) not_finite_first_.insert(part.index);
    if (results_.finish(flight, part)) complete(*part.tensor, error_of(part, *part.tensor));
    if (!part.owed) {
      not_finite_first_.erase(part.index);
      not_finite_ranks_.erase(part.index);
    }
  }
  std::uint64_t bytes = 0;
  for (const Launches::Part& part : flight.parts) bytes += part.mine ? part.bytes : 0;
  if (!flight.follow_up && bytes > 0) measured_.fused.add(bytes);
  trace_.ended(flight);
  if (!again_.empty()) settle_soon();
  tell_waiters();
}

// All ranks see the same result. Which rank it comes from was told before (negotiator.h), of one tensor where it had several. There is
// no such rank if gradients are finite and only their sum is not.
std::exception_ptr Engine::error_of(const Launches::Part& part, const Tensor& tensor) {
  if (!options_.nan_check || !(part.not_finite || not_finite_first_.contains(part.index))) return nullptr;
  auto told = not_finite_ranks_.find(part.index);
  if (told == not_finite_ranks_.end()) told = not_finite_ranks_.begin();
  if (told == not_finite_ranks_.end()) {
    return std::make_exception_ptr(
        Error(Code::kNotFinite,
              fmt::format("the sum of gradient '{}' is not finite: all ranks leave out this step", tensor.name)));
  }
  return std::make_exception_ptr(
      Error(Code::kNotFinite,
            fmt::format("gradient '{}' of rank {} is not finite: all ranks leave out this step",
                        negotiator_.tensors().agreed(told->first).name, told->second),
            told->second));
}

// All ranks do so, each when it has the result; the negotiator gives it a place among the launches.
void Engine::submit_again() {
  for (Tensor* tensor : std::exchange(again_, {})) {
    if (tensor->submitted != Instant{}) tensor->submitted = tensor->packed = now();
    tensor->negotiating = {};
    negotiator_.ready(tensor->number, now());
    if (somebody_waits()) negotiator_.urge(now());
    act();
  }
}

void Engine::complete(Tensor& tensor, const std::exception_ptr& error) noexcept {
  const bool left_out = error && error == left_;
  if (!error && tensor.out != nullptr && tensor.bytes > 0) std::memcpy(tensor.out, tensor.place, tensor.bytes);
  if (error && tensor.table != nullptr) tensor.table->result.clear();
  tensor.owed = tensor.pending = false;
  --pending_;
  left_some_out_ = left_some_out_ || left_out;
  if (error && !left_out && !failed_ && !not_finite_) not_finite_ = error;
  if (!error) {
    ++counted_.tensors;
    counted_.bytes += tensor.bytes;
  }
  Submission* const submission = inbox_.completed(tensor, left_out);
  tell_waiters(tensor, left_out ? error : failed_);
  if (submission == nullptr) return;
  lane_.begin_here(*submission);
  submission->end(error);
}

void Engine::tell_waiters() noexcept {
  if (pending_ != 0) return;
  const auto wait = std::stable_partition(waits_.begin(), waits_.end(), [](const Wait* one) { return one->joins; });
  const std::vector<Wait*> ended(wait, waits_.end());
  waits_.erase(wait, waits_.end());
  if (!ended.empty() && not_finite_) not_finite_ranks_.clear();
  std::exception_ptr error = failed_;
  if (!failed_ && !ended.empty()) error = std::exchange(not_finite_, nullptr);
  if (!error && left_some_out_) error = left_;
  for (Wait* one : ended) {
    ++measured_.waits;
    measured_.wait_ns += static_cast<std::uint64_t>((now() - one->began).count());
    one->end(error);
  }
  if (left_ && !failed_) end_joins(-1, left_);
}

void Engine::tell_waiters(const Tensor& tensor, const std::exception_ptr& error) noexcept {
  const auto wait = std::stable_partition(tensor_waits_.begin(), tensor_waits_.end(),
                                          [&](const TensorWait* one) { return one->tensor != tensor.number; });
  const std::vector<TensorWait*> ended(wait, tensor_waits_.end());
  tensor_waits_.erase(wait, tensor_waits_.end());
  if (failed_ && !ended.empty()) inbox_.told();
  for (TensorWait* one : ended) one->end(error);
}

void Engine::end_joins(int last_rank, const std::exception_ptr& error) noexcept {
  const auto wait = std::stable_partition(waits_.begin(), waits_.end(), [](const Wait* one) { return !one->joins; });
  const std::vector<Wait*> ended(wait, waits_.end());
  waits_.erase(wait, waits_.end());
  for (Wait* one : ended) {
    one->last_rank = last_rank;
    one->end(error);
  }
}

// What all ranks have launched ends well, here and on others; joins wait for that, and then end with an error. Nothing else is reduced
// any more.
void Engine::left(int rank, std::uint64_t not_whole_from) {
  left_ = freed_by(rank);
  not_whole_from_ = not_whole_from;
  whole_before_ = ~std::uint64_t{0};
  quiet_.set();
  inbox_.left(left_);
  settle_soon();
  for (Tensor* tensor : std::exchange(again_, {})) leave_out(*tensor);
  for (std::uint32_t local = 0; local < by_local_.size(); ++local) {
    Tensor& tensor = *by_local_[local];
    if (!tensor.pending) {
      tell_waiters(tensor, left_);  // its submission is on its way, and refused, or left out when it comes
      continue;
    }
    const bool is_owed = tensor.owed && negotiator_.owed(negotiator_.tensors().index_of(local));
    if (negotiator_.pending(local) || is_owed) leave_out(tensor);
  }
  tell_waiters();
}

// A rank has left: the submission is not reduced. It may come after that, and before the inbox knew.
void Engine::leave_out(Tensor& tensor) noexcept {
  complete(tensor, left_);
  tell_waiters();
}

// Of a launch that has ended, after a rank has left: what would be submitted once more, or wait for a follow-up that never comes.
bool Engine::leaves_out(const Launches::Flight& flight, const Launches::Part& part) const noexcept {
  if (flight.serial >= not_whole_from_ || part.out_of_range) return true;
  return part.owed && !flight.follow_up && negotiator_.owed(part.index);
}

std::exception_ptr Engine::freed_by(int rank) const {
  return std::make_exception_ptr(
      Error(Code::kAborted, fmt::format("rank {} has freed {}", rank, inbox_.describe()), rank));
}

// The first error ends the group on all ranks. What is outstanding ends when nobody touches its memory any more.
void Engine::fail(std::exception_ptr error) noexcept {
  if (failed_) return;
  group_->abort(error);
  failed_ = group_->stop().reason();
  due_.disarm();
  late_.disarm();
  launches_->drop_queue();
  inbox_.end(failed_);
  quiet_.set();
  settle_soon();
}

void Engine::settle_soon() noexcept {
  if (!settle_.linked()) loop_.post(settle_);
}

void Engine::settle() noexcept {
  if (!failed_) {
    feed([this] { submit_again(); });
    return feed([this] { launches_->settle(); });
  }
  if (!launches_->running()) end_all();  // otherwise launches_failed() comes when the last has ended
}

void Engine::end_all() noexcept {
  drain();
  for (Tensor* tensor : by_local_) {
    if (tensor->pending) complete(*tensor, failed_);
  }
  if (!waits_.empty() || !tensor_waits_.empty()) inbox_.told();
  const std::vector<Wait*> ended = std::move(waits_);
  waits_.clear();
  for (Wait* one : ended) one->end(failed_);
  for (TensorWait* one : std::exchange(tensor_waits_, {})) one->end(failed_);
}

void Engine::rounds_failed(const std::exception_ptr& error) noexcept { fail(error); }

void Engine::launches_failed(const std::exception_ptr& error) noexcept {
  fail(error);
  settle_soon();
}

// After an error, though the last call may have ended well.
void Engine::nothing_runs() noexcept {
  if (failed_) settle_soon();
}

void Engine::call_ended(bool reduces) noexcept {
  if (reduces) progressed_ = now();
  if (negotiator_.wants_room()) feed([] {});  // act() asks
}

Task<void> Engine::say_goodbye(Stop& stop) {
  constexpr Duration kPatience = std::chrono::seconds(10);
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

Task<void> Engine::close(Stop& stop) {
  inbox_.close();
  drain();
  if (!failed_ && !left_) co_await say_goodbye(stop);
  if (!failed_ && !left_) fail(freed_by(group_->rank()));
  settle();
  co_await launches_->finish();
  settle();
  co_await rounds_->close();
  while (inbox_.is_poked()) {
    quiet_.reset();
    Stop none;
    co_await quiet_.wait(none);
  }
  // Of submissions that are refused now.
  for (TensorWait* one : std::exchange(tensor_waits_, {})) one->end(failed_ ? failed_ : left_);
  due_.disarm();
  late_.disarm();
  settle_.unlink();
  group_->context().metrics().remove(static_cast<Metrics::Source&>(*this));
  rounds_.reset();
  launches_.reset();
  inbox_.clear();
  group_ = nullptr;
  service_.end();
}

}  // namespace aiacc::gradient
