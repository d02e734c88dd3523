// Stragglers: finds the rank that delays an operation. Every stalled rank follows the chain of waits from rank to rank until
// one does not answer (its process is frozen), has not begun, or is busy. It also carries the questions of the search for
// receives that wait for each other (runtime/watch/receive_search.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "transports/control/mismatches.h"

namespace aiacc {

// What a member answers when asked whether it does nothing but receive in a group (and therefore sends nothing).
struct Receiving {
  static constexpr int kAnyRank = wire::ReceivesFrom::kAnyRank;
  int from = kNoPeer;  // a rank of the group, or kAnyRank; kNoPeer: it also does something else, or nothing
  std::string call;    // its description, for a sentence
};

// The straggler, as far as it is known.
struct StragglerDiagnosis {
  enum class Kind : std::uint8_t { kNobody, kSilent, kNotBegun, kFinished, kWorking, kEachOther, kNoGroup, kFreed };
  Kind kind = Kind::kNobody;
  int rank = kNoPeer;
  std::string text() const;  // "rank 3 does not answer"
};

class Stragglers final {
 public:
  class Observer {
   public:
    // Another member asks whether this rank only receives in the group.
    virtual Receiving receiving(std::uint64_t group) noexcept = 0;
    // The answer of `rank` to ask_receiving().
    virtual void receiving_reported(std::uint64_t group, int rank, const Receiving& said) noexcept = 0;

   protected:
    ~Observer() = default;
  };

  Stragglers(ControlChannel& channel, Mailbox& mailbox, Aborts& aborts, Mismatches& mismatches);
  void set_observer(Observer* observer) noexcept { observer_ = observer; }

  // Starts the diagnosis of this operation: asks the rank that it waits for which rank that one waits for, and so on. An
  // answer includes what the asked rank has found itself, so if all members ask, a chain of n waits is resolved in about
  // log₂ n questions.
  void investigate(std::uint64_t group, const WireId& operation) noexcept;
  // The result of it so far.
  StragglerDiagnosis diagnosis(std::uint64_t group, const WireId& operation) noexcept;
  // Asks all members on other hosts whether they have begun this operation, so that the error names all that have not.
  // It sends one message to each member, so it is for operations close to their deadline.
  void survey(std::uint64_t group, const WireId& operation) noexcept;
  // The members on other hosts that have not answered the survey, or answered that they have not begun; empty without a
  // survey.
  std::vector<int> not_begun(std::uint64_t group, const WireId& operation) noexcept;

  // Asks a member on another host whether it does nothing but receive; the observer gets the answer.
  void ask_receiving(std::uint64_t group, int rank) noexcept;

  // This rank makes no call in the group but those: who has asked about another one is told.
  void say_last(std::uint64_t group, const LastCalls& last) noexcept;
  void forget(std::uint64_t group) noexcept {
    searches_.erase(group);
    asked_.erase(group);
  }

  // The error sentence for a call that a member will never make because it has freed the group.
  static std::string freed_too_early(int rank, const std::string& call, std::uint64_t sequence, int freed);
  // The same of a message. `finalized`: it has finalized, and not only freed the group.
  static std::string left_without_message(int rank, const std::string& call, int left, bool finalized);

 private:
  // The diagnosis of an operation in progress.
  struct Search {
    explicit Search(const WireId& of) : operation(of) {}
    WireId operation;
    StragglerDiagnosis diagnosis;
    int questions = 0;
    std::vector<char> begun;  // after survey(), by rank: it has answered that it has begun; otherwise empty
  };

  // What another member has asked last: it asks about its oldest collective, and about the oldest message with each rank.
  struct Question {
    WireId operation;
    std::uint64_t fingerprint = 0;
    wire::WhereIs::Half half = wire::WhereIs::kOther;
  };
  using Asking = std::pair<int, wire::WhereIs::Half>;  // its rank in the world; kOther of a collective

  MatchGroup* open_group(std::uint64_t group) noexcept;
  Search& search_of(MatchGroup& group, const WireId& operation);
  Search* find(std::uint64_t group, const WireId& operation) noexcept;
  Search* find_asking(MatchGroup& group, const WireId& operation) noexcept;
  int awaited(const MatchGroup& group, Exchange& exchange) noexcept;
  void suspect(MatchGroup& group, Search& search, int rank) noexcept;
  void ask_where(MatchGroup& group, Exchange& exchange, int rank) noexcept;
  static bool never_makes(const LastCalls& last, int from, const Question& question) noexcept;
  void tell_never_made(int from, std::uint64_t group, const WireId& operation) noexcept;
  void asked(int from, const ControlChannel::Subject& about, const wire::WhereIs& question);
  wire::OperationState state_of(MatchGroup& group, const WireId& operation) noexcept;
  void answered(int from, const ControlChannel::Subject& about, const wire::OperationState& state);
  void end_by_freeing(MatchGroup& group, const Exchange& exchange, int freed) noexcept;
  void tell_receiving(int from, std::uint64_t group) noexcept;

  ControlChannel& channel_;
  Mailbox& mailbox_;
  Aborts& aborts_;
  Mismatches& mismatches_;
  Observer* observer_ = nullptr;
  std::map<std::uint64_t, std::vector<Search>> searches_;      // by group; a group has few
  std::map<std::uint64_t, std::map<Asking, Question>> asked_;  // by group, until this rank makes no more calls in it
};

}  // namespace aiacc
