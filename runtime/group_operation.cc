#include "runtime/group_operation.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/dispatch.h"
#include "runtime/group.h"

namespace aiacc {

GroupOperation::GroupOperation(Group& group, const Call& call, Buffer send, Buffer recv, CallOptions options)
    : group_(group), call_(call), send_(send), recv_(recv), options_(std::move(options)) {}

std::string GroupOperation::describe() const {
  std::string text = call_.describe();
  if (!options_.name.empty()) text += fmt::format(" '{}'", options_.name);
  return text + fmt::format(" (operation {} of {})", sequence_, group_.describe());
}

std::string GroupOperation::missing() const {
  const std::vector<int> ranks = group_.missing(*this);
  if (ranks.empty()) return "";
  constexpr std::size_t kNamed = 16;
  std::string text = ranks.size() == 1 ? "; rank " : "; ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < kNamed; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kNamed) text += fmt::format(" and {} more", ranks.size() - kNamed);
  return text + (ranks.size() == 1 ? " has not arrived" : " have not arrived");
}

void GroupOperation::begin() noexcept {
  try {
    group_.check_alive();
    sequence_ = group_.next_ticket(call_);
    began_ = group_.loop().now();
    const Duration timeout =
        options_.timeout == CallOptions::kDefaultTimeout ? group_.default_timeout() : options_.timeout;
    deadline_ = after(began_, timeout);
    running_.emplace(group_.team(), call_, send_, recv_, sequence_, group_.stop());
    running_->root.emplace(group_.loop(), body(this), static_cast<Root::Owner&>(*this));
  } catch (...) {
    running_.reset();
    error_ = std::current_exception();
    finish();
    return;
  }
  group_.began(*this);
  running_->root->start();
}

// The group is aborted before anything else of it runs: an operation that waits for this one sees why.
Task<void> GroupOperation::body(GroupOperation* self) {
  try {
    co_await run_call(self->running_->operation, self->group_.messengers());
  } catch (...) {
    self->group_.abort(std::current_exception());
    throw;
  }
}

void GroupOperation::stop(std::exception_ptr reason) noexcept { running_->stop.request(std::move(reason)); }

void GroupOperation::root_ended(Root&, std::exception_ptr error) noexcept {
  ListNode<GroupOperation>::unlink();
  running_.reset();
  // What ended the group ends all that runs in it, with its own code; algorithms may say just that it is over.
  if (error && as_error(error).code() == Code::kAborted) error = group_.stop().reason();
  error_ = std::move(error);
  group_.ended();
  finish();
}

}  // namespace aiacc
