#include "groupcomm/gradient/action_queue.h"

#include <utility>

namespace aiacc::gradient {

void ActionQueue::reuse() {
  if (taken_ != actions_.size()) return;
  actions_.clear();
  tensors_.clear();
  mine_.clear();
  taken_ = 0;
}

bool ActionQueue::next(Action& action) {
  if (taken_ == actions_.size()) return false;
  const Stored& stored = actions_[taken_++];
  action = stored.action;
  // The lists may have moved since the push.
  action.launch.tensors = std::span(tensors_).subspan(stored.first, stored.count);
  action.launch.mine = std::span(mine_).subspan(stored.first, stored.count);
  return true;
}

void ActionQueue::push(const Action& action) {
  Stored& stored = actions_.emplace_back(Stored{action, tensors_.size(), action.launch.tensors.size()});
  tensors_.insert(tensors_.end(), action.launch.tensors.begin(), action.launch.tensors.end());
  mine_.insert(mine_.end(), action.launch.mine.begin(), action.launch.mine.end());
  stored.action.launch.tensors = {};
  stored.action.launch.mine = {};
}

void ActionQueue::say(Action::Kind kind, std::string text) {
  text_ = std::move(text);
  Action action;
  action.kind = kind;
  action.text = &text_;
  push(action);
}

void ActionQueue::exchange(std::vector<std::byte> payload) {
  payload_ = std::move(payload);
  Action action;
  action.kind = Action::Kind::kExchange;
  action.payload = payload_;
  push(action);
}

void ActionQueue::fail(Error error) {
  actions_.clear();
  taken_ = 0;
  error_ = std::move(error);
  Action action;
  action.kind = Action::Kind::kFailed;
  action.error = &*error_;
  push(action);
}

}  // namespace aiacc::gradient
