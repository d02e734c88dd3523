#include "collectives/intra/small_queue.h"

#include <new>
#include <utility>

#include "base/error.h"
#include "collectives/intra/small_call.h"

namespace aiacc::intra {
namespace {

// Completed in one go, before other work of the loop has its turn: a fifth of a millisecond with few bytes, and some with the most.
constexpr int kAtOnce = 512;
// In the start of another call, which is not to take long: more than one, so that a member that was late comes closer to the others.
constexpr int kInAStart = 16;

}  // namespace

SmallQueue::SmallQueue(IntraTeam& team, PlainQueue::Owner& owner)
    : PlainQueue(owner), team_(team), needed_(team.loop()) {}

// Ends the waits of the coroutine, which refer to the domain.
SmallQueue::~SmallQueue() { closing_.request(std::make_exception_ptr(Error(Code::kAborted, "the group is gone"))); }

bool SmallQueue::prepare_to_post(const PlainCall& call, const Buffer& send, const Buffer& recv) noexcept {
  if (!fits_item(call, send, recv)) return false;
  if (first() == nullptr && !team_.turns().free()) return false;
  if (SmallCall::bytes_if_served(team_, call.call()) == kNotOneShot) return false;
  if (attendant_) return broken_ == nullptr;
  try {
    attendant_.emplace(team_.loop(), attend(), static_cast<Root::Owner&>(*this));
    attendant_->start();
  } catch (const std::bad_alloc&) {
    attendant_.reset();
    return false;
  }
  return true;
}

void SmallQueue::post(Item& item) noexcept {
  const bool is_first = first() == nullptr;
  append(item);
  if (!is_first) return;
  [[maybe_unused]] const bool taken = team_.turns().try_take();
  number_ = team_.take_begun().value_or(0);
  if (!advance(kAtOnce)) needed_.set();
}

bool SmallQueue::catch_up() noexcept {
  if (first() == nullptr) return true;
  const bool awaited = missing_ < team_.size() && !team_.has_arrived(missing_, missing_at_);
  return !awaited && advance(kInAStart);
}

bool SmallQueue::withdraw(Item& item) noexcept {
  if (item.state() != Item::State::kWaits) return true;
  const bool is_first = &item == first();
  team_.fail(is_first ? number_ : 0);
  if (!is_first) {
    remove(item);
    return true;
  }
  leave_first();
  if (first() == nullptr && watches_) {
    watches_->request(std::make_exception_ptr(Error(Code::kAborted, "nobody waits any more")));
  }
  return true;
}

void SmallQueue::leave_first() noexcept {
  pop_first();
  number_ = 0;
  missing_ = 0;
  missing_at_ = 0;
  if (first() == nullptr) team_.turns().give_up();
}

// Whether the first one can end. It has arrived when there is room for that.
bool SmallQueue::is_ready(const Item& item) noexcept {
  const Call call = item.plain().call();
  SmallCall small(team_, call, contribution_bytes(call, team_.size()), number_);
  if (number_ == 0) {
    missing_ = team_.first_too_far_behind();
    missing_at_ = team_.room_number();
    if (missing_ < team_.size()) return false;
    small.arrive(item.send());
    number_ = small.number();
    missing_ = 0;
  }
  missing_ = small.awaits(missing_);
  missing_at_ = number_;
  return missing_ == team_.size();
}

std::exception_ptr SmallQueue::take(const Item& item) noexcept {
  const Call call = item.plain().call();
  const SmallCall small(team_, call, contribution_bytes(call, team_.size()), number_);
  if (small.agree()) {
    small.take(item.recv());
    return nullptr;
  }
  team_.fail(number_);
  try {
    team_.require_agreed_so_far();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Completes calls in their order as long as nobody is to be waited for, so many at the most. True: no call is left, or none will end.
bool SmallQueue::advance(int most) noexcept {
  for (int done = 0; first() != nullptr && !team_.failed(); ++done) {
    if (done == most || !is_ready(*first())) return false;
    Item& item = *first();
    std::exception_ptr error = take(item);
    leave_first();
    ended(item, std::move(error));
  }
  return true;
}

Task<void> SmallQueue::attend() {
  for (;;) {
    if (first() == nullptr || team_.failed()) {
      needed_.reset();
      co_await needed_.wait(closing_);
      continue;
    }
    if (is_ready(*first())) {
      co_await yield_turn(team_.loop(), closing_);
    } else {
      watches_.emplace(closing_);
      try {
        const FlagRef flag = team_.arrival_flag(missing_, missing_at_);
        co_await team_.domain().at_least(flag, missing_at_, *watches_);
      } catch (...) {
        if (closing_.requested()) throw;
      }
      watches_.reset();
    }
    advance(kAtOnce);
  }
}

void SmallQueue::root_ended(Root&, std::exception_ptr error) noexcept { broken_ = std::move(error); }

}  // namespace aiacc::intra
