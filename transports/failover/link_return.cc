// The way back of a Link from the second network to the first one; link.h says how.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "transports/failover/link.h"

namespace aiacc::failover {
namespace {

using Step = wire::Return::Step;

// Of a trial, until this rank returns: enough for connections to be made.
constexpr Duration kTrialLimit = std::chrono::seconds(10);
constexpr unsigned kAllClasses = (1U << kTrafficClasses) - 1;

unsigned bit(TrafficClass traffic) noexcept { return 1U << static_cast<unsigned>(traffic); }

}  // namespace

// --- trials -----------------------------------------------------------------------------------------------------------------

// Whatever can be next, once the first network is free for a trial.
void Link::await_trial() noexcept {
  if (state_ != State::kSecond || !first_lost_ || trial_ != Trial::kNone || why_) return;
  if (asked_ != 0) return shared_.notify_later({Shared::What::kAsked, rank_, nullptr, nullptr, {}});
  const bool tries = is_lower() && shared_.failback > Duration::zero() && !leaving_;
  if (tries) shared_.loop->arm(*this, std::max(try_at_, shared_.now()));
}

void Link::expired() noexcept { trial_ == Trial::kNone ? begin_trial() : abandon(); }

void Link::begin_trial() noexcept {
  if (!shared_.first->renew(rank_, epoch_ + 1)) return;
  renewed(epoch_ + 1, Trial::kAsked);
  say(Step::kAsk);
  shared_.loop->arm(*this, after(shared_.now(), kTrialLimit));
}

void Link::answer() noexcept {
  if (state_ != State::kSecond || !first_lost_ || trial_ != Trial::kNone || why_ || asked_ == 0) return;
  const std::uint32_t epoch = std::exchange(asked_, 0);
  if (leaving_ || !shared_.first->renew(rank_, epoch)) {
    epoch_ = epoch;
    return say(Step::kAbandon);
  }
  renewed(epoch, Trial::kAnswered);
  say(Step::kReady);
}

void Link::renewed(std::uint32_t epoch, Trial trial) noexcept {
  epoch_ = epoch;
  trial_ = trial;
  first_lost_ = false;
  probes_ = lasts_ = 0;
}

void Link::step_came(Over over, TrafficClass traffic, const wire::Return& said) {
  const bool is_probe = said.step == Step::kProbe;
  if (is_probe != (over == Over::kFirst))
    throw Error(Code::kProtocol, "it sent a step of the way back by the wrong way");
  const bool present = said.epoch == epoch_;  // otherwise it is of a trial that is over
  switch (said.step) {
    case Step::kAsk:
      if (is_lower() || said.epoch <= epoch_) break;
      asked_ = said.epoch;
      return await_trial();
    case Step::kReady:
      if (!present || trial_ != Trial::kAsked) return;
      trial_ = Trial::kProbing;
      return say_in_each_class(Step::kProbe);
    case Step::kProbe: return present ? probe_came(traffic) : void();
    case Step::kLast: return present ? last_came(traffic) : void();
    case Step::kDone: return present && state_ == State::kReturning && !is_lower() ? use_first() : void();
    case Step::kAbandon: return abandoned(said.epoch);
  }
  throw Error(Code::kProtocol, "it sent a step of the way back that makes no sense");
}

void Link::probe_came(TrafficClass traffic) noexcept {
  const Trial expected = is_lower() ? Trial::kProbing : Trial::kAnswered;
  if (trial_ != expected) return;
  probes_ |= bit(traffic);
  if (probes_ != kAllClasses) return;
  if (is_lower()) return begin_return();
  trial_ = Trial::kProbing;
  say_in_each_class(Step::kProbe);
}

// What breaks, or takes too long, before this rank returns.
void Link::abandon() noexcept {
  end_trial();
  say(Step::kAbandon);
  if (first_lost_) return await_trial();
  const Error error(Code::kPeerFailed, fmt::format("{}: the trial of the path was abandoned", ends()), rank_);
  shared_.first->lose(rank_, std::make_exception_ptr(error));
}

// The peer has sent nothing over the first network in this epoch.
void Link::abandoned(std::uint32_t epoch) noexcept {
  if (epoch == asked_) asked_ = 0;
  if (epoch != epoch_) return;
  if (state_ == State::kLeaving || state_ == State::kSwitching) {
    theirs_ = wire::Receipts();
    theirs_->complete.assign(kTrafficClasses, 0);
    return go_on();
  }
  if (state_ != State::kReturning && trial_ == Trial::kNone) return;
  end_trial();
  if (state_ == State::kReturning) use_second();
  if (first_lost_) return await_trial();
  const Error error(Code::kPeerFailed, fmt::format("{}: the other rank abandoned the trial of the path", ends()),
                    rank_);
  shared_.first->lose(rank_, std::make_exception_ptr(error));
}

void Link::end_trial() noexcept {
  trial_ = Trial::kNone;
  disarm();
  try_at_ = hold_down_.broke(shared_.now());
}

void Link::stop_trials() noexcept {
  leaving_ = true;
  if (trial_ != Trial::kNone) return abandon();
  disarm();
}

// --- the return -------------------------------------------------------------------------------------------------------------

void Link::begin_return() noexcept {
  trial_ = Trial::kNone;
  disarm();
  state_ = State::kReturning;
  say_in_each_class(Step::kLast);
}

void Link::last_came(TrafficClass traffic) noexcept {
  const bool expected = is_lower() ? state_ == State::kReturning : trial_ == Trial::kProbing;
  if (!expected) return;
  lasts_ |= bit(traffic);
  if (lasts_ != kAllClasses) return;
  if (!is_lower()) return begin_return();
  say(Step::kDone);
  use_first();
}

void Link::use_first() noexcept {
  state_ = State::kFirst;
  hold_down_.works(shared_.now());
  std::erase_if(arriving_, [](const Arriving& one) { return one.again && one.revoked; });
  for (Class& its : classes_) {
    for (Record& record : its.records) transmit_first(record, false);
  }
  shared_.remark(fmt::format("the path over {} between {} works again; their messages go over {} from now on",
                             shared_.first_name, ends(), shared_.first_name));
  shared_.link_changed();
}

}  // namespace aiacc::failover
