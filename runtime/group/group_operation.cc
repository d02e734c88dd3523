#include "runtime/group/group_operation.h"

#include <fmt/format.h>

#include <utility>

#include "collectives/inter/short_call.h"
#include "runtime/context.h"
#include "runtime/group/dispatch.h"
#include "runtime/group/group.h"
#include "runtime/group/waiting_call.h"
#include "transports/mailbox.h"

namespace aiacc {

GroupOperation::GroupOperation(Group& group, const Call& call, Buffer send, Buffer recv, CallOptions options)
    : group_(group),
      call_(call),
      blocks_(call.blocks.begin(), call.blocks.end()),
      recv_blocks_(call.recv_blocks.begin(), call.recv_blocks.end()),
      tensors_(call.tensors.begin(), call.tensors.end()),
      send_(send),
      recv_(recv),
      options_(std::move(options)) {
  reported_late = options_.waits_long;
  if (!options_.traffic_class) options_.traffic_class = group.default_traffic_class();
  call_.blocks = blocks_;
  call_.recv_blocks = recv_blocks_;
  call_.tensors = tensors_;
  const Registrations& registered = group_.context().registrations();
  registered.mark(send_);
  registered.mark(recv_);
  for (Tensor& tensor : tensors_) {
    registered.mark(tensor.send);
    registered.mark(tensor.recv);
  }
  group_.add_outstanding();
}

GroupOperation::~GroupOperation() { discount(); }

// Called before the completion is reported, because the group may be destroyed afterwards.
void GroupOperation::discount() noexcept {
  if (std::exchange(counted_, false)) group_.remove_outstanding();
}

// The last action: after finish() a waiting thread may destroy this object.
void GroupOperation::end() noexcept {
  discount();
  group_.say_done_if_freed();
  std::unique_ptr<Completion> completion = std::move(completion_);
  if (completion != nullptr) completion->error = error_;
  Observer* const observer = observer_;
  finish();
  if (observer != nullptr) return observer->operation_ended(*this);
  if (completion == nullptr) return;
  CompletionThread& thread = completion->thread;
  thread.post(std::move(completion));
}

std::string GroupOperation::describe() const {
  std::string text = call_.describe();
  if (!options_.name.empty()) text += fmt::format(" '{}'", options_.name);
  return text + fmt::format(" (operation {} of {})", sequence(), group_.describe());
}

void GroupOperation::begin() noexcept {
  try {
    number();
    running_.emplace(group_.team(), call_, send_, recv_, sequence(), group_.stop());
    running_->operation.traffic = options_.traffic();
    Mailbox* const mailbox = group_.team().mailbox;
    if (mailbox != nullptr && options_.traffic().data == TrafficClass::kLatency) mailbox->port().note_latency();
    running_->root.emplace(group_.loop(), body(this), static_cast<Root::Owner&>(*this));
  } catch (...) {
    if (waiting_ != nullptr) {
      const std::exception_ptr error = std::current_exception();
      group_.abort(error);
      return over(error);
    }
    running_.reset();
    error_ = std::current_exception();
    record_end();
    group_.reported();
    if (group_.has_told_of_end()) return end();
    return end_once_told();
  }
  if (waiting_ == nullptr) group_.began(*this);
  running_->root->start();
}

// As body() does, for a call that found at once that the group is over.
void GroupOperation::end_once_told() noexcept {
  try {
    telling_ = std::make_unique<Root>(group_.loop(), group_.tell_of_end(), static_cast<Root::Owner&>(*this));
  } catch (const std::bad_alloc&) {
    return end();
  }
  group_.context().watch().add_ending();
  telling_->start();
}

// What is begun ends as it finds.
void GroupOperation::number() {
  if (waiting_ != nullptr) {
    sequence_.store(waiting_->sequence(), std::memory_order_relaxed);
    began_ = waiting_->began();
    record_ = waiting_->record();
    deadline_ = waiting_->deadline();
    return group_.took_over(*this);
  }
  const std::uint64_t ticket = begun_ == nullptr ? group_.admit(call_) : begun_->sequence();
  sequence_.store(ticket, std::memory_order_relaxed);
  began_ = group_.loop().now();
  record_ = group_.context().recorder().begin(group_.recorded_as(), ticket, call_, options_.name, began_);
  deadline_ =
      after(began_, options_.timeout == CallOptions::kDefaultTimeout ? group_.default_timeout() : options_.timeout);
}

void GroupOperation::record_end() noexcept {
  if (record_ == 0) return;
  const Code code = error_ ? as_error(error_).code() : Code::kOk;
  group_.context().recorder().end(record_, code, group_.loop().now());
}

// An error aborts the group before another operation of it runs, so that an operation that waits for this one fails with the
// same error. The caller gets it once the members on other hosts can hear of it: its process may end at once.
Task<void> GroupOperation::body(GroupOperation* self) {
  std::optional<StartWindow::Running> running;  // until it has aborted the group: nothing of that begins any more
  std::exception_ptr error;
  try {
    if (self->begun_ != nullptr) {
      co_await self->begun_->finish();
    } else if (self->waiting_ != nullptr) {
      co_await self->waiting_->go_on(self->running_->operation);
    } else {
      if (!self->group_.is_open()) co_await self->group_.wait_until_open(self->running_->stop);
      Operation& operation = self->running_->operation;
      if (self->group_.starts_in_turn(operation.call.kind)) {
        StartWindow& window = self->group_.start_window();
        const bool counted = co_await StartWindow::Await(window, self->sequence(), operation.traffic,
                                                         self->group_.loop(), operation.stop);
        running.emplace(window, counted);
      }
      co_await run_call(operation, self->group_.messengers());
    }
  } catch (...) {
    error = std::current_exception();
  }
  if (!error) co_return;
  if (as_error(error).code() == Code::kAborted) co_await wait_for_abort_reason(self->group_);
  self->group_.abort(error);
  co_await self->group_.tell_of_end();
  std::rethrow_exception(error);
}

// Waits for the group's first error. A member that fails closes its memory to the stores of others, which therefore fail with
// kAborted before they know the cause. The cause arrives through the board, or with the notice of a dead member; kPatience is
// the limit if neither comes.
Task<void> GroupOperation::wait_for_abort_reason(Group& group) {
  constexpr Duration kPatience = std::chrono::seconds(5);
  if (group.aborted()) co_return;
  Stop heard(group.stop());
  Deadline deadline(group.loop(), after(group.loop().now(), kPatience), heard, "nobody says why the group is over");
  Event never(group.loop());
  try {
    co_await never.wait(heard);
  } catch (const Error&) {
  }
}

void GroupOperation::root_ended(Root&, std::exception_ptr error) noexcept {
  if (telling_ == nullptr) return over(std::move(error));
  telling_.reset();
  group_.context().watch().remove_ending();
  group_.context().operation_ended();
  end();
}

void GroupOperation::over(std::exception_ptr error) noexcept {
  group_.context().watch().remove(*this);
  running_.reset();
  // An algorithm may fail with kAborted only; the operation then reports the group's first error.
  if (error && as_error(error).code() == Code::kAborted) error = group_.stop().reason();
  error_ = std::move(error);
  record_end();
  group_.ended(*this);
  end();
}

}  // namespace aiacc
