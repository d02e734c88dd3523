#include "transports/control/mismatches.h"

#include <fmt/format.h>

#include "transports/exchange.h"

namespace aiacc {
namespace {

constexpr Duration kAnswerWithin = std::chrono::seconds(1);

std::string disagreement(std::uint64_t sequence, int rank, const std::string& mine, int other,
                         const std::string& theirs) {
  const bool first = rank < other;
  return fmt::format(
      "members disagree on operation {} of their group: rank {} called {}; rank {} called {}. All members must make "
      "the same calls in the same order",
      sequence & ~kPairSequence, first ? rank : other, first ? mine : theirs, first ? other : rank,
      first ? theirs : mine);
}

wire::GroupAborted notice_of(int rank, int other, std::string sentence) {
  wire::GroupAborted notice;
  notice.code = static_cast<std::int32_t>(Code::kMismatch);
  notice.rank = rank;
  notice.other = other;
  notice.sentence = std::move(sentence);
  return notice;
}

}  // namespace

Mismatches::Mismatches(Loop& loop, ControlChannel& channel, Mailbox& mailbox, Aborts& aborts)
    : loop_(loop), channel_(channel), mailbox_(mailbox), aborts_(aborts) {
  channel_.on<wire::CallsDiffer>(
      [this](int from, const ControlChannel::Subject& about, const auto& question) { answer(from, about, question); });
}

void Mismatches::calls_differ(MatchGroup& group, int from, const MessageHeader& header, const CallNote& mine) noexcept {
  if (group.error || group.view == nullptr) return;
  const auto [place, added] = questions_.try_emplace(group.id, *this, group.id);
  if (!added) return;
  Question& question = place->second;
  const std::string call = mine.describe();
  question.asked = mailbox_.group_rank(group, from);
  question.unanswered =
      disagreement(header.sequence, group.rank, call, question.asked, "something else and did not say what");
  loop_.arm(question, after(loop_.now(), kAnswerWithin));
  channel_.send(from, {group.id, WireId(header.sequence, header.tag())}, wire::CallsDiffer{header.fingerprint, call});
}

void Mismatches::answer(int from, const ControlChannel::Subject& about, const wire::CallsDiffer& question) {
  MatchGroup* const group = mailbox_.find_group(about.group);
  if (group == nullptr || group->view == nullptr || mailbox_.left(about.group)) return;
  if (group->error) {
    aborts_.tell(*group, from);
    return;
  }
  const WireId operation = mailbox_.seen_from_here(*group, from, about.operation);
  const Exchange* const exchange = group->find(operation);
  const CallNote* mine =
      exchange != nullptr && exchange->fingerprint() == question.fingerprint ? &exchange->note() : nullptr;
  if (mine == nullptr) mine = group->past.like(operation.sequence, question.fingerprint);
  end(*group, from, operation.sequence, mine == nullptr ? "something it no longer remembers" : mine->describe(),
      question.call);
}

void Mismatches::end(MatchGroup& group, int from, std::uint64_t sequence, const std::string& mine,
                     const std::string& theirs) {
  const int other = mailbox_.group_rank(group, from);
  const std::uint64_t id = group.id;
  const auto notice = notice_of(group.rank, other, disagreement(sequence, group.rank, mine, other, theirs));
  aborts_.end(group, notice, std::make_exception_ptr(Error(Code::kMismatch, notice.sentence, other)));
  if (const MatchGroup* const ended = mailbox_.find_group(id); ended != nullptr) aborts_.tell(*ended, from);
}

void Mismatches::lengths_differ(MatchGroup& group, int from, const std::string& sentence) noexcept {
  const int rank = mailbox_.group_rank(group, from);
  aborts_.end(group, notice_of(rank, kNoPeer, sentence),
              std::make_exception_ptr(Error(Code::kMismatch, sentence, rank)));
}

void Mismatches::no_answer(std::uint64_t id) noexcept {
  const Question& question = questions_.at(id);
  MatchGroup* const group = mailbox_.find_group(id);
  if (group == nullptr || mailbox_.left(id)) return;
  aborts_.end(*group, notice_of(question.asked, group->rank, question.unanswered),
              std::make_exception_ptr(Error(Code::kMismatch, question.unanswered, question.asked)));
}

}  // namespace aiacc
