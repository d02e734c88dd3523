#include "runtime/group/short_queue.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "base/task/scope.h"
#include "collectives/inter/short_call.h"
#include "runtime/context.h"
#include "runtime/group/dispatch.h"
#include "runtime/group/group.h"
#include "runtime/group/waiting_small.h"
#include "transports/mailbox.h"

namespace aiacc {
namespace {

std::uint64_t ticket_of(const PlainQueue::Item& item) noexcept {
  return static_cast<const WaitingSmall&>(item).sequence();
}

struct Lengths {
  std::size_t send;
  std::size_t recv;
};

// Of the buffers of a rank.
Lengths lengths_of(const PlainCall& call, const Team& team) noexcept {
  const std::size_t one = call.count * size_of(call.type);
  const std::size_t all = one * static_cast<std::size_t>(team.size());
  const bool is_root = call.root == team.rank;
  switch (call.kind) {
    case Collective::kAllreduce:
    case Collective::kBroadcast: return {one, one};
    case Collective::kReduce: return {one, is_root ? one : 0};
    case Collective::kAllgather: return {one, all};
    case Collective::kReduceScatter: return {all, one};
    case Collective::kAlltoall: return {all, all};
    case Collective::kGather: return {one, is_root ? all : 0};
    case Collective::kScatter: return {is_root ? all : 0, one};
    default: return {0, 0};
  }
}

}  // namespace

// What a call that goes on needs beside its record.
class ShortQueue::Place final : private Root::Owner {
 public:
  explicit Place(ShortQueue& queue) noexcept : queue_(queue) {}

  // May end inside.
  void begin(Item& item) noexcept;
  Place* next_free = nullptr;

 private:
  void root_ended(Root&, std::exception_ptr error) noexcept override { leave(std::move(error)); }
  void leave(std::exception_ptr error) noexcept;
  Task<void> body();

  ShortQueue& queue_;
  Item* item_ = nullptr;
  std::optional<Operation> operation_;
  std::optional<inter::ShortCall> short_call_;
  std::optional<Root> root_;  // destroyed first: it waits for the others
};

void ShortQueue::Place::begin(Item& item) noexcept {
  item_ = &item;
  item.set_state(Item::State::kGoesOn);
  Group& group = queue_.group_;
  Team& team = group.team();
  try {
    const PlainCall plain = item.plain();
    const Lengths lengths = lengths_of(plain, team);
    Buffer send{const_cast<std::byte*>(item.send()), lengths.send};
    Buffer recv{item.recv(), lengths.recv};
    const Registrations& registered = group.context().registrations();
    registered.mark(send);
    registered.mark(recv);
    operation_.emplace(Operation{team, plain.call(), ticket_of(item), group.stop(), send, recv});
    root_.emplace(team.loop, body(), static_cast<Root::Owner&>(*this));
  } catch (...) {
    return leave(std::current_exception());
  }
  root_->start();
}

// Some take the other way, which tells the user which algorithm is chosen, as of blocking calls (Group::finish_short).
Task<void> ShortQueue::Place::body() {
  constexpr std::uint64_t kCallsPerTurn = 32;
  Operation& its = *operation_;
  const bool is_short = inter::ShortCall::serves(its.team, its.call, its.send, its.recv);
  if (!is_short || its.sequence % kCallsPerTurn == 1) return run_call(its, queue_.group_.messengers());
  short_call_.emplace(its.team, its.call, its.sequence, its.stop, its.send, its.recv,
                      inter::ShortCall::Sends::kWithOthers);
  return short_call_->finish();
}

void ShortQueue::Place::leave(std::exception_ptr error) noexcept {
  root_.reset();
  short_call_.reset();
  operation_.reset();
  queue_.place_free(*this, *std::exchange(item_, nullptr), std::move(error));
}

// --- ShortQueue ----------------------------------------------------------------------------------------------------------

bool ShortQueue::serves(const Group& group) noexcept {
  return group.view().hosts() > 1 && group.view().most_on_a_host() == 1;
}

ShortQueue::ShortQueue(Group& group, PlainQueue::Owner& owner)
    : PlainQueue(owner), group_(group), match_(group.team().mailbox->group(group.view().id())) {}

ShortQueue::~ShortQueue() = default;

bool ShortQueue::prepare_to_post(const PlainCall& call, const Buffer& send, const Buffer& recv) noexcept {
  if (!fits_item(call, send, recv) || is_message(call.kind) || call.kind == Collective::kGroupedAllreduce) return false;
  const Lengths lengths = lengths_of(call, group_.team());
  if (lengths.send != send.bytes || lengths.recv != recv.bytes) return false;
  if (std::max(send.bytes, recv.bytes) > Mailbox::kEagerBytes || match_.error) return false;
  if (free_ != nullptr || places_.size() == kPlaces) return true;
  try {
    places_.push_back(std::make_unique<Place>(*this));
  } catch (const std::bad_alloc&) {
    return false;
  }
  free_ = places_.back().get();
  return true;
}

bool ShortQueue::sends() const noexcept { return first() == nullptr && busy_ < kPlaces; }

void ShortQueue::post(Item& item) noexcept {
  append(item);
  begin_those_with_a_place();
}

// One that goes on ends by the group's Stop.
bool ShortQueue::withdraw(Item& item) noexcept {
  if (item.state() == Item::State::kGoesOn) return false;
  if (item.state() != Item::State::kWaits) return true;
  remove(item);
  tell_mailbox();
  return true;
}

// What ends inside is here only once: its place is taken again by the loop that began it.
void ShortQueue::begin_those_with_a_place() noexcept {
  if (std::exchange(beginning_, true)) return;
  while (first() != nullptr && free_ != nullptr && !failed_ && !group_.aborted()) {
    Place& place = *std::exchange(free_, free_->next_free);
    ++busy_;
    place.begin(pop_first());
  }
  beginning_ = false;
  tell_mailbox();
}

void ShortQueue::place_free(Place& place, Item& item, std::exception_ptr error) noexcept {
  place.next_free = std::exchange(free_, &place);
  --busy_;
  failed_ = failed_ || error != nullptr;
  item.set_state(Item::State::kElsewhere);
  ended(item, std::move(error));
  begin_those_with_a_place();
}

// So that members which ask about one that waits hear that it was made.
void ShortQueue::tell_mailbox() noexcept {
  match_.queued =
      first() == nullptr ? MatchGroup::Queued{} : MatchGroup::Queued{ticket_of(*first()), ticket_of(*last())};
}

}  // namespace aiacc
