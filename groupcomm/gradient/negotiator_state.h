// The state of a Negotiator, see negotiator.h.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "groupcomm/gradient/action_queue.h"
#include "groupcomm/gradient/exchange.h"
#include "groupcomm/gradient/negotiator.h"
#include "groupcomm/gradient/schedule.h"
#include "groupcomm/gradient/submissions.h"
#include "groupcomm/gradient/waiting_launches.h"

namespace aiacc::gradient {

class Negotiator::State {
 public:
  explicit State(const NegotiatorOptions& options);

  std::uint32_t add(TensorRecord record);
  void ready(std::uint32_t local, bool finite, Instant now);
  void flush(Instant now);
  void urge(Instant now);
  void join(Instant now);
  void leave(Instant now);
  void asked(std::uint64_t round, Instant now);
  void result(std::uint64_t round, const Word& merged, Instant now);
  void exchanged(std::span<const std::span<const std::byte>> payloads, Instant now);
  void tuned(std::uint64_t fusion_bytes, std::uint64_t passes, Instant now);
  void room(Instant now);
  void tick(Instant now);
  void fail(const Error& error);
  Instant deadline() const noexcept;
  bool wants_room() const noexcept;

  ActionQueue actions;
  TensorTable table;
  Submissions submissions;
  NegotiatorStats stats;
  std::uint64_t epoch = 0;
  bool held = false;

  bool scheduled() const noexcept { return mode_ == Mode::kScheduled; }
  bool ended() const noexcept { return mode_ == Mode::kEnded; }

 private:
  // kOnline -> kScheduled when equal steps were recorded; kScheduled -> kBreaking -> kCutting (-> kSettling) -> kOnline.
  enum class Mode : std::uint8_t {
    kOnline,
    kScheduled,
    kBreaking,  // contributed to the round of the break
    kCutting,   // launching up to the cut
    kSettling,  // contributing to the round that says who gave zeros
    kEnded,
  };

  // Goes on as far as it can without another input.
  void proceed(Instant now);
  void wait_begins(Instant now);
  void begin_round();
  void begin_word();
  void push_simple(Action::Kind kind);
  void push_release(std::uint64_t serial, std::span<const std::uint32_t> owed);
  void end_by_leaving(std::uint64_t not_whole_from);
  void take_submissions(std::span<const std::uint32_t> tensors, std::vector<std::uint8_t>& mine);
  void push_launch(std::span<const std::uint32_t> tensors, std::span<const std::uint8_t> mine, bool follow_up);
  void tell_not_finite(const Word& merged);
  bool may_begin() const noexcept { return !in_round_ && !exchanging_; }
  bool was_asked() const noexcept { return asked_ >= next_round_; }
  std::uint32_t agreed_count() const noexcept { return static_cast<std::uint32_t>(table.agreed_tensors()); }
  Instant stall_deadline() const noexcept;
  bool waits_for_pending() const noexcept { return (flushed_ || urged_) && submissions.pending() != 0; }
  bool waits() const noexcept { return submissions.pending() != 0 || submissions.any_owed(); }

  // Online (negotiator_online.cc).
  bool wants_round(Instant now) const noexcept;
  Instant linger_deadline() const noexcept;
  void begin_online(Instant now);
  void online_result(const Word& merged, Instant now);
  void end_step(bool all_at_one_point);
  void launch_packed(std::span<std::uint32_t> tensors, bool follow_ups);
  void launch_online(std::span<std::uint32_t> unit, std::uint64_t bytes, bool follow_up);
  void launch_waiting(bool all);
  void begin_exchange(const Word& merged, Instant now);
  void begin_schedule();

  // Scheduled, and out of it (negotiator_scheduled.cc).
  bool may_begin_pass();
  void begin_pass();
  void mark_ready();
  void launch_head(Instant now);
  void proceed_scheduled(Instant now);
  void begin_break();
  void break_result(const Word& merged);
  void proceed_cut(Instant now);
  bool may_give_zeros(Instant now) const noexcept;
  void begin_settling();
  void settling_result(const Word& merged);
  void go_online(Instant now);

  const NegotiatorOptions options_;
  Mode mode_ = Mode::kOnline;
  ScheduleRecorder recorder_;
  Schedule schedule_;
  Lateness lateness_;
  std::uint32_t log_ = 0;  // hash of what all ranks agreed on

  // Rounds.
  Word word_;
  std::uint64_t next_round_ = 1, asked_ = 0;
  bool in_round_ = false, exchanging_ = false, reports_stall_ = false;

  // The caller of this rank.
  bool submitted_since_flush_ = false;
  std::uint64_t flushes_ = 0;         // online: of steps that have not ended on all ranks
  std::uint64_t flushes_told_ = 0;    // of these, when this rank contributed to the round
  std::uint64_t passes_flushed_ = 0;  // scheduled: passes of the epoch that the caller has flushed
  // It has flushed, it waits in the middle of a step: and has submitted nothing since.
  bool flushed_ = false, urged_ = false;
  Instant wait_since_ = kNever;
  bool join_wanted_ = false, joined_ = false, leaving_ = false;
  std::uint32_t leaver_ = 0;  // rank + 1 of one that leaves; 0: none
  std::uint64_t join_stamp_ = 0;
  Instant last_launch_ = kNever;  // or the first submission after nothing was pending

  // What the last word said, or the last result.
  bool told_flush_ = false, told_wait_ = false, told_join_ = false, told_leave_ = false;
  std::uint32_t awaited_ = 0;    // rank + 1 of one that has not flushed; 0: not known
  bool somebody_waits_ = false;  // on any rank

  // The schedule and its break.
  std::uint64_t first_serial_ = 0;         // of the epoch's scheduled launches
  bool departs_ = false, breaks_ = false;  // for another reason than a gradient that is not finite; for any reason
  bool somebody_departed_ = false;         // for the former, in the break
  std::uint64_t cut_ = 0, least_ = 0;      // launches of the rank with most, and with least
  // Tensors for which this rank gave zeros, and for which any rank did.
  std::vector<std::uint32_t> absent_, owed_;

  // Tuning. The fusion size of what was launched last, the one that was agreed on since, and that of the schedule's units.
  ScheduleOrder order_;
  std::uint64_t fusion_bytes_, wanted_fusion_bytes_, cut_by_ = 0;
  // If there are priorities. The caller has room for a launch; what this rank may launch before the result of the round, and what
  // any rank may.
  WaitingLaunches waiting_;
  bool room_ = false;
  std::uint64_t committed_ = 0, settled_ = 0;
  bool voting_ = false;  // tuned() has not come since the last vote
  std::uint64_t passes_to_vote_ = 1;

  // Storage of one input's work.
  std::vector<std::uint32_t> launched_, follow_ups_, unit_, in_order_, before_;
  std::vector<std::uint8_t> mine_;
};

}  // namespace aiacc::gradient
