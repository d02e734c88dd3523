#include "groupcomm/gradient/negotiator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "groupcomm/gradient/negotiator_state.h"

namespace aiacc::gradient {

Negotiator::State::State(const NegotiatorOptions& options)
    : table(options.rank),
      submissions(table),
      options_(options),
      recorder_(options.schedule_steps, options.fusion_bytes),
      lateness_(options.head_of_line),
      log_(static_cast<std::uint32_t>(Hash64()
                                          .add(options.round_bytes)
                                          .add(options.fusion_bytes)
                                          .add(static_cast<std::uint64_t>(options.schedule_steps))
                                          .add(std::uint64_t{options.nan_check})
                                          .add(std::uint64_t{options.tunes})
                                          .value())),
      fusion_bytes_(options.fusion_bytes),
      wanted_fusion_bytes_(options.fusion_bytes) {
  AIACC_INVARIANT(options.ranks > 0 && options.rank >= 0 && options.rank < options.ranks, "a rank of a group");
}

std::uint32_t Negotiator::State::add(TensorRecord record) {
  const std::uint32_t local = table.add(std::move(record));
  submissions.grow();
  return local;
}

void Negotiator::State::ready(std::uint32_t local, bool finite, Instant now) {
  AIACC_INVARIANT(!join_wanted_, "a rank that joined submits nothing until all ranks have joined");
  const std::uint32_t index = table.index_of(local);
  AIACC_INVARIANT(index == kNoIndex ? !submissions.pending_without_index(local) : !submissions.ready(index),
                  "a gradient is submitted again after it was launched");
  if (submissions.pending() == 0) last_launch_ = now;
  submissions.submit(local, finite, now);
  submitted_since_flush_ = true;
  urged_ = flushed_ = false;
  if (mode_ != Mode::kOnline && mode_ != Mode::kEnded) {
    if (index != kNoIndex && schedule_.contains(index)) {
      if (mode_ != Mode::kSettling) schedule_.ready(index);
    } else {
      departs_ = true;
    }
    if (!finite) breaks_ = true;
  }
  proceed(now);
}

void Negotiator::State::wait_begins(Instant now) {
  if (!flushed_ && !urged_) wait_since_ = now;
  told_wait_ = false;
}

void Negotiator::State::flush(Instant now) {
  wait_begins(now);
  flushed_ = true;
  if (submitted_since_flush_) {
    submitted_since_flush_ = false;
    if (mode_ == Mode::kOnline) {
      ++flushes_;
    } else if (mode_ != Mode::kEnded) {
      const bool whole = schedule_.at_start() && submissions.pending() == 0;
      passes_flushed_ = schedule_.passes() + (whole ? 0 : 1);
    }
  }
  proceed(now);
}

void Negotiator::State::urge(Instant now) {
  if (urged_) return;
  wait_begins(now);
  urged_ = true;
  proceed(now);
}

void Negotiator::State::join(Instant now) {
  join_wanted_ = true;
  if (submissions.pending() != 0) urge(now);  // the caller does nothing but wait for that
  proceed(now);
}

void Negotiator::State::leave(Instant now) {
  leaving_ = true;
  proceed(now);
}

void Negotiator::State::asked(std::uint64_t round, Instant now) {
  asked_ = std::max(asked_, round);
  proceed(now);
}

void Negotiator::State::tuned(std::uint64_t fusion_bytes, std::uint64_t passes, Instant now) {
  if (mode_ == Mode::kEnded) return;
  AIACC_INVARIANT(voting_ && passes > 0, "a vote has an answer");
  voting_ = false;
  wanted_fusion_bytes_ = fusion_bytes;
  passes_to_vote_ = passes;
  proceed(now);
}

void Negotiator::State::room(Instant now) {
  room_ = true;
  proceed(now);
}

void Negotiator::State::tick(Instant now) { proceed(now); }

void Negotiator::State::fail(const Error& error) {
  if (mode_ == Mode::kEnded) return;
  mode_ = Mode::kEnded;
  actions.fail(error);
}

void Negotiator::State::result(std::uint64_t round, const Word& merged, Instant now) {
  if (mode_ == Mode::kEnded) return;
  AIACC_INVARIANT(in_round_ && round == next_round_, "the result of the round that this rank has contributed to");
  in_round_ = false;
  ++next_round_;
  const std::uint64_t log = merged.number(Word::kLog), complement = merged.number(Word::kLogComplement);
  if (merged.tensors() != table.agreed_tensors() || (log ^ complement) != UINT32_MAX) {
    fail(Error(
        Code::kMismatch,
        fmt::format("the gradient negotiation of the ranks differs in round {} ({} tensors here, {} in the result): "
                    "all ranks must have equal settings of fusion, tuning, schedule and NaN check",
                    round, table.agreed_tensors(), merged.tensors())));
    return;
  }
  tell_not_finite(merged);
  leaver_ = static_cast<std::uint32_t>(merged.number(Word::kLeaving));
  switch (mode_) {
    case Mode::kBreaking: break_result(merged); break;
    case Mode::kSettling:
      settling_result(merged);
      go_online(now);
      break;
    default:
      if (leaver_ == 0) online_result(merged, now);
      break;
  }
  if (leaver_ != 0 && mode_ == Mode::kOnline) return end_by_leaving(UINT64_MAX);
  submissions.told_not_finite();
  proceed(now);
}

// What is agreed on is launched, as on all ranks.
void Negotiator::State::end_by_leaving(std::uint64_t not_whole_from) {
  launch_waiting(true);
  mode_ = Mode::kEnded;
  Action action;
  action.kind = Action::Kind::kLeft;
  action.rank = static_cast<int>(leaver_) - 1;
  action.launch.serial = not_whole_from;
  actions.push(action);
}

void Negotiator::State::tell_not_finite(const Word& merged) {
  const std::uint64_t number = merged.number(Word::kNonFinite);
  if (number == 0) return;
  Action action;
  action.kind = Action::Kind::kNonFinite;
  action.rank = static_cast<int>(number >> 32) - 1;
  action.index = static_cast<std::uint32_t>(number) - 1;
  actions.push(action);
}

void Negotiator::State::push_simple(Action::Kind kind) {
  Action action;
  action.kind = kind;
  actions.push(action);
}

void Negotiator::State::take_submissions(std::span<const std::uint32_t> tensors, std::vector<std::uint8_t>& mine) {
  mine.clear();
  for (std::uint32_t index : tensors) mine.push_back(submissions.launch(index) ? 1 : 0);
}

void Negotiator::State::push_launch(std::span<const std::uint32_t> tensors, std::span<const std::uint8_t> mine,
                                    bool follow_up) {
  const bool scheduled = mode_ == Mode::kScheduled || mode_ == Mode::kCutting;
  Action action;
  action.kind = Action::Kind::kLaunch;
  action.launch.serial = stats.launches++;
  action.launch.epoch = epoch;
  action.launch.scheduled = scheduled;
  action.launch.unit = scheduled ? schedule_.launched() : 0;
  action.launch.ends_pass = scheduled && schedule_.at_last();
  action.launch.piece_bytes = fusion_bytes_;
  action.launch.follow_up = follow_up;
  action.launch.tensors = tensors;
  action.launch.mine = mine;
  actions.push(action);
  room_ = false;
  if (follow_up) ++stats.follow_ups;
}

// The parts of a word that are the same in all modes.
void Negotiator::State::begin_word() {
  word_.reset_to_empty(table.agreed_tensors());
  word_.set_number(Word::kLog, log_);
  word_.set_number(Word::kLogComplement, log_ ^ UINT32_MAX);
  const auto me = static_cast<std::uint32_t>(options_.rank) + 1;
  if (submissions.not_finite() != kNoIndex)
    word_.set_number(Word::kNonFinite, Word::pair(me, submissions.not_finite() + 1));
  if (leaving_) {
    word_.set_number(Word::kLeaving, me);
    told_leave_ = true;
  }
}

void Negotiator::State::begin_round() {
  if (!was_asked()) ++stats.begun;
  ++stats.rounds;
  in_round_ = true;
  Action action;
  action.kind = Action::Kind::kBegin;
  action.round = next_round_;
  action.word = &word_;
  actions.push(action);
}

void Negotiator::State::proceed(Instant now) {
  // What is submitted, or given and not whole, is outstanding.
  if (join_wanted_ && submissions.pending() == 0 && !submissions.any_owed_to_me()) joined_ = true;
  if (mode_ == Mode::kScheduled) proceed_scheduled(now);
  if (mode_ == Mode::kCutting) proceed_cut(now);
  if (mode_ == Mode::kSettling && may_begin()) begin_settling();
  if (mode_ != Mode::kOnline) return;
  launch_waiting(false);
  if (may_begin() && wants_round(now)) begin_online(now);
}

// On the schedule: whether the unit at the head delays anything.
bool Negotiator::State::wants_room() const noexcept {
  if (room_ || !table.has_priorities()) return false;
  return mode_ == Mode::kOnline ? !waiting_.empty() : mode_ == Mode::kScheduled && schedule_.blocked();
}

Instant Negotiator::State::stall_deadline() const noexcept {
  return waits() && last_launch_ != kNever ? after(last_launch_, options_.stall) : kNever;
}

Instant Negotiator::State::deadline() const noexcept {
  switch (mode_) {
    case Mode::kOnline: return may_begin() ? std::min(linger_deadline(), stall_deadline()) : kNever;
    case Mode::kScheduled: return std::min(lateness_.deadline(), stall_deadline());
    case Mode::kCutting: return lateness_.deadline();
    default: return kNever;
  }
}

// --- the face --------------------------------------------------------------------------------------------------------

Negotiator::Negotiator(const NegotiatorOptions& options) : state_(std::make_unique<State>(options)) {}
Negotiator::~Negotiator() = default;
Negotiator::Negotiator(Negotiator&&) noexcept = default;
Negotiator& Negotiator::operator=(Negotiator&&) noexcept = default;

std::uint32_t Negotiator::add(TensorRecord record) {
  state_->actions.reuse();
  return state_->add(std::move(record));
}
void Negotiator::ready(std::uint32_t local, Instant now, bool finite) {
  state_->actions.reuse();
  state_->ready(local, finite, now);
}
void Negotiator::flush(Instant now) {
  state_->actions.reuse();
  state_->flush(now);
}
void Negotiator::urge(Instant now) {
  state_->actions.reuse();
  state_->urge(now);
}
void Negotiator::join(Instant now) {
  state_->actions.reuse();
  state_->join(now);
}
void Negotiator::leave(Instant now) {
  state_->actions.reuse();
  state_->leave(now);
}
void Negotiator::asked(std::uint64_t round, Instant now) {
  state_->actions.reuse();
  state_->asked(round, now);
}
void Negotiator::result(std::uint64_t round, const Word& merged, Instant now) {
  state_->actions.reuse();
  state_->result(round, merged, now);
}
void Negotiator::exchanged(std::span<const std::span<const std::byte>> payloads, Instant now) {
  state_->actions.reuse();
  state_->exchanged(payloads, now);
}
void Negotiator::tuned(std::uint64_t fusion_bytes, std::uint64_t passes, Instant now) {
  state_->actions.reuse();
  state_->tuned(fusion_bytes, passes, now);
}
void Negotiator::room(Instant now) {
  state_->actions.reuse();
  state_->room(now);
}
void Negotiator::tick(Instant now) {
  state_->actions.reuse();
  state_->tick(now);
}
void Negotiator::fail(const Error& error) {
  state_->actions.reuse();
  state_->fail(error);
}

bool Negotiator::next(Action& action) { return state_->actions.next(action); }
Instant Negotiator::deadline() const noexcept { return state_->deadline(); }
bool Negotiator::wants_room() const noexcept { return state_->wants_room(); }
const TensorTable& Negotiator::tensors() const noexcept { return state_->table; }
bool Negotiator::owed(std::uint32_t index) const noexcept { return state_->submissions.owed(index); }
bool Negotiator::held() const noexcept { return state_->held; }
bool Negotiator::scheduled() const noexcept { return state_->scheduled(); }
bool Negotiator::ended() const noexcept { return state_->ended(); }
std::uint64_t Negotiator::epoch() const noexcept { return state_->epoch; }
bool Negotiator::pending(std::uint32_t local) const noexcept {
  const std::uint32_t index = state_->table.index_of(local);
  return index == kNoIndex ? state_->submissions.pending_without_index(local) : state_->submissions.ready(index);
}
std::size_t Negotiator::pending() const noexcept { return state_->submissions.pending(); }
const NegotiatorStats& Negotiator::stats() const noexcept { return state_->stats; }

}  // namespace aiacc::gradient
