#include "groupcomm/gradient/inbox.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <utility>

#include "base/data/magnitude.h"

namespace aiacc::gradient {
namespace {

// How long what was submitted may stay in the inbox.
constexpr Duration kLinger = std::chrono::milliseconds(1);

}  // namespace

Inbox::Inbox(Lane& lane, Owner& owner, std::string described, std::size_t enough, HostDomain* domain, bool alone,
             bool looks, const Timeline& timeline)
    : lane_(lane),
      owner_(owner),
      described_(std::move(described)),
      alone_(alone),
      looks_(looks),
      timeline_(timeline),
      slots_(domain),
      enough_(enough) {}

// --- any thread: tensors ---------------------------------------------------------------------------------------------

void Inbox::check_usable() {
  const std::lock_guard lock(mutex_);
  check_usable_locked();
}

void Inbox::check_usable_locked() {
  if (closed_) throw Error(Code::kInvalidHandle, fmt::format("{} was freed", described_));
  if (over_) throw_over_locked();
}

void Inbox::throw_over_locked() {
  if (!std::exchange(over_told_, true)) std::rethrow_exception(over_);
  const Error error = as_error(over_);
  throw Error(Code::kAborted, fmt::format("{} is over: {}", described_, error.message()), error.peer());
}

void Inbox::end(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  left_ = false;
  if (!over_) over_ = std::move(why);
}

void Inbox::left(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  left_ = true;
  over_ = std::move(why);
}

void Inbox::throw_outstanding(const Tensor& tensor) const {
  throw Error(Code::kInvalidState,
              fmt::format("tensor '{}' was submitted to {} and is not reduced yet", tensor.name, described_));
}

Inbox::Tensor& Inbox::checked_locked(std::uint32_t tensor) {
  if (tensor >= tensors_.size() || tensors_[tensor].removed) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} has no tensor number {}{}", described_, tensor,
                            tensor < tensors_.size() ? fmt::format(": '{}' was removed", tensors_[tensor].name) : ""));
  }
  return tensors_[tensor];
}

Inbox::Tensor& Inbox::checked_locked(std::uint32_t number, bool is_table) {
  Tensor& tensor = checked_locked(number);
  if (tensor.kind.is_table() == is_table) return tensor;
  throw Error(Code::kInvalidArgument,
              is_table
                  ? fmt::format("tensor '{}' of {} is no table: it has elements, and row_elements was 0", tensor.name,
                                described_)
                  : fmt::format("tensor '{}' of {} is a table: rows of it are submitted (aiacc_gradient_submit_rows)",
                                tensor.name, described_));
}

// Refuses the orders, or reserves the memory of those that are new.
void Inbox::check_orders_locked(std::span<const TensorOrder> orders) {
  std::map<std::uint64_t, std::size_t> room;
  std::unordered_map<std::string_view, const TensorOrder*> fresh;
  for (const TensorOrder& order : orders) {
    const auto compare = [&](const Kind& kind, std::size_t count) {
      if (count == order.count && kind == order.kind) return;
      throw Error(Code::kInvalidArgument,
                  fmt::format("tensor '{}' is {} and was added to {} as {}", order.name,
                              order.kind.describe(order.count), described_, kind.describe(count)));
    };
    if (const auto known = names_.find(std::string(order.name)); known != names_.end()) {
      compare(tensors_[known->second].kind, tensors_[known->second].count);
      continue;
    }
    const auto [first, is_new] = fresh.try_emplace(order.name, &order);
    compare(first->second->kind, first->second->count);
    if (is_new && !order.kind.is_table())
      room[order.kind.key()] += Slots::padded(order.count * size_of(order.kind.type));
  }
  if (tensors_.size() + fresh.size() > kMostTensors) {
    throw Error(Code::kInvalidArgument, fmt::format("{} has {} tensors, and {} more are above the most, which is {}",
                                                    described_, tensors_.size(), fresh.size(), kMostTensors));
  }
  for (const auto& [kind, bytes] : room) slots_.reserve(kind, bytes);
}

void Inbox::add(std::span<const TensorOrder> orders, std::uint32_t* indices) {
  const std::lock_guard lock(mutex_);
  check_usable_locked();
  check_orders_locked(orders);
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
    tensor.number = name->second;
    tensor.count = order.count;
    tensor.kind = order.kind;
    tensor.priority = order.priority;
    if (order.kind.is_table()) {
      tensor.table = std::make_unique<Table>();
    } else {
      tensor.bytes = order.count * size_of(order.kind.type);
      tensor.slot = slots_.take(order.kind.key(), tensor.bytes);
    }
    tensor.may_stay = alone_ && !looks_ && order.kind.needs_no_pack(tensor.bytes);
    items_.push_back({Item::What::kAdd, name->second, &tensor});
  }
}

void Inbox::remove(std::span<const std::uint32_t> tensors) {
  const std::lock_guard lock(mutex_);
  check_usable_locked();
  for (const std::uint32_t tensor : tensors) {
    if (!checked_locked(tensor).outstanding) continue;
    throw_outstanding(tensors_[tensor]);
  }
  for (const std::uint32_t tensor : tensors) tensors_[tensor].removed = true;
}

void* Inbox::memory(std::uint32_t tensor) {
  const std::lock_guard lock(mutex_);
  if (closed_) check_usable_locked();
  return checked_locked(tensor).slot.data;
}

bool Inbox::in_place(std::uint32_t tensor) {
  const std::lock_guard lock(mutex_);
  if (closed_) check_usable_locked();
  return checked_locked(tensor).may_stay;
}

void Inbox::set_enough(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  enough_ = bytes;
}

std::uint64_t Inbox::packed_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return packed_bytes_;
}

// --- any thread: a step ----------------------------------------------------------------------------------------------

// It is the caller's to fill until hand_over() or drop_submission().
Inbox::Tensor& Inbox::begin_submission(std::uint32_t number, bool is_table) {
  const std::lock_guard lock(mutex_);
  check_usable_locked();
  Tensor& tensor = checked_locked(number, is_table);
  if (tensor.outstanding) {
    throw Error(Code::kInvalidState,
                fmt::format("tensor '{}' was submitted to {} twice: the first submission is not reduced yet",
                            tensor.name, described_));
  }
  tensor.outstanding = true;
  return tensor;
}

void Inbox::drop_submission(Tensor& tensor) noexcept {
  const std::lock_guard lock(mutex_);
  drop_submission_locked(tensor);
}

// Who has begun to wait for it meanwhile is to hear of that.
void Inbox::drop_submission_locked(Tensor& tensor) noexcept {
  tensor.outstanding = false;
  tensor.left_out = left_;
  dropped_ = true;
  if (!closed_) poke_locked();
}

void Inbox::hand_over(Tensor& tensor, bool finite, std::size_t copied, Submission* submission) {
  const std::lock_guard lock(mutex_);
  try {
    check_usable_locked();
    items_.push_back({Item::What::kReady, tensor.number, &tensor, finite});
  } catch (...) {
    drop_submission_locked(tensor);
    throw;
  }
  tensor.submission = submission;
  packed_bytes_ += copied;
  bytes_ += tensor.bytes;
  if (bytes_ >= enough_ || !looks_again_) poke_locked();
}

void Inbox::submit(std::uint32_t number, const void* in, void* out, Submission* submission) {
  Tensor& tensor = begin_submission(number, false);
  const bool traced = timeline_.on();
  const bool stays = tensor.may_stay && in != nullptr && in == out;
  const bool copies = !stays && in != nullptr && in != tensor.slot.data && tensor.bytes > 0;
  tensor.submitted = tensor.packed = traced ? lane_.loop().now() : Instant{};
  if (copies) std::memcpy(tensor.slot.data, in, tensor.bytes);
  if (copies && traced) tensor.packed = lane_.loop().now();
  const bool finite = !looks_ || !tensor.kind.sums() || all_finite(tensor.kind.type, tensor.slot.data, tensor.count);
  tensor.place = stays ? static_cast<std::byte*>(out) : tensor.slot.data;
  tensor.out = out == tensor.place ? nullptr : out;
  const std::size_t copied = stays ? 0 : (in != nullptr ? tensor.bytes : 0) + (out != nullptr ? tensor.bytes : 0);
  hand_over(tensor, finite, copied, submission);
}

void Inbox::submit_rows(std::uint32_t number, RowsView rows, Submission* submission) {
  Tensor& tensor = begin_submission(number, true);
  Rows& given = tensor.table->given;
  const Kind& kind = tensor.kind;
  tensor.submitted = timeline_.on() ? lane_.loop().now() : Instant{};
  try {
    for (const std::int64_t row : rows.numbers) {
      if (row >= 0 && static_cast<std::uint64_t>(row) < tensor.count) continue;
      throw Error(Code::kInvalidArgument, fmt::format("row {} is submitted of tensor '{}' of {}, which is {}", row,
                                                      tensor.name, described_, kind.describe(tensor.count)));
    }
    given.collect(kind.type, kind.row_elements, rows);
  } catch (...) {
    drop_submission(tensor);
    throw;
  }
  tensor.packed = tensor.submitted == Instant{} ? Instant{} : lane_.loop().now();
  tensor.bytes = given.bytes();
  tensor.table->result.clear();
  hand_over(tensor, !looks_ || all_finite(kind.type, given.elements(), given.size() * kind.row_elements), tensor.bytes,
            submission);
}

RowsView Inbox::rows(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  if (closed_) check_usable_locked();
  const Tensor& tensor = checked_locked(number, true);
  if (!tensor.outstanding) return tensor.table->result.view();
  throw_outstanding(tensor);
}

bool Inbox::outstanding(std::uint32_t tensor) {
  const std::lock_guard lock(mutex_);
  if (closed_) check_usable_locked();
  const Tensor& which = checked_locked(tensor);
  if (!which.outstanding && (!left_ || which.left_out)) check_usable_locked();
  return which.outstanding;
}

void Inbox::flush() {
  const std::lock_guard lock(mutex_);
  if (left_ && !closed_) return;
  check_usable_locked();
  items_.push_back({Item::What::kFlush, 0, nullptr});
  poke_locked();
}

void Inbox::urge() noexcept {
  const std::lock_guard lock(mutex_);
  ++urges_;
  if (closed_ || over_) return;
  urged_ = true;
  poke_locked();
}

// Once for all that is in the inbox.
void Inbox::poke_locked() noexcept {
  if (std::exchange(poked_, true)) return;
  if (lane_.driven_outside()) {
    lane_.loop().post(poke_);
  } else {
    lane_.loop().post_from_any_thread(poke_);
  }
}

// --- the lane --------------------------------------------------------------------------------------------------------

void Inbox::poked() noexcept {
  {
    const std::lock_guard lock(mutex_);
    poked_ = false;
  }
  owner_.brought();
}

// While the user submits, the lane looks once in a while, so that not every submission wakes it.
void Inbox::look_again() noexcept {
  {
    const std::lock_guard lock(mutex_);
    looks_again_ = false;
    if (items_.empty()) return;
  }
  owner_.brought();
}

Inbox::Taken Inbox::take(std::vector<Item>& items) {
  Taken taken;
  bool look_again = false;
  {
    const std::lock_guard lock(mutex_);
    items.clear();
    items.swap(items_);
    bytes_ = 0;
    taken = {std::exchange(urged_, false), std::exchange(dropped_, false)};
    look_again = !items.empty() && !closed_ && !std::exchange(looks_again_, true);
  }
  if (look_again) lane_.loop().arm(look_again_, after(lane_.loop().now(), kLinger));
  return taken;
}

bool Inbox::is_outstanding(std::uint32_t tensor) const noexcept {
  const std::lock_guard lock(mutex_);
  return tensors_[tensor].outstanding;
}

bool Inbox::somebody_waits() const noexcept {
  const std::lock_guard lock(mutex_);
  return urges_ > 0;
}

Submission* Inbox::completed(Tensor& tensor, bool left_out) noexcept {
  Submission* const submission = std::exchange(tensor.submission, nullptr);
  const std::lock_guard lock(mutex_);
  tensor.outstanding = false;
  tensor.left_out = left_out;
  if (submission != nullptr && submission->expected()) --urges_;
  return submission;
}

void Inbox::told() noexcept {
  const std::lock_guard lock(mutex_);
  over_told_ = true;
}

void Inbox::close() noexcept {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool Inbox::closed() const noexcept {
  const std::lock_guard lock(mutex_);
  return closed_;
}

bool Inbox::is_poked() const noexcept {
  const std::lock_guard lock(mutex_);
  return poked_;
}

void Inbox::clear() noexcept {
  look_again_.disarm();
  const std::lock_guard lock(mutex_);
  slots_.clear();
}

}  // namespace aiacc::gradient
