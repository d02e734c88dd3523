// The recorded schedule, and the way out of it: break, cut and settling (negotiator.h).
#include <algorithm>

#include "base/hash.h"
#include "groupcomm/gradient/negotiator_state.h"

namespace aiacc::gradient {

void Negotiator::State::mark_ready() {
  for (std::uint32_t index : order_.tensors)
    if (submissions.ready(index)) schedule_.ready(index);
}

// False: a pass would begin, and what was voted on is not known yet. The units are those of the pass then, but that is only this
// rank's until it launches the first one.
bool Negotiator::State::may_begin_pass() {
  if (!options_.tunes || !schedule_.at_start()) return true;
  if (voting_) return false;
  if (cut_by_ != wanted_fusion_bytes_) {
    cut_by_ = wanted_fusion_bytes_;
    schedule_.cut_anew(order_.ends(cut_by_));
    mark_ready();
  }
  return true;
}

void Negotiator::State::begin_pass() {
  fusion_bytes_ = cut_by_;
  voting_ = --passes_to_vote_ == 0;
  Action action;
  action.kind = Action::Kind::kPass;
  action.votes = voting_;
  actions.push(action);
}

void Negotiator::State::launch_head(Instant now) {
  if (options_.tunes && schedule_.at_start()) begin_pass();
  take_submissions(schedule_.head(), mine_);
  push_launch(schedule_.head(), mine_, false);
  schedule_.advance();
  last_launch_ = now;
}

void Negotiator::State::proceed_scheduled(Instant now) {
  if (!was_asked() && !departs_ && !breaks_) {
    while (may_begin_pass() && schedule_.head_ready()) launch_head(now);
    // An order by priority lets the head wait while earlier launches are at work: that delays nothing.
    lateness_.update(schedule_.blocked() && (room_ || !table.has_priorities()), now);
    const bool flushed_too_early = passes_flushed_ > schedule_.passes();
    // What waits for a vote alone is launched without anybody's doing.
    const bool waits_for_vote = !may_begin_pass() && schedule_.head_ready();
    if (((flushed_too_early || waits_for_pending()) && !waits_for_vote) || joined_ || leaving_) departs_ = true;
    if (now >= lateness_.deadline() || now >= stall_deadline()) departs_ = true;
  }
  if (was_asked() || departs_ || breaks_) begin_break();
}

void Negotiator::State::begin_break() {
  // Before the word leaves: no unit that only some ranks have launched can complete until all have contributed.
  held = true;
  push_simple(Action::Kind::kHold);
  begin_word();
  word_.set_any(Word::kBreak);
  if (departs_) word_.set_any(Word::kDeparted);
  word_.set_number(Word::kLaunched, schedule_.launched());
  word_.set_number(Word::kLaunchedLeast, Word::complement(schedule_.launched()));
  mode_ = Mode::kBreaking;
  begin_round();
}

void Negotiator::State::break_result(const Word& merged) {
  AIACC_INVARIANT(merged.any(Word::kBreak), "all ranks run the schedule, or none");
  cut_ = merged.number(Word::kLaunched);
  least_ = Word::minimum_of(merged.number(Word::kLaunchedLeast));
  log_ = static_cast<std::uint32_t>(Hash64().add(log_).add(cut_).value());
  ++stats.breaks;
  somebody_departed_ = merged.any(Word::kDeparted);
  absent_.clear();
  owed_.clear();
  lateness_.forget();
  mode_ = Mode::kCutting;
  // What all ranks have launched themselves is whole.
  if (least_ < cut_) push_release(first_serial_ + least_, {});
}

// Only where this rank could wait for ever: the caller does nothing but wait, and what it waits for may be behind the unit or
// held; or something submitted is behind the unit for too long. A tensor that is just not computed yet, or comes with the next
// step, delays the cut as it would delay its own launch online. Nor does it come where this rank leaves, and where one leaves nobody waits.
bool Negotiator::State::may_give_zeros(Instant now) const noexcept {
  const bool may_be_waited_for = submissions.pending() != 0 || schedule_.launched() > least_;
  if (joined_ || leaving_ || leaver_ != 0) return true;
  return ((flushed_ || urged_) && may_be_waited_for) || now >= lateness_.deadline();
}

void Negotiator::State::proceed_cut(Instant now) {
  while (schedule_.launched() < cut_) {
    if (!may_begin_pass()) return lateness_.forget();
    if (!schedule_.head_ready()) {
      if (!may_give_zeros(now)) break;
      for (std::uint32_t index : schedule_.head()) {
        // A rank without data gives zeros as its contribution, which is owed to nobody.
        if (submissions.ready(index) || joined_) continue;
        absent_.push_back(index);
        ++stats.zeros;
      }
    }
    launch_head(now);
  }
  if (schedule_.launched() < cut_) {
    lateness_.update(submissions.pending() > schedule_.head_tensors_ready(), now);
    return;
  }
  if (leaver_ != 0) return end_by_leaving(least_ < cut_ ? first_serial_ + least_ : UINT64_MAX);
  if (least_ < cut_) {
    mode_ = Mode::kSettling;
  } else {
    go_online(now);
  }
}

void Negotiator::State::begin_settling() {
  begin_word();
  word_.set_any(Word::kSettling);
  word_.set_all_ready();
  for (std::uint32_t index : absent_) word_.clear_ready(index);
  begin_round();
}

void Negotiator::State::settling_result(const Word& merged) {
  AIACC_INVARIANT(merged.any(Word::kSettling), "all ranks settle, or none");
  Hash64 log;
  log.add(log_);
  std::sort(absent_.begin(), absent_.end());
  for (std::uint32_t index = 0; index < agreed_count(); ++index) {
    if (merged.ready(index)) continue;
    submissions.owe(index, std::binary_search(absent_.begin(), absent_.end(), index));
    owed_.push_back(index);
    log.add(index);
  }
  log_ = static_cast<std::uint32_t>(log.value());
}

void Negotiator::State::push_release(std::uint64_t serial, std::span<const std::uint32_t> owed) {
  mine_.assign(owed.size(), 0);
  for (std::size_t at = 0; at < owed.size(); ++at) mine_[at] = submissions.owed_to_me(owed[at]) ? 0 : 1;
  Action action;
  action.kind = Action::Kind::kRelease;
  action.launch.serial = serial;
  action.launch.tensors = owed;
  action.launch.mine = mine_;
  actions.push(action);
}

void Negotiator::State::go_online(Instant now) {
  held = false;
  push_release(UINT64_MAX, owed_);
  ++epoch;
  mode_ = Mode::kOnline;
  const std::uint64_t passes = schedule_.passes();
  recorder_.broke(passes, somebody_departed_);
  flushes_ = passes_flushed_ > passes ? passes_flushed_ - passes : 0;
  told_flush_ = told_wait_ = told_join_ = somebody_waits_ = false;
  departs_ = breaks_ = false;
  awaited_ = 0;
  wait_since_ = now;
  lateness_.forget();
  submissions.all_fresh(now);
}

}  // namespace aiacc::gradient
