// Mismatches: members that make different calls as one operation, or that give one message two lengths. Every message
// carries the fingerprint of its operation; a receiver that sees another one than its own describes its call to the sender
// (CallsDiffer). The sender knows both calls then and ends the group with a sentence that states them. A sender that does not
// answer within a second is described without its call.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "transports/control/aborts.h"

namespace aiacc {

class Mismatches final {
 public:
  Mismatches(Loop& loop, ControlChannel& channel, Mailbox& mailbox, Aborts& aborts);

  // A message of world rank `from` belongs to another call than this rank's, `mine`.
  void calls_differ(MatchGroup& group, int from, const MessageHeader& header, const CallNote& mine) noexcept;
  void lengths_differ(MatchGroup& group, int from, const std::string& sentence) noexcept;
  // Both calls are known: ends the group.
  void end(MatchGroup& group, int from, std::uint64_t sequence, const std::string& mine, const std::string& theirs);

 private:
  struct Question final : Timer {
    Question(Mismatches& its, std::uint64_t id) noexcept : owner(its), group(id) {}
    void expired() noexcept override { owner.no_answer(group); }
    Mismatches& owner;
    std::uint64_t group;
    int asked = kNoPeer;     // rank in the group
    std::string unanswered;  // the sentence if it does not answer
  };
  void answer(int from, const ControlChannel::Subject& about, const wire::CallsDiffer& question);
  void no_answer(std::uint64_t group) noexcept;

  Loop& loop_;
  ControlChannel& channel_;
  Mailbox& mailbox_;
  Aborts& aborts_;
  std::map<std::uint64_t, Question> questions_;  // one for a group
};

}  // namespace aiacc
