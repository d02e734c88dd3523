// Rounds that the workers of a store sum themselves, with an allreduce: the worker's end.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "groupcomm/kv/store.h"

namespace aiacc::kv {

// Whether some worker may be ready for an allreduce of a push of this key, so that the chooser hears of each push.
bool Store::needs_chooser(const Key& key) const noexcept {
  return options_.mode == Mode::kSync && all_assign_.value_or(true) && !replicated() && reductions_ &&
         options_.workers.size() > 1 && key.shape.bytes() >= std::max<std::size_t>(options_.allreduce_bytes, 1);
}

bool Store::asks_first(const Key& key) const noexcept { return needs_chooser(key) && !peer(chooser()).gone; }

bool Store::may_be_together(const Order& order, const Key& key) const noexcept {
  const bool plain = options_.encoding == Encoding::kPlain || key.shape.type != DType::kFloat32;
  return order.what == Order::What::kPushPull && !order.some_in && !order.some_out && plain && asks_first(key) &&
         all_assign_ && !reductions_->over();
}

void Store::send_to_chooser(Operation* operation, Key& key, Kind kind, int priority) {
  Request request;
  request.operation = operation;
  request.priority = priority;
  request.key = &key;
  request.kind = kind;
  request.to = chooser();
  post(request);
}

void Store::decided(const Request& request, bool together) {
  Key& key = *request.key;
  Operation* const operation = request.operation;
  if (operation == nullptr) {
    if (!together) return;
    const std::string why =
        fmt::format("rank {} has ended a push to {} of {} by its deadline, and all others were ready to sum it", rank_,
                    describe_key(key.name), describe());
    return reductions_->abort(std::make_exception_ptr(Error(Code::kTimeout, why)));
  }
  if (!together) {
    key.together = nullptr;
    if (const Error* const lost = over_without(key); lost != nullptr) throw *lost;
    begin_access(*operation, key);
    return start_waiting(key);
  }
  operation->alarm_.disarm();  // the allreduce has the deadline now
  const Order& order = operation->order_;
  CallOptions options;
  options.name = describe_key(key.name);
  options.priority = order.priority;
  options.timeout =
      operation->deadline_ == kNever ? Duration::max() : std::max(operation->deadline_ - loop_.now(), Duration(1));
  reductions_->start(*operation, key.shape, order.in, order.out, std::move(options));
}

void Store::reduced(Operation& operation, const std::exception_ptr& error) noexcept {
  Key& key = keys_.find(operation.order_.key)->second;
  try {
    if (!error) {
      ++key.after;
      return supply(operation, key);
    }
    if (peer(chooser()).gone) throw *peer(chooser()).gone;
    const Error why = as_error(reductions_->why() ? reductions_->why() : error);
    const int rank = why.peer() == kNoPeer ? kNoPeer : options_.workers[static_cast<std::size_t>(why.peer())];
    throw Error(why.code(), why.message(), rank);
  } catch (const Error& why) {
    operation.error_ = std::current_exception();
    detach(operation);
    // Some workers may have their sum, and others not, and so have the servers of the value's parts.
    if (error) key.broken = why.code() == Code::kPeerFailed ? why : Error(Code::kAborted, why.message(), why.peer());
    end(operation);
  }
}

// Gives the servers of parts what this worker is to give them.
void Store::supply(Operation& operation, Key& key) {
  const Order& order = operation.order_;
  const std::size_t row_bytes = key.shape.row_bytes();
  std::vector<Answer> answers;
  operation.left_ = 1;  // until all requests are posted
  for (std::uint32_t part = 0; part < key.parts.size(); ++part) {
    const PartPlace& place = key.parts[part].place;
    const int server = options_.servers[static_cast<std::size_t>(place.server)];
    const int worker = worker_of(server) >= 0 ? server : options_.workers[part % options_.workers.size()];
    if (worker != rank_) continue;
    if (server == rank_) {
      const std::span all(static_cast<const std::byte*>(order.out), key.shape.bytes());
      server_.supply(key.name, part, all.subspan(place.first_row * row_bytes, place.rows * row_bytes), answers);
      continue;
    }
    ++operation.left_;
    Request request;
    request.operation = &operation;
    request.priority = order.priority;
    request.key = &key;
    request.part = part;
    request.kind = Kind::kSupply;
    request.to = server;
    post(request);
  }
  dispatch(answers);
  if (--operation.left_ == 0) return end(operation);
  if (operation.deadline_ != kNever) loop_.arm(operation.alarm_, operation.deadline_);
}

}  // namespace aiacc::kv
