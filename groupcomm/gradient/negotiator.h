// Negotiator: which gradients are ready on all ranks, and in which order all ranks reduce them.
//
// A pure state machine: inputs are calls, outputs are actions that the caller takes out with next(); no I/O, no threads, no
// clock (`now` is passed in), and no allocation in the steady state. One thread at a time calls it. Its caller (the engine)
// owns the buffers, runs the rounds between the ranks and the allreduces. All ranks of a group run one each, and their launches
// are the same in the same order.
//
// Matching. The n-th submission of a tensor on a rank is reduced with the n-th submissions of the same name on all other
// ranks, whatever the order on each rank, in either mode and across changes of mode. Each is reduced exactly once.
//
// Rounds. Round 1, 2, 3 ... merges one Word of each rank (word.h). This rank contributes to a round once, by kBegin, and only
// after the result of the round before it. Rounds begin for a reason: `round_bytes` of newly ready tensors, a flush or a wait
// that something not yet contributed may end, the end of a step. A rank without a reason answers when it is asked.
//
// Online. A tensor whose bit is set on all ranks is launched: result by result, then in the order of indices, neighbours of
// one fusion key together up to fusion_bytes.
//
// Priorities. If tensors differ in theirs, launches that are agreed on wait here until the caller has room for one, the highest
// priority at the front (waiting_launches.h). A recorded schedule has the order in which they were launched: in it nothing waits
// here, and nothing overtakes.
//
// Scheduled (schedule.h). After `schedule_steps` steps with the same launches all ranks go on without rounds: the recorded
// units are launched in recorded order, each as soon as its tensors are ready on this rank, again and again. A step that
// departs on any rank ends this:
//
//   1. Break. The rank that departs begins a round with kBreak and the number of its launches; the others are asked, stop
//      launching and answer with theirs. What departs: a tensor outside of the schedule is submitted; a flush or a wait while a
//      unit is incomplete; a head-of-line unit that is late while a later one is complete; a gradient that is not finite; join;
//      leave.
//   2. Cut = the MAX of the launches. What one rank has launched, all launch: each rank launches its units up to the cut, in
//      order, each when its tensors are ready here. It waits for late ones, because a tensor that comes in another order still
//      comes. Only where waiting could be for ever (its caller does nothing but wait, perhaps for something behind the unit; or
//      something is behind the unit for longer than `head_of_line`) it launches the unit with zeros in place of the tensors
//      that are not ready.
//   3. Settle. If some rank was behind the cut, one more round says which tensors were given zeros by anybody. Until then
//      (kHold to kRelease) no rank knows whether a completed launch is whole, so the engine tells its caller of none.
//   4. Online negotiation goes on. A tensor that was given zeros is owed: its reduction is not complete on any rank. It counts
//      as ready on the ranks that have contributed it, and becomes ready on the others when they submit it, in this step or a
//      later one, as if it had not been launched. Then a follow-up launch adds what was missing: ranks that contributed before
//      give zeros, the others their gradient, and all add the sum to the first launch's result. So each gradient is in the
//      result exactly once, and the result equals that of online negotiation but for the order of additions. The schedule
//      holds only sums and averages for this reason.
//   5. The epoch is one more. The schedule is used again after K, 2K, 4K ... at most 1,000 equal steps, and after K again once
//      a schedule has held ten times as long as it took to arm. A break for a gradient that is not finite changes nothing in
//      this.
//
// Leave. A rank that leaves tells it in its next word, of whatever kind, and all ranks end with that round (kLeft): launches that all
// have are whole. If it is a break, all ranks come to its cut at once, with zeros for what is missing, because launches end only if
// all take part; what not all ranks had launched before is not whole on any.
//
// Tuning (NegotiatorOptions::tunes). The recorded units may be cut anew between two passes of the schedule. With the first
// launch of a pass, and so on every rank or on none, comes kPass. Where its `votes` is true all ranks agree on something outside
// of rounds and call tuned() with the same; no rank begins another pass before it has. Votes are counted over epochs: a break
// changes nothing in who takes part in which. The fusion size of a pass, and of what is launched online after it, is thus the same on all.
//
// Join. A rank out of data counts as ready for everything and contributes zeros, until all ranks have joined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "groupcomm/gradient/tensor_table.h"
#include "groupcomm/gradient/word.h"

namespace aiacc::gradient {

// Equal on all ranks, but for `rank`.
struct NegotiatorOptions {
  int rank = 0;
  int ranks = 1;
  std::uint64_t round_bytes = 4 << 20;   // newly ready bytes that make this rank begin a round
  std::uint64_t fusion_bytes = 4 << 20;  // most bytes of a launch of several tensors
  int schedule_steps = 5;                // equal steps before the recorded schedule; -1: never
  bool nan_check = false;                // the engine's; here only compared
  bool tunes = false;                    // kPass is wanted, and answered by tuned()
  // While some rank waits: how long a ready tensor may stay without a round.
  Duration linger = std::chrono::milliseconds(1);
  // The least time that a head-of-line unit may be late; ten times the median lateness if that is more.
  Duration head_of_line = std::chrono::milliseconds(50);
  // After so long a wait all ranks report who lacks what; Duration::max(): never.
  Duration stall = std::chrono::seconds(60);
};

// One fused reduction: the same tensors, serial and kind on all ranks.
struct Launch {
  std::uint64_t serial = 0;  // 0, 1, 2 ... over the negotiator's life
  std::uint64_t epoch = 0;   // number of breaks so far
  bool scheduled = false;    // by the recorded schedule, as unit number `unit` of the epoch
  std::uint64_t unit = 0;
  bool ends_pass = false;         // of the recorded schedule
  std::uint64_t piece_bytes = 0;  // the fusion size: larger tensors are cut by it
  // Not a reduction by itself, see step 4 above: its result is added to the one of the tensor's first launch.
  bool follow_up = false;
  std::span<const std::uint32_t> tensors;  // agreed indices, all of one fusion key
  // For each tensor: 1, this rank's submission takes part. 0, this rank contributes zeros. The tensor's slot is not the source
  // of these, and not the target of the result unless follow_up: the caller may be writing a gradient to it. Other memory is,
  // and if the tensor is owed the engine keeps the result there until the follow-up. A rank that is in the first launch of an
  // owed tensor has 0 in the follow-up and adds the follow-up's result to its slot; a rank that is not in the first one adds
  // both results in the slot.
  std::span<const std::uint8_t> mine;
};

struct Action {
  enum class Kind : std::uint8_t {
    kBegin,     // contribute `word` to round `round`
    kLaunch,    // start `launch`, in this order on all ranks
    kExchange,  // give `payload` to all ranks and call exchanged() with those of all ranks
    kHold,      // what completes from now on is provisional: tell nobody. Comes before the kBegin that it is for
    // Launches before `launch.serial` are whole: tell of what was held and of what completes later. UINT64_MAX ends the hold;
    // `launch.tensors` are then owed, complete only when launch and follow-up are; `launch.mine` is 1 for those that this rank
    // has yet to submit.
    kRelease,
    kNonFinite,  // a gradient of `rank` (tensor `index`) is not finite: before the tensor completes on any rank
    kStall,      // `text`: who lacks what
    kPass,       // the next kLaunch begins a pass of the schedule. `votes`: tuned() is wanted
    kJoined,     // all ranks have joined, `rank` last; nobody counts as joined any more
    // `rank` has left; no rank negotiates any more. What is not launched, or owed, never is whole; nor are scheduled launches from
    // `launch.serial` on, which all ranks have begun only to end those of the ranks that had. After kHold it ends the hold.
    kLeft,
    kFailed,  // `error`; this rank negotiates no more
  };
  Kind kind = Kind::kBegin;
  bool votes = false;
  std::uint64_t round = 0;
  const Word* word = nullptr;  // until the next input
  Launch launch;               // its lists too
  std::span<const std::byte> payload;
  int rank = -1;
  std::uint32_t index = kNoIndex;
  const std::string* text = nullptr;
  const Error* error = nullptr;
};

struct NegotiatorStats {
  std::uint64_t rounds = 0;      // contributed to
  std::uint64_t begun = 0;       // of these: begun by this rank without being asked
  std::uint64_t exchanges = 0;   // of names and of stall reports
  std::uint64_t launches = 0;    // all kinds
  std::uint64_t follow_ups = 0;  // of these
  std::uint64_t steps = 0;       // that ended on all ranks
  std::uint64_t breaks = 0;      // of the recorded schedule: the epoch
  std::uint64_t zeros = 0;       // tensors for which this rank contributed zeros at a cut
};

class Negotiator {
 public:
  explicit Negotiator(const NegotiatorOptions& options);
  ~Negotiator();
  Negotiator(Negotiator&&) noexcept;
  Negotiator& operator=(Negotiator&&) noexcept;

  // --- inputs. After each: take all actions out by next(), then look at deadline().

  // A tensor of this rank; any time; returns its local id (tensor_table.h). Throws kMismatch and is unchanged then.
  std::uint32_t add(TensorRecord record);
  // This rank's gradient is ready: submitted. Not again before it is complete (the engine refuses that). `finite` false: all
  // ranks hear kNonFinite before the tensor completes.
  void ready(std::uint32_t local, Instant now, bool finite = true);
  // The caller's step has ended. Counts for a step if something was submitted since the last flush.
  void flush(Instant now);
  // The caller waits for something that it has submitted, in the middle of a step, launched or not. Until the next ready():
  // call it again after that if a caller still waits.
  void urge(Instant now);
  // This rank is out of data. Takes effect when nothing of it is outstanding; ends with kJoined. No submission until then.
  void join(Instant now);
  // This rank ends its engine; the others hear kLeft. Needed only if others could still wait for this rank.
  void leave(Instant now);
  // Another rank has begun `round`.
  void asked(std::uint64_t round, Instant now);
  // `round`, to which this rank has contributed, is complete; `merged` is the same on all ranks.
  void result(std::uint64_t round, const Word& merged, Instant now);
  // The payloads of kExchange, in the order of ranks.
  void exchanged(std::span<const std::span<const std::byte>> payloads, Instant now);
  // What all ranks have agreed on after a kPass that voted, the same on all: the fusion size from the next pass on, and after
  // how many passes they vote again, at least 1.
  void tuned(std::uint64_t fusion_bytes, std::uint64_t passes, Instant now);
  // If wants_room(): what was launched has begun, and another launch would begin at once.
  void room(Instant now);
  // Nothing but time has passed.
  void tick(Instant now);
  // The rounds have failed (a rank was lost): no action follows but kFailed.
  void fail(const Error& error);

  // --- outputs

  // The next action, false if there is none. What it points to is valid until the next input.
  bool next(Action& action);
  // tick() is wanted at this time; kNever if none.
  Instant deadline() const noexcept;
  // room() is wanted as soon as it is true. Not without priorities.
  bool wants_room() const noexcept;

  // --- state

  const TensorTable& tensors() const noexcept;
  bool owed(std::uint32_t index) const noexcept;  // agreed index, see step 3
  bool held() const noexcept;                     // between kHold and kRelease
  bool scheduled() const noexcept;
  bool ended() const noexcept;  // left or failed
  std::uint64_t epoch() const noexcept;
  // Whether this rank has submitted a tensor that is not launched.
  bool pending(std::uint32_t local) const noexcept;
  // Tensors that this rank has submitted and that are not launched.
  std::size_t pending() const noexcept;
  const NegotiatorStats& stats() const noexcept;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace aiacc::gradient
