#include "runtime/group/waiting_call.h"

#include <utility>

#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/message_now.h"
#include "runtime/group/waiting_receive.h"
#include "runtime/group/waiting_small.h"
#include "runtime/watch/recorder.h"

namespace aiacc {

struct WaitingCall::Upgrade final : GroupOperation::Observer {
  explicit Upgrade(WaitingCall& its) noexcept : waiting(its), news(its.group_.loop()) {}

  void operation_ended(GroupOperation& over) noexcept override {
    error = over.error();
    waiting.group_.add_waiting(-1);
    waiting.group_.waiting_calls().some_ended();
    withdrawn = true;
    if (waiting.withdraw()) waiting.finish();
  }

  WaitingCall& waiting;
  Event news;  // it is over, or an error
  bool withdrawn = false;
  std::exception_ptr error;
  std::optional<GroupOperation> operation;
};

WaitingCall::WaitingCall(Group& group) noexcept : group_(group) {}
WaitingCall::~WaitingCall() = default;

const std::exception_ptr& WaitingCall::error() const noexcept {
  static const std::exception_ptr none;
  return upgrade_ == nullptr ? none : upgrade_->error;
}

Instant WaitingCall::deadline() const noexcept { return after(began_, group_.default_timeout()); }

std::uint64_t WaitingCall::record() const noexcept { return group_.context().recorder().number_of(recorded()); }

bool WaitingCall::failed() const noexcept { return upgrade_ != nullptr && upgrade_->error != nullptr; }

void WaitingCall::begin() noexcept {
  begin_as(plain());
  post();
}

void WaitingCall::become_operation() {
  if (upgrade_ == nullptr) upgrade_ = std::make_unique<Upgrade>(*this);
  const Call its = call();
  const bool sends = its.kind == Collective::kSend;
  GroupOperation& operation =
      upgrade_->operation.emplace(group_, its, sends ? memory() : Buffer{}, sends ? Buffer{} : memory(), CallOptions{});
  ListNode<WaitingCall>::unlink();
  operation.go_on_with(*this);
  operation.observe(*upgrade_);
  group_.context().lane().begin_here(operation);
}

Task<void> WaitingCall::arrival(Stop& stop) {
  co_await upgrade_->news.wait(stop);
  rethrow();
}

void WaitingCall::rethrow() const {
  if (upgrade_->error) std::rethrow_exception(upgrade_->error);
}

bool WaitingCall::withdrawn() const noexcept { return upgrade_ != nullptr && upgrade_->withdrawn; }

// Whether that was its end, or its operation's.
bool WaitingCall::ended(std::exception_ptr error) noexcept {
  if (upgrade_ == nullptr && !error) {
    end(Code::kOk);
    return true;
  }
  if (upgrade_ == nullptr) upgrade_ = std::make_unique<Upgrade>(*this);
  upgrade_->error = std::move(error);
  upgrade_->news.set();
  return upgrade_->operation.has_value();
}

void WaitingCall::stopped(const std::exception_ptr& reason) noexcept {
  ListNode<WaitingCall>::unlink();
  upgrade_ = std::make_unique<Upgrade>(*this);
  upgrade_->error = reason;
  upgrade_->withdrawn = true;
  if (withdraw()) end(as_error(reason).code());
}

// After a withdrawal that took its time.
void WaitingCall::released() noexcept { upgrade_->operation ? finish() : end(as_error(upgrade_->error).code()); }

// Last: a waiting thread may destroy this object.
void WaitingCall::end(Code code) noexcept {
  group_.context().recorder().end(record(), code, group_.loop().about_now());
  group_.ended(*this);
  group_.add_waiting(-1);
  group_.waiting_calls().some_ended();
  finish();
}

// --- WaitingCalls -------------------------------------------------------------------------------------------------

void WaitingCalls::add() noexcept {
  if (!Stop::Waiter::linked()) group_.stop().add(*this);
}

// From inside a call of IntraMessages, a queue of collectives, the mailbox or the port, which may be one of an operation's: what ends the group comes
// later.
void WaitingCalls::hand_over(WaitingCall& call) noexcept {
  call.ListNode<WaitingCall>::unlink();
  handed_over_.push_back(call);
  if (!Job::linked()) group_.loop().post(*this);
}

// The last of a freed group may be one of them. What follows from that comes later, too.
void WaitingCalls::some_ended() noexcept {
  if (group_.handles_are_gone() && !Job::linked()) group_.loop().post(*this);
}

void WaitingCalls::received(IntraMessages::Posted& posted, std::exception_ptr error) noexcept {
  call_ended(static_cast<WaitingReceive&>(posted), std::move(error));
}

// They are many, and nearly all are nothing but what they say: what all of them need is done once.
void WaitingCalls::received_all(std::span<IntraMessages::Posted* const> receives) noexcept {
  const Instant now = group_.loop().about_now();
  Recorder& recorder = group_.context().recorder();
  for (IntraMessages::Posted* const posted : receives) {
    auto& receive = static_cast<WaitingReceive&>(*posted);
    WaitingCall& call = receive;
    if (call.upgrade_ != nullptr) {
      call_ended(call, nullptr);
      continue;
    }
    recorder.end(recorder.number_of(posted->note()), Code::kOk, now);
    group_.received(receive);
    call.finish_with_others();
  }
  group_.context().lane().finished_together();
  group_.received_some();
  some_ended();
}

void WaitingCalls::item_ended(PlainQueue::Item& item, std::exception_ptr error) noexcept {
  call_ended(static_cast<WaitingSmall&>(item), std::move(error));
}

void WaitingCalls::call_ended(WaitingCall& call, std::exception_ptr error) noexcept {
  if (call.withdrawn()) return call.released();
  if (!call.ended(std::move(error))) hand_over(call);
}

void WaitingCalls::on_stop(const std::exception_ptr&) noexcept {
  if (!Job::linked()) group_.loop().post(*this);
}

void WaitingCalls::run() noexcept {
  while (WaitingCall* const call = handed_over_.pop_front()) call->become_operation();
  group_.say_done_if_freed();
  if (!group_.aborted()) return;
  const bool told = group_.has_told_of_end();
  group_.for_each_line([&](OperationLine& line) {
    while (!line.waiting.empty()) {
      WaitingCall& call = line.waiting.front();
      told ? call.stopped(group_.stop().reason()) : call.become_operation();
    }
  });
}

}  // namespace aiacc
