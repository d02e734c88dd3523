#include "runtime/group/waiting_message.h"

#include <algorithm>
#include <utility>

#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/waiting_receive.h"

namespace aiacc {

struct WaitingMessage::Upgrade final : GroupOperation::Observer {
  explicit Upgrade(WaitingMessage& its) noexcept : message(its), news(its.group_.loop()) {}

  void operation_ended(GroupOperation& over) noexcept override {
    error = over.error();
    message.group_.add_waiting(-1);
    withdrawn = true;
    if (message.withdraw()) message.finish();
  }

  WaitingMessage& message;
  Event news;  // the message is there, or an error
  bool withdrawn = false;
  std::exception_ptr error;
  std::optional<GroupOperation> operation;
};

WaitingMessage::WaitingMessage(Group& group) noexcept : group_(group) {}
WaitingMessage::~WaitingMessage() = default;

const std::exception_ptr& WaitingMessage::error() const noexcept {
  static const std::exception_ptr none;
  return upgrade_ == nullptr ? none : upgrade_->error;
}

Instant WaitingMessage::deadline() const noexcept { return after(began_, group_.default_timeout()); }

std::uint64_t WaitingMessage::record() const noexcept { return group_.context().recorder().number_of(recorded()); }

void WaitingMessage::begin() noexcept {
  const Call its = call();
  sequence_ = group_.next_message();
  OperationLine& line = group_.line_of(its);
  // The clock is read for the first that waits. What comes behind it may have begun some milliseconds later than it says.
  began_ =
      line.waiting.empty() ? group_.loop().now() : std::max(line.waiting.front().began(), group_.loop().about_now());
  set_recorded(
      static_cast<std::uint32_t>(group_.context().recorder().begin(group_.recorded_as(), sequence_, its, {}, began_)));
  group_.add_waiting(1);
  group_.began(*this, line);
  post();
}

void WaitingMessage::become_operation() {
  if (upgrade_ == nullptr) upgrade_ = std::make_unique<Upgrade>(*this);
  const Call its = call();
  const bool sends = its.kind == Collective::kSend;
  GroupOperation& operation =
      upgrade_->operation.emplace(group_, its, sends ? memory() : Buffer{}, sends ? Buffer{} : memory(), CallOptions{});
  ListNode<WaitingMessage>::unlink();
  operation.go_on_with(*this);
  operation.observe(*upgrade_);
  group_.context().lane().begin_here(operation);
}

Task<void> WaitingMessage::arrival(Stop& stop) {
  co_await upgrade_->news.wait(stop);
  rethrow();
}

void WaitingMessage::rethrow() const {
  if (upgrade_->error) std::rethrow_exception(upgrade_->error);
}

bool WaitingMessage::withdrawn() const noexcept { return upgrade_ != nullptr && upgrade_->withdrawn; }

// Whether that was its end, or its operation's.
bool WaitingMessage::ended(std::exception_ptr error) noexcept {
  if (upgrade_ == nullptr && !error) {
    end(Code::kOk);
    return true;
  }
  if (upgrade_ == nullptr) upgrade_ = std::make_unique<Upgrade>(*this);
  upgrade_->error = std::move(error);
  upgrade_->news.set();
  return upgrade_->operation.has_value();
}

void WaitingMessage::stopped(const std::exception_ptr& reason) noexcept {
  ListNode<WaitingMessage>::unlink();
  upgrade_ = std::make_unique<Upgrade>(*this);
  upgrade_->error = reason;
  upgrade_->withdrawn = true;
  if (withdraw()) end(as_error(reason).code());
}

// After a withdrawal that took its time.
void WaitingMessage::released() noexcept { upgrade_->operation ? finish() : end(as_error(upgrade_->error).code()); }

// Last: a waiting thread may destroy this object.
void WaitingMessage::end(Code code) noexcept {
  group_.context().recorder().end(record(), code, group_.loop().about_now());
  group_.ended(*this);
  group_.add_waiting(-1);
  finish();
}

// --- WaitingMessages -------------------------------------------------------------------------------------------------

void WaitingMessages::add() noexcept {
  if (!Stop::Waiter::linked()) group_.stop().add(*this);
}

// From inside a call of IntraMessages, the mailbox or the port, which may be one of an operation's: what ends the group comes
// later.
void WaitingMessages::hand_over(WaitingMessage& message) noexcept {
  message.ListNode<WaitingMessage>::unlink();
  handed_over_.push_back(message);
  if (!Job::linked()) group_.loop().post(*this);
}

void WaitingMessages::received(IntraMessages::Posted& posted, std::exception_ptr error) noexcept {
  WaitingMessage& receive = static_cast<WaitingReceive&>(posted);
  if (!receive.ended(std::move(error))) hand_over(receive);
}

void WaitingMessages::on_stop(const std::exception_ptr&) noexcept {
  if (!Job::linked()) group_.loop().post(*this);
}

void WaitingMessages::run() noexcept {
  while (WaitingMessage* const message = handed_over_.pop_front()) message->become_operation();
  if (!group_.aborted()) return;
  group_.for_each_line([this](OperationLine& line) {
    while (!line.waiting.empty()) line.waiting.front().stopped(group_.stop().reason());
  });
}

}  // namespace aiacc
