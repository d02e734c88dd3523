#include "runtime/group/waiting_receive.h"

#include <utility>

#include "runtime/context.h"
#include "runtime/group/group.h"

namespace aiacc {

static_assert(sizeof(void*) != 8 || sizeof(WaitingReceive) <= 128);

struct WaitingReceive::Upgrade final : GroupOperation::Observer {
  explicit Upgrade(WaitingReceive& its) noexcept : receive(its), news(its.group_.loop()) {}

  void operation_ended(GroupOperation& ended) noexcept override {
    if (receive.waits()) receive.group_.post()->withdraw(receive);
    error = ended.error();
    receive.group_.remove_outstanding();
    receive.finish();
  }

  WaitingReceive& receive;
  Event news;  // the message is there, or an error
  std::exception_ptr error;
  std::optional<GroupOperation> operation;
};

WaitingReceive::WaitingReceive(Group& group, const Call& call, const Buffer& recv)
    : Posted(*group.post(), call, recv), group_(group) {}

WaitingReceive::~WaitingReceive() = default;

const std::exception_ptr& WaitingReceive::error() const noexcept {
  static const std::exception_ptr none;
  return upgrade_ == nullptr ? none : upgrade_->error;
}

Instant WaitingReceive::deadline() const noexcept { return after(began_, group_.default_timeout()); }

std::uint64_t WaitingReceive::record() const noexcept { return group_.context().recorder().number_of(note()); }

void WaitingReceive::begin() noexcept {
  const Call its = call(*group_.post());
  sequence_ = group_.next_message();
  began_ = group_.loop().now();
  set_note(
      static_cast<std::uint32_t>(group_.context().recorder().begin(group_.recorded_as(), sequence_, its, {}, began_)));
  group_.add_outstanding();
  group_.began(*this, its);
}

void WaitingReceive::become_operation() {
  if (upgrade_ == nullptr) upgrade_ = std::make_unique<Upgrade>(*this);
  GroupOperation& operation =
      upgrade_->operation.emplace(group_, call(*group_.post()), Buffer{}, into(), CallOptions{});
  unlink();
  operation.go_on_with(*this);
  operation.observe(*upgrade_);
  group_.context().lane().begin_here(operation);
}

Task<void> WaitingReceive::arrive(Stop& stop) {
  co_await upgrade_->news.wait(stop);
  if (upgrade_->error) std::rethrow_exception(upgrade_->error);
}

// Whether that was its end.
bool WaitingReceive::received(std::exception_ptr error) noexcept {
  if (upgrade_ == nullptr && !error) {
    end(Code::kOk);
    return true;
  }
  if (upgrade_ == nullptr) upgrade_ = std::make_unique<Upgrade>(*this);
  upgrade_->error = std::move(error);
  upgrade_->news.set();
  return upgrade_->operation.has_value();
}

void WaitingReceive::stopped(const std::exception_ptr& reason) noexcept {
  group_.post()->withdraw(*this);
  upgrade_ = std::make_unique<Upgrade>(*this);
  upgrade_->error = reason;
  end(as_error(reason).code());
}

// Last: a waiting thread may destroy this object.
void WaitingReceive::end(Code code) noexcept {
  group_.context().recorder().end(record(), code, group_.loop().about_now());
  group_.ended(*this);
  group_.remove_outstanding();
  finish();
}

void WaitingReceives::add(WaitingReceive& receive) noexcept {
  if (!Stop::Waiter::linked()) group_.stop().add(*this);
  group_.post()->post(receive, *this);
}

// From inside a call of the post, which may be one of an operation's: what ends the group comes later.
void WaitingReceives::received(IntraPost::Posted& posted, std::exception_ptr error) noexcept {
  auto& receive = static_cast<WaitingReceive&>(posted);
  if (receive.received(std::move(error))) return;
  receive.unlink();
  failed_.push_back(receive);
  if (!Job::linked()) group_.loop().post(*this);
}

void WaitingReceives::on_stop(const std::exception_ptr&) noexcept {
  if (!Job::linked()) group_.loop().post(*this);
}

void WaitingReceives::run() noexcept {
  while (WaitingReceive* const receive = failed_.pop_front()) receive->become_operation();
  if (!group_.aborted()) return;
  group_.for_each_line([this](OperationLine& line) {
    while (!line.receives.empty()) line.receives.front().stopped(group_.stop().reason());
  });
}

}  // namespace aiacc
