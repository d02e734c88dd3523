// A world of negotiators in virtual time: ranks that run programs (compute, submit, flush, wait, join) with rounds, exchanges
// and reductions between them, which take random times. What it checks in every run:
//
//   - all ranks launch the same in the same order;
//   - they launch by priority (launch_order_test.h);
//   - each gradient is reduced exactly once with the contributions of all ranks, follow-up launches included, and none is told
//     as complete before;
//   - every rank hears of a gradient that is not finite before that gradient completes;
//   - all ranks vote between the same passes, and cut what follows alike;
//   - every program ends, and every gradient completes within `bound` after the last of its ranks begins to wait for it;
//     without schedules, after all have submitted it and one waits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/sim/random.h"
#include "groupcomm/gradient/launch_order_test.h"
#include "groupcomm/gradient/negotiator.h"

namespace aiacc::gradient::test {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct Step {
  enum class Kind { kCompute, kAdd, kSubmit, kSubmitBad, kFlush, kFlushAndWait, kWait, kJoin, kLeave };
  Kind kind;
  std::size_t tensor = 0;
  Duration time{};
};
using Program = std::vector<Step>;

struct Delays {
  Duration least = microseconds(20), most = microseconds(200);
};

class World {
 public:
  World(std::vector<TensorRecord> tensors, std::vector<Program> programs, const NegotiatorOptions& options,
        std::uint64_t seed, Delays delays = {})
      : records_(std::move(tensors)),
        random_(seed),
        seed_(seed),
        delays_(delays),
        online_(options.schedule_steps < 0),
        order_(options.fusion_bytes) {
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      NegotiatorOptions mine = options;
      mine.rank = static_cast<int>(rank);
      mine.ranks = static_cast<int>(programs.size());
      ranks_.push_back(std::make_unique<Rank>(mine, std::move(programs[rank]), records_.size()));
    }
    instances_.resize(records_.size());
  }

  Duration bound = milliseconds(100);
  std::size_t in_flight = 2;     // at a time on each rank, where there are priorities
  bool stops_at_stall = true;    // a stall report is a hang
  bool votes_come_first = true;  // gradients that are launched after a vote complete after its answer, as in the engine
  std::vector<std::string> told;    // gradients that are not finite, and ranks that leave
  std::vector<std::string> faults;  // empty: all that is checked held

  // The rank stops at this time; the others hear of it a little later.
  void kill(std::size_t rank, Duration at) { push(at, rank, Event::kKill); }

  void run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) push(Duration{}, rank, Event::kProgram);
    std::uint64_t events = 0;
    while (!queue_.empty() && faults.empty()) {
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.at;
      handle(event);
      if (++events > 5'000'000) fault("it does not end");
      if (!stalls_.empty() && stops_at_stall) break;
    }
    if (faults.empty()) check_end();
  }

  const Negotiator& rank(std::size_t rank) const { return ranks_[rank]->negotiator; }
  NegotiatorStats stats(std::size_t rank) const { return ranks_[rank]->negotiator.stats(); }
  std::size_t failed_ranks() const { return failed_; }
  std::uint64_t zeros() const {
    std::uint64_t sum = 0;
    for (const auto& rank : ranks_) sum += rank->negotiator.stats().zeros;
    return sum;
  }
  std::uint64_t scheduled_launches() const {
    return static_cast<std::uint64_t>(
        std::count_if(log_.begin(), log_.end(), [](const Entry& e) { return e.scheduled; }));
  }
  // (virtual time, rounds that rank 0 has contributed to) when rank 0 began each wait.
  const std::vector<std::pair<Duration, std::uint64_t>>& rounds_at_waits() const { return rounds_at_waits_; }
  const std::vector<std::string>& stalls() const { return stalls_; }
  const std::string& failure() const { return failure_; }
  std::uint64_t votes() const { return votes_.size(); }  // in which all ranks or some took part
  Duration time() const { return now_; }
  // How often a launch went before one that was agreed on earlier.
  std::uint64_t overtaken() const { return order_.overtaken(); }
  // When the rank's last gradient so far was complete.
  Duration completed_at(std::size_t rank) const { return ranks_[rank]->completed_at; }
  int last_joined() const { return last_joined_; }
  // Names of each launch in order, "+" before a follow-up.
  std::string log_text() const {
    std::string text;
    for (const Entry& entry : log_) {
      text += entry.follow_up ? "+[" : entry.scheduled ? "s[" : "[";
      for (std::uint32_t index : entry.tensors) text += ranks_[0]->negotiator.tensors().agreed(index).name;
      text += "]";
    }
    return text;
  }

 private:
  struct Event {
    enum Kind { kProgram, kAsked, kResult, kExchanged, kTick, kReduced, kTuned, kKill, kFail };
    Duration at;
    std::uint64_t order;
    std::size_t rank;
    Kind kind;
    std::uint64_t number;
    bool operator>(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  struct Submitted {
    bool outstanding = false;
    bool awaits = false;  // its follow-up
    int reductions = 0;   // complete, of its launch and its follow-up
    int generation = 0;   // of submissions
    int launched = 0;     // generations
    bool bad = false;
    // For each generation: when it was submitted, and when the caller began to wait for it.
    std::vector<Duration> at, waited;
    std::uint64_t heard_before = 0;  // kNonFinite actions when it was submitted
  };

  struct Rank {
    Rank(const NegotiatorOptions& options, Program steps, std::size_t tensors)
        : negotiator(options), program(std::move(steps)), submitted(tensors), local(tensors, kNoIndex) {}
    Negotiator negotiator;
    Program program;
    std::size_t at = 0;
    bool computed = false;  // of a kCompute step: the time has passed
    bool waiting = false, joining = false, joined = false, dead = false, failed = false, began_wait = false;
    std::vector<Submitted> submitted;
    std::vector<std::uint32_t> local;
    std::size_t outstanding = 0;
    std::uint64_t next_serial = 0, held_from = UINT64_MAX, heard = 0, ticks = 0;
    std::vector<std::uint64_t> held;
    std::uint64_t votes = 0, tuned = 0, vote_before = 0;  // begun, answered, and the launch after the last one
    std::size_t in_flight = 0;
    Duration tick_at = Duration::max(), completed_at{};
  };

  struct Entry {
    std::vector<std::uint32_t> tensors;
    bool follow_up, scheduled;
    std::uint64_t epoch, unit, piece_bytes;
    bool ends_pass;
    std::vector<std::size_t> instances;
    std::size_t started = 0;
  };

  struct Instance {
    std::vector<int> generation;  // of each rank; 0: not contributed
    std::vector<bool> zeros, joined;
    bool bad = false;
  };

  Instant instant() const { return Instant(now_ + milliseconds(1)); }
  Duration delay() {
    const auto span = static_cast<std::uint64_t>((delays_.most - delays_.least).count());
    return delays_.least + Duration(static_cast<std::int64_t>(random_.below(span + 1)));
  }
  void push(Duration at, std::size_t rank, typename Event::Kind kind, std::uint64_t number = 0) {
    queue_.push({at, (random_.next() << 24 >> 1) + (pushed_++ & 0xffffff), rank, kind, number});
  }
  void fault(std::string text) { faults.push_back(std::move(text)); }
  std::string name(std::uint32_t index) const { return ranks_[0]->negotiator.tensors().agreed(index).name; }
  std::size_t id_of(const std::string& name) const {
    for (std::size_t id = 0; id < records_.size(); ++id)
      if (records_[id].name == name) return id;
    return records_.size();
  }

  void handle(const Event& event) {
    Rank& rank = *ranks_[event.rank];
    if (rank.dead || (rank.failed && event.kind != Event::kKill)) return;
    switch (event.kind) {
      case Event::kProgram: rank.computed = true; break;
      case Event::kAsked: rank.negotiator.asked(event.number, instant()); break;
      case Event::kResult: rank.negotiator.result(event.number, rounds_[event.number - 1].merged, instant()); break;
      case Event::kExchanged: {
        std::vector<std::span<const std::byte>> payloads;
        for (const auto& payload : exchanges_[event.number]) payloads.emplace_back(payload);
        rank.negotiator.exchanged(payloads, instant());
        break;
      }
      case Event::kTick:
        if (event.number != rank.ticks) return;
        rank.tick_at = Duration::max();
        rank.negotiator.tick(instant());
        break;
      case Event::kReduced:
        --rank.in_flight;
        if (votes_come_first && rank.tuned != rank.votes && event.number >= rank.vote_before)
          return ++rank.in_flight, push(now_ + microseconds(5), event.rank, Event::kReduced, event.number);
        reduced(event.rank, event.number);
        break;
      case Event::kTuned:
        ++rank.tuned;
        rank.negotiator.tuned(1 + Hash64::mix(seed_ + event.number) % 300, 1 + Hash64::mix(event.number) % 3,
                              instant());
        break;
      case Event::kKill:
        rank.dead = true;
        for (std::size_t other = 0; other < ranks_.size(); ++other)
          if (other != event.rank) push(now_ + milliseconds(3) + delay(), other, Event::kFail);
        return;
      case Event::kFail: rank.negotiator.fail(Error(Code::kPeerFailed, "a rank was lost")); break;
    }
    settle(event.rank);
    set_timer(event.rank);
  }

  // Actions and program steps until neither goes on.
  void settle(std::size_t rank) {
    do {
      drain(rank);
      Rank& here = *ranks_[rank];
      while (here.negotiator.wants_room() && here.in_flight < in_flight) {
        here.negotiator.room(instant());
        drain(rank);
      }
    } while (faults.empty() && step(rank));
  }

  void set_timer(std::size_t number) {
    Rank& rank = *ranks_[number];
    const Instant deadline = rank.negotiator.deadline();
    const Duration at =
        deadline == kNever ? Duration::max() : std::max(now_, deadline.time_since_epoch() - milliseconds(1));
    if (at == rank.tick_at) return;
    rank.tick_at = at;
    ++rank.ticks;
    if (at != Duration::max()) push(at, number, Event::kTick, rank.ticks);
  }

  void drain(std::size_t number) {
    Rank& rank = *ranks_[number];
    Action action;
    while (rank.negotiator.next(action)) {
      switch (action.kind) {
        case Action::Kind::kBegin: begin(number, action.round, *action.word); break;
        case Action::Kind::kLaunch: launch(number, action.launch); break;
        case Action::Kind::kExchange: exchange(number, action.payload); break;
        case Action::Kind::kHold: rank.held_from = 0; break;
        case Action::Kind::kRelease: release(number, action.launch); break;
        case Action::Kind::kNonFinite:
          ++rank.heard;
          told.push_back("rank " + std::to_string(number) + ": " + name(action.index) + " of rank " +
                         std::to_string(action.rank) + " is not finite");
          break;
        case Action::Kind::kPass:
          if (action.votes) vote(number);
          break;
        case Action::Kind::kStall: stalls_.push_back(*action.text); break;
        case Action::Kind::kJoined:
          rank.joined = rank.joining = false;
          last_joined_ = action.rank;
          break;
        case Action::Kind::kLeft:
          rank.failed = true;
          told.push_back("rank " + std::to_string(number) + ": rank " + std::to_string(action.rank) + " left");
          break;
        case Action::Kind::kFailed:
          rank.failed = true;
          ++failed_;
          failure_ = action.error->message();
          break;
      }
    }
  }

  // --- rounds

  struct Vote {
    std::uint64_t before = 0;  // this launch
    std::size_t contributed = 0;
  };
  struct Round {
    Word merged;
    std::size_t contributed = 0;
    std::vector<bool> by;
  };

  void begin(std::size_t number, std::uint64_t round, const Word& word) {
    if (round > rounds_.size() + 1) return fault("a round is left out");
    if (round > rounds_.size()) {
      rounds_.emplace_back();
      rounds_.back().merged.reset_to_neutral(word.tensors());
      rounds_.back().by.resize(ranks_.size());
    }
    Round& this_round = rounds_[round - 1];
    if (this_round.by[number]) return fault("a rank contributes twice to a round");
    this_round.by[number] = true;
    order_.contributed(round, ranks_[number]->next_serial, word.number(Word::kCommitted));
    buffer_.resize(word.most_encoded());
    received_.decode(std::span(buffer_).first(word.encode(buffer_)));
    this_round.merged.merge(received_);
    for (std::size_t other = 0; other < ranks_.size(); ++other)
      if (!this_round.by[other]) push(now_ + delay(), other, Event::kAsked, round);
    if (++this_round.contributed != ranks_.size()) return;
    for (std::size_t other = 0; other < ranks_.size(); ++other) push(now_ + delay(), other, Event::kResult, round);
    order_.agreed(round, this_round.merged);
  }

  void exchange(std::size_t number, std::span<const std::byte> payload) {
    const std::size_t which = exchanged_[number]++;
    if (which >= exchanges_.size()) exchanges_.emplace_back(ranks_.size());
    exchanges_[which][number].assign(payload.begin(), payload.end());
    if (++exchange_counts_[which] == ranks_.size())
      for (std::size_t other = 0; other < ranks_.size(); ++other) push(now_ + delay(), other, Event::kExchanged, which);
  }

  // --- votes, as an allreduce that is launched before the pass

  void vote(std::size_t number) {
    Rank& rank = *ranks_[number];
    if (rank.tuned != rank.votes) return fault("a rank votes twice");
    const std::uint64_t which = rank.votes++;
    rank.vote_before = rank.next_serial;
    if (which == votes_.size()) votes_.push_back({rank.next_serial, 0});
    if (votes_[which].before != rank.next_serial) return fault("ranks vote before different launches");
    if (++votes_[which].contributed == ranks_.size())
      for (std::size_t other = 0; other < ranks_.size(); ++other) push(now_ + delay(), other, Event::kTuned, which);
  }

  // --- reductions

  void launch(std::size_t number, const Launch& launch) {
    Rank& rank = *ranks_[number];
    if (launch.serial != rank.next_serial++) return fault("a launch is left out");
    if (launch.serial == log_.size()) {
      Entry& entry = log_.emplace_back(Entry{{launch.tensors.begin(), launch.tensors.end()},
                                             launch.follow_up,
                                             launch.scheduled,
                                             launch.epoch,
                                             launch.unit,
                                             launch.piece_bytes,
                                             launch.ends_pass,
                                             {}});
      for (std::uint32_t index : launch.tensors) {
        std::deque<Instance>& all = instances_[id_of(rank.negotiator.tensors().agreed(index).name)];
        if (!launch.follow_up)
          all.push_back(
              {std::vector<int>(ranks_.size()), std::vector<bool>(ranks_.size()), std::vector<bool>(ranks_.size())});
        if (all.empty()) return fault("a follow-up comes first");
        entry.instances.push_back(all.size() - 1);
      }
      const char* const wrong = order_.launched(rank.negotiator.tensors(), launch.tensors, launch.scheduled);
      if (wrong != nullptr) return fault(wrong + (": " + log_text()));
    }
    ++rank.in_flight;
    Entry& entry = log_[launch.serial];
    if (!std::equal(entry.tensors.begin(), entry.tensors.end(), launch.tensors.begin(), launch.tensors.end()) ||
        entry.follow_up != launch.follow_up || entry.scheduled != launch.scheduled || entry.epoch != launch.epoch ||
        entry.unit != launch.unit || entry.piece_bytes != launch.piece_bytes || entry.ends_pass != launch.ends_pass)
      return fault("ranks launch different things, at serial " + std::to_string(launch.serial) + ": " + log_text());
    for (std::size_t at = 0; at < launch.tensors.size(); ++at) {
      const std::size_t id = id_of(rank.negotiator.tensors().agreed(launch.tensors[at]).name);
      Instance& instance = instances_[id][entry.instances[at]];
      Submitted& submitted = rank.submitted[id];
      if (launch.mine[at] != 0) {
        if (!submitted.outstanding || submitted.launched == submitted.generation) return fault("nothing is submitted");
        if (instance.generation[number] != 0) return fault("a gradient is counted twice");
        instance.generation[number] = submitted.launched = submitted.generation;
        if (submitted.bad) instance.bad = true;
      } else if (rank.joined || rank.joining) {
        if (instance.generation[number] == 0) instance.joined[number] = true;
      } else if (!launch.follow_up) {
        instance.zeros[number] = true;
      }
    }
    if (++entry.started == ranks_.size())
      for (std::size_t other = 0; other < ranks_.size(); ++other)
        push(now_ + delay(), other, Event::kReduced, launch.serial);
  }

  void release(std::size_t number, const Launch& release) {
    Rank& rank = *ranks_[number];
    rank.held_from = release.serial;
    for (std::uint32_t index : release.tensors) rank.submitted[id_of(name(index))].awaits = true;
    std::vector<std::uint64_t> held;
    held.swap(rank.held);
    for (std::uint64_t serial : held) reduced(number, serial);
  }

  void reduced(std::size_t number, std::uint64_t serial) {
    Rank& rank = *ranks_[number];
    if (serial >= rank.held_from) return rank.held.push_back(serial);
    const Entry& entry = log_[serial];
    for (std::size_t at = 0; at < entry.tensors.size(); ++at) {
      const std::size_t id = id_of(name(entry.tensors[at]));
      Submitted& submitted = rank.submitted[id];
      ++submitted.reductions;
      if (submitted.awaits && submitted.reductions < 2) continue;
      submitted.awaits = false;
      submitted.reductions = 0;
      if (submitted.outstanding && submitted.launched == submitted.generation)
        complete(rank, id, instances_[id][entry.instances[at]]);
    }
  }

  void complete(Rank& rank, std::size_t tensor, const Instance& instance) {
    Submitted& submitted = rank.submitted[tensor];
    for (std::size_t other = 0; other < ranks_.size(); ++other)
      if (instance.generation[other] == 0 && !instance.joined[other])
        return fault("a gradient completes without rank " + std::to_string(other) + ": " + log_text());
    if (instance.bad && rank.heard == submitted.heard_before) return fault("nobody said that a gradient is not finite");
    // When the last rank began to wait for it. Without schedules: when the last one had submitted it and the first one waited.
    Duration last_wait{}, first_wait = Duration::max(), last_submit{};
    for (std::size_t other = 0; other < ranks_.size(); ++other) {
      if (instance.generation[other] == 0) continue;
      const auto generation = static_cast<std::size_t>(instance.generation[other]) - 1;
      const Submitted& theirs = ranks_[other]->submitted[tensor];
      last_wait = std::max(last_wait, theirs.waited[generation]);
      first_wait = std::min(first_wait, theirs.waited[generation]);
      last_submit = std::max(last_submit, theirs.at[generation]);
    }
    const Duration due = online_ ? std::max(last_submit, first_wait) : last_wait;
    if (due < now_ - std::min(now_, bound))
      return fault("a gradient takes " + std::to_string((now_ - due).count() / 1000) + " us: " + log_text());
    submitted.outstanding = false;
    rank.completed_at = now_;
    --rank.outstanding;
  }

  // --- programs

  // True if the program went on: there may be actions.
  bool step(std::size_t number) {
    Rank& rank = *ranks_[number];
    if (rank.failed || rank.at == rank.program.size()) return false;
    const Step& step = rank.program[rank.at];
    Submitted& submitted = rank.submitted[step.tensor];
    switch (step.kind) {
      case Step::Kind::kCompute:
        if (!rank.began_wait) {
          rank.began_wait = true;
          rank.computed = false;
          push(now_ + step.time, number, Event::kProgram);
        }
        if (!rank.computed) return false;
        break;
      case Step::Kind::kAdd: rank.local[step.tensor] = rank.negotiator.add(records_[step.tensor]); break;
      case Step::Kind::kSubmit:
      case Step::Kind::kSubmitBad:
        if (submitted.outstanding) return wait(rank, [&] { rank.negotiator.urge(instant()); });
        if (rank.local[step.tensor] == kNoIndex) rank.local[step.tensor] = rank.negotiator.add(records_[step.tensor]);
        submitted.outstanding = true;
        submitted.bad = step.kind == Step::Kind::kSubmitBad;
        submitted.heard_before = rank.heard;
        ++submitted.generation;
        submitted.at.push_back(now_);
        submitted.waited.push_back(Duration::max());
        ++rank.outstanding;
        rank.negotiator.ready(rank.local[step.tensor], instant(), !submitted.bad);
        break;
      case Step::Kind::kLeave: rank.negotiator.leave(instant()); break;
      case Step::Kind::kFlush: rank.negotiator.flush(instant()); break;
      case Step::Kind::kFlushAndWait:
        if (!rank.began_wait) {
          if (number == 0) rounds_at_waits_.emplace_back(now_, rank.negotiator.stats().rounds);
          return wait(rank, [&] { rank.negotiator.flush(instant()); });
        }
        if (rank.outstanding != 0) return false;
        break;
      case Step::Kind::kWait:
        if (submitted.outstanding) return wait(rank, [&] { rank.negotiator.urge(instant()); });
        break;
      case Step::Kind::kJoin:
        if (!rank.began_wait)
          return wait(rank, [&] {
            rank.joining = true;
            rank.negotiator.join(instant());
          });
        if (rank.joining) return false;
        break;
    }
    rank.began_wait = false;
    ++rank.at;
    return true;
  }

  template <class Call>
  bool wait(Rank& rank, Call call) {
    if (rank.began_wait) return false;
    rank.began_wait = true;
    for (Submitted& submitted : rank.submitted)
      if (submitted.outstanding && submitted.waited.back() == Duration::max()) submitted.waited.back() = now_;
    call();
    return true;
  }

  void check_end() {
    for (std::size_t number = 0; number < ranks_.size(); ++number) {
      const Rank& rank = *ranks_[number];
      if (rank.dead || rank.failed) continue;
      if (rank.at != rank.program.size())
        fault("rank " + std::to_string(number) + " hangs at step " + std::to_string(rank.at) + " of " +
              std::to_string(rank.program.size()) + (stalls_.empty() ? "" : " (" + stalls_.front() + ")") +
              ", outstanding " + std::to_string(rank.outstanding) + ": " + log_text());
      if (rank.votes != votes_.size() || rank.tuned != rank.votes) fault("ranks do not take part in the same votes");
      if (rank.negotiator.held()) fault("rank " + std::to_string(number) + " holds completions for ever");
    }
    if (failed_ != 0 || !faults.empty()) return;
    for (const std::deque<Instance>& all : instances_)
      for (const Instance& instance : all)
        for (std::size_t number = 0; number < ranks_.size(); ++number)
          if ((instance.generation[number] == 0) == !instance.joined[number])
            fault("a gradient is not reduced with all ranks: " + log_text());
  }

  const std::vector<TensorRecord> records_;
  sim::Random random_;
  const std::uint64_t seed_;
  const Delays delays_;
  const bool online_;
  LaunchOrder order_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::uint64_t pushed_ = 0;
  Duration now_{};
  std::deque<Round> rounds_;
  std::deque<Vote> votes_;
  std::map<std::size_t, std::size_t> exchanged_, exchange_counts_;
  std::deque<std::vector<std::vector<std::byte>>> exchanges_;
  std::vector<Entry> log_;
  std::vector<std::deque<Instance>> instances_;  // by tensor: each reduction of it
  std::vector<std::pair<Duration, std::uint64_t>> rounds_at_waits_;
  std::vector<std::string> stalls_;
  std::vector<std::byte> buffer_;
  Word received_;
  std::string failure_;
  std::size_t failed_ = 0;
  int last_joined_ = -1;
};

}  // namespace aiacc::gradient::test
