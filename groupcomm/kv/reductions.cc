#include "groupcomm/kv/reductions.h"

#include <utility>

#include "runtime/context.h"

namespace aiacc::kv {

Reductions::Reductions(Group& workers, Owner& owner)
    : group_(workers), owner_(owner), quiet_(workers.context().lane().loop()) {}

Reductions::~Reductions() = default;

void Reductions::start(Operation& operation, const Shape& shape, const void* in, void* out, CallOptions options) {
  Call call;
  call.kind = Collective::kAllreduce;
  call.reduction.type = shape.type;
  call.count = static_cast<std::size_t>(shape.elements());
  Buffer send, recv;
  send.data = static_cast<std::byte*>(const_cast<void*>(in));  // it is only read
  recv.data = static_cast<std::byte*>(out);
  send.bytes = recv.bytes = shape.bytes();
  running_.push_back({group_.prepare(call, send, recv, &options), &operation});
  GroupOperation& allreduce = *running_.back().allreduce;
  allreduce.observe(*this);
  quiet_.reset();
  group_.context().lane().begin_here(allreduce);
}

void Reductions::operation_ended(GroupOperation& allreduce) noexcept {
  for (Running& one : running_) one.ended = one.ended || one.allreduce.get() == &allreduce;
  if (!reap_.linked()) group_.context().lane().loop().post(reap_);
}

// What the owner does may begin others.
void Reductions::reap() noexcept {
  std::list<Running> ended;
  for (auto one = running_.begin(); one != running_.end();) {
    const auto next = std::next(one);
    if (one->ended) ended.splice(ended.end(), running_, one);
    one = next;
  }
  for (const Running& one : ended) owner_.reduced(*one.operation, one.allreduce->error());
  if (running_.empty()) quiet_.set();
}

Task<void> Reductions::close(const std::string& reason) {
  if (!running_.empty()) group_.abort_by_user(reason);
  Stop none;
  while (!running_.empty()) co_await quiet_.wait(none);
}

}  // namespace aiacc::kv
