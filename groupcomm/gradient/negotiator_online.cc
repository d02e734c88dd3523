// Online negotiation: when a round begins, what its word says, and what follows from its result.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/hash.h"
#include "groupcomm/gradient/negotiator_state.h"

namespace aiacc::gradient {

// How many rounds a step takes: each `round_bytes` of the fastest rank begin one. Of the ranks that flush, only the one that
// the last result named as awaited begins one at once: while that one has not flushed, the step cannot end. It is named by
// MAX, so the expected number of such rounds is the number of records in a random order, ln n. Others that flush, and ranks
// that some rank waits for, begin one after `linger`, all their tensors of that time together.
bool Negotiator::State::wants_round(Instant now) const noexcept {
  if (was_asked()) return true;
  if (leaving_ && !told_leave_) return true;
  if (joined_ && !told_join_) return true;
  const bool fresh = submissions.fresh() != 0;
  if (fresh && submissions.fresh_bytes() >= options_.round_bytes) return true;
  if (submissions.fresh_owed()) return true;
  if (urged_ && submissions.pending() != 0 && (fresh || !told_wait_)) return true;
  const bool awaited = awaited_ == 0 || awaited_ == static_cast<std::uint32_t>(options_.rank) + 1;
  if (flushes_ != 0 && awaited && (fresh || !told_flush_)) return true;
  return now >= linger_deadline() || now >= stall_deadline();
}

Instant Negotiator::State::linger_deadline() const noexcept {
  Instant since = kNever;
  if (submissions.fresh() != 0 && (somebody_waits_ || waits_for_pending() || flushes_ != 0))
    since = submissions.oldest_fresh();
  if (waits_for_pending() && !told_wait_ && !somebody_waits_) since = std::min(since, wait_since_);
  return since == kNever ? kNever : after(since, options_.linger);
}

void Negotiator::State::begin_online(Instant now) {
  begin_word();
  if (joined_) {
    word_.set_all_ready();
  } else {
    for (std::uint32_t index = 0; index < agreed_count(); ++index)
      if (submissions.ready_or_given(index)) word_.set_ready(index);
  }
  const auto me = static_cast<std::uint32_t>(options_.rank) + 1;
  // A step ends when its tensors could have been in a word, or each step would begin with those of the one before.
  if (joined_ || (flushes_ != 0 && !submissions.any_pending_without_index())) {
    word_.set_all(Word::kAllFlushed);
    told_flush_ = true;
  } else {
    word_.set_number(Word::kAwaited, me);
  }
  if (joined_ || (!submitted_since_flush_ && !submissions.any_pending_without_index())) word_.set_all(Word::kAllAtEnd);
  word_.set_number(Word::kPending, submissions.pending());
  flushes_told_ = flushes_;
  if (joined_) {
    word_.set_all(Word::kAllJoined);
    word_.set_any(Word::kJoining);
    if (!told_join_) join_stamp_ = Word::pair(next_round_, me);
    word_.set_number(Word::kJoinedLast, join_stamp_);
    told_join_ = true;
  }
  if (waits_for_pending()) {
    word_.set_any(Word::kWaiting);
    if (urged_) word_.set_any(Word::kUrged);
    told_wait_ = true;
  }
  if (table.has_new()) word_.set_any(Word::kNewNames);
  if (now >= stall_deadline()) word_.set_any(Word::kStalled);
  if (table.has_priorities()) {
    committed_ = stats.launches + waiting_.fit(fusion_bytes_);
    word_.set_number(Word::kCommitted, committed_);
  }
  submissions.contributed();
  begin_round();
}

void Negotiator::State::online_result(const Word& merged, Instant now) {
  const bool all_joined = merged.all(Word::kAllJoined);
  somebody_waits_ = merged.any(Word::kWaiting);
  awaited_ = static_cast<std::uint32_t>(merged.number(Word::kAwaited));

  // If all have joined, all bits are set and nobody has anything, but for what a rank that has joined owes.
  launched_.clear();
  follow_ups_.clear();
  Hash64 log;
  log.add(log_);
  for (std::size_t word = 0; word < merged.bits().size(); ++word) {
    for (std::uint64_t bits = merged.bits()[word]; bits != 0; bits &= bits - 1) {
      const auto index = static_cast<std::uint32_t>(word * 64) + static_cast<std::uint32_t>(std::countr_zero(bits));
      const bool owed = submissions.owed(index);
      if (all_joined && !owed) continue;
      (owed ? follow_ups_ : launched_).push_back(index);
      log.add(index);
    }
  }
  log_ = static_cast<std::uint32_t>(log.value());

  const bool sums =
      std::all_of(launched_.begin(), launched_.end(), [this](std::uint32_t index) { return table.agreed(index).sum; });
  if (merged.any(Word::kJoining) || submissions.any_owed() || !sums) recorder_.disturb();
  // If all have flushed what they submitted, and all of that is launched now, they have submitted the same: they are at one
  // point, and a step ends there however often each has flushed. Without this a rank that flushed once more than others would
  // be a step ahead for ever, and steps would end where only the others have submitted everything.
  const bool all_at_one_point = merged.all(Word::kAllAtEnd) && follow_ups_.empty() && !submissions.any_owed() &&
                                merged.number(Word::kPending) == launched_.size();
  const bool ends = merged.all(Word::kAllFlushed) || (all_at_one_point && (!launched_.empty() || recorder_.in_step()));
  if (!launched_.empty() || !follow_ups_.empty()) last_launch_ = now;
  settled_ = merged.number(Word::kCommitted);
  in_order_.clear();
  before_.clear();
  launch_packed(launched_, false);
  const bool begins = table.has_priorities() ? recorder_.result(in_order_, merged.any(Word::kUrged), ends, before_)
                                             : recorder_.result(launched_, merged.any(Word::kUrged), ends);
  launch_packed(follow_ups_, true);
  const bool exchanges = merged.any(Word::kNewNames) || merged.any(Word::kStalled);
  const bool schedules = !exchanges && begins && !submissions.any_owed();
  // These have a place in the sequence that is the same on all ranks.
  if (exchanges || schedules || all_joined) launch_waiting(true);

  if (ends) end_step(all_at_one_point);
  if (all_joined) {
    Action action;
    action.kind = Action::Kind::kJoined;
    action.rank = static_cast<int>(merged.number(Word::kJoinedLast) & UINT32_MAX) - 1;
    actions.push(action);
    join_wanted_ = joined_ = told_join_ = false;
  }
  if (exchanges) begin_exchange(merged, now);
  if (schedules) begin_schedule();
}

void Negotiator::State::end_step(bool all_at_one_point) {
  ++stats.steps;
  flushes_ -= all_at_one_point ? flushes_told_ : std::min<std::uint64_t>(flushes_, 1);
  told_flush_ = false;
  awaited_ = 0;
}

// `tensors` by priority and then in the order of indices, those of one fusion key together up to fusion_bytes.
void Negotiator::State::launch_packed(std::span<std::uint32_t> tensors, bool follow_ups) {
  if (table.has_priorities()) {
    std::sort(tensors.begin(), tensors.end(), [this](std::uint32_t one, std::uint32_t two) {
      return std::pair(-std::int64_t{table.priority(one)}, one) < std::pair(-std::int64_t{table.priority(two)}, two);
    });
  }
  for (std::uint32_t wanted = 0; wanted < table.fusion_classes() && !tensors.empty(); ++wanted) {
    unit_.clear();
    std::uint64_t bytes = 0;
    for (std::uint32_t index : tensors) {
      if (table.fusion_class(index) != wanted) continue;
      const std::uint64_t size = table.agreed(index).bytes;
      if (!unit_.empty() && bytes + size > fusion_bytes_) {
        launch_online(unit_, bytes, follow_ups);
        unit_.clear();
        bytes = 0;
      }
      unit_.push_back(index);
      bytes += size;
    }
    if (!unit_.empty()) launch_online(unit_, bytes, follow_ups);
  }
}

// With priorities: when the caller has room.
void Negotiator::State::launch_online(std::span<std::uint32_t> unit, std::uint64_t bytes, bool follow_up) {
  if (!table.has_priorities()) {
    take_submissions(unit, mine_);
    return push_launch(unit, mine_, follow_up);
  }
  WaitingLaunches::Waiting& waiting =
      waiting_.add(table.priority(unit.front()), settled_ - std::min(settled_, stats.launches));
  waiting.follow_up = follow_up;
  waiting.bytes = bytes;
  std::sort(unit.begin(), unit.end());  // neighbours in memory
  waiting.tensors.assign(unit.begin(), unit.end());
  take_submissions(unit, waiting.mine);
  if (follow_up) return;
  for (std::uint32_t index : unit) {
    in_order_.push_back(index);
    before_.push_back(waiting_.behind_added());
  }
}

void Negotiator::State::launch_waiting(bool all) {
  while (!waiting_.empty() && (all || (room_ && (!in_round_ || stats.launches < committed_)))) {
    push_launch(waiting_.front().tensors, waiting_.front().mine, waiting_.front().follow_up);
    waiting_.pop();
  }
}

void Negotiator::State::begin_exchange(const Word& merged, Instant now) {
  exchanging_ = true;
  ++stats.exchanges;
  ExchangePayload payload;
  payload.records = table.new_records();
  reports_stall_ = merged.any(Word::kStalled);
  if (reports_stall_) {
    for (std::uint32_t local = 0; local < table.local_tensors(); ++local) {
      const std::uint32_t index = table.index_of(local);
      if (index == kNoIndex ? submissions.pending_without_index(local) : submissions.ready_or_given(index))
        payload.submitted.push_back(table.local(local).name);
    }
    payload.joined = joined_;
    if (waits()) payload.waited_us = static_cast<std::uint64_t>((now - last_launch_) / std::chrono::microseconds(1));
    last_launch_ = now;  // the next report is as far away on all ranks
  }
  actions.exchange(encode_payload(payload));
}

void Negotiator::State::exchanged(std::span<const std::span<const std::byte>> payloads, Instant now) {
  if (mode_ == Mode::kEnded) return;
  AIACC_INVARIANT(exchanging_ && payloads.size() == static_cast<std::size_t>(options_.ranks),
                  "one payload of each rank, after kExchange");
  exchanging_ = false;
  try {
    std::vector<ExchangePayload> of_ranks;
    std::vector<std::vector<TensorRecord>> records;
    for (std::span<const std::byte> payload : payloads) {
      of_ranks.push_back(decode_payload(payload));
      records.push_back(std::move(of_ranks.back().records));
    }
    std::vector<std::uint32_t> mapped;
    table.append(records, mapped);
    submissions.grow();
    for (std::uint32_t local : mapped) submissions.mapped(local);
    if (!mapped.empty()) submissions.all_fresh(now);
    if (reports_stall_) {
      std::string report = stall_report(of_ranks);
      if (!report.empty()) actions.say(Action::Kind::kStall, std::move(report));
    }
  } catch (const Error& error) {
    fail(error);
    return;
  }
  proceed(now);
}

void Negotiator::State::begin_schedule() {
  order_ = recorder_.order(table);
  cut_by_ = fusion_bytes_;
  schedule_.assign(order_.tensors, order_.ends(cut_by_), table.agreed_tensors());
  mode_ = Mode::kScheduled;
  departs_ = breaks_ = false;
  // Ranks ahead may have submitted and even flushed the next step, of which nothing is launched. Whoever has flushed more often than
  // others before, as for a tensor that came late, is not ahead.
  passes_flushed_ = submissions.pending() != 0 && !submitted_since_flush_ ? 1 : 0;
  first_serial_ = stats.launches;
  mark_ready();
  for (std::uint32_t index = 0; index < agreed_count(); ++index)
    if (submissions.ready(index) && !schedule_.contains(index)) departs_ = true;
  for (std::uint32_t local = 0; local < table.local_tensors(); ++local)
    if (submissions.pending_without_index(local)) departs_ = true;
  if (submissions.not_finite() != kNoIndex && submissions.ready(submissions.not_finite())) breaks_ = true;
}

}  // namespace aiacc::gradient
