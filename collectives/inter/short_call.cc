#include "collectives/inter/short_call.h"

#include "collectives/inter/algorithms.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/selector.h"

namespace aiacc::inter {
namespace {

bool in_host_memory(const Buffer& buffer) noexcept {
  return buffer.bytes == 0 || (buffer.data != nullptr && buffer.on_host());
}

bool combines_partial_results(const Reduction& reduction) noexcept {
  return reduction.prescale == 1.0 && !reduction.operands.named() && !reduction.results.named() && !reduction.narrows();
}

void require_done(const Compute::Done& work) {
  AIACC_INVARIANT(work.await_ready(), "a short call is served by a Compute that works inline");
}

}  // namespace

bool ShortCall::serves(const Team& team, const Call& call, Buffer send, Buffer recv) noexcept {
  if (team.mailbox == nullptr || team.size() < 2 || team.view->most_on_a_host() > 1) return false;
  if (!team.compute.works_inline()) return false;
  if (call.kind == Collective::kBarrier) return true;
  const AlgorithmInfo* const algorithm = short_algorithm(call, team.size());
  if (algorithm == nullptr || call.uneven || call.count == 0) return false;
  const bool sums = call.kind == Collective::kReduce || call.kind == Collective::kAllreduce ||
                    call.kind == Collective::kReduceScatter;
  if (ShortMessages::longest(call, team.size()) > (sums ? kMostBytes : kMostPlainBytes)) return false;
  const bool collects = call.kind == Collective::kGather && team.rank == call.root && team.size() > 2;
  if (collects && call.bytes() > kMostGatheredBytes) return false;
  if (sums && !combines_partial_results(call.reduction)) return false;
  if (!in_host_memory(send) || !in_host_memory(recv)) return false;
  if (call.kind == Collective::kAlltoall && send.data == recv.data) return false;  // what leaves would be overwritten
  const Shape shape = shape_of(call, team.size());
  const bool tells = team.rank == 0;
  const AlgorithmInfo& chosen = team.selector == nullptr ? usual_algorithm(shape) : team.selector->choose(shape, tells);
  return &chosen == algorithm;
}

ShortCall::ShortCall(Team& team, const Call& call, std::uint64_t sequence, Stop& stop, Buffer send, Buffer recv,
                     Sends sends)
    : team_(team),
      call_(call),
      sequence_(sequence),
      stop_(stop),
      exchange_(*team.mailbox, team.view, team.rank, sequence, call.fingerprint(), CallNote(call.summary())),
      messages_(call, team.rank, team.size(), send, recv),
      rounds_(messages_.rounds()) {
  if (team.selector != nullptr && team.rank == 0) team.selector->tell_choices(shape_of(call, team.size()));
  exchange_.set_immediate(sends == Sends::kAtOnce);
  if (swaps_long(call)) exchange_.swap_long();
  const std::size_t scratch = messages_.scratch_bytes();
  if (scratch > kNear) longer_ = std::make_unique_for_overwrite<std::byte[]>(scratch);
  messages_.set_scratch(scratch > kNear ? longer_.get() : near_.data());
  copy(messages_.first());
  begin_round();
  copy(messages_.own());  // while its messages travel
}

bool ShortCall::advance() {
  while (transfer_) {
    if (!transfer_->ended()) return false;
    transfer_->await_resume();
    end_round();
    transfer_.reset();
    ++round_;
    begin_round();
  }
  return true;
}

Task<void> ShortCall::finish() {
  exchange_.set_immediate(false);
  while (!advance()) {
    Transfer& pending = *transfer_;
    co_await pending;
  }
}

// The next one in which this rank has a message.
void ShortCall::begin_round() {
  for (; round_ < rounds_; ++round_) {
    const ShortMessages::Round its = messages_.round(round_);
    if (its.empty()) continue;
    std::optional<Transfer::To> to;
    std::optional<Transfer::From> from;
    if (its.to != ShortMessages::kNobody) to.emplace(Transfer::To{its.to, its.tag, its.sent});
    if (its.from != ShortMessages::kNobody) from.emplace(Transfer::From{its.from, its.tag, its.arrived});
    transfer_.emplace(exchange_, stop_, to, from);
    transfer_->start();
    return;
  }
}

void ShortCall::end_round() {
  const ShortMessages::Sum sum = messages_.sum(round_);
  if (sum.result.bytes == 0) return;
  require_done(team_.compute.reduce({&sum.result, 1}, sum.operands, sum.result.bytes / call_.element_bytes(),
                                    call_.reduction, {.first = false, .last = sum.last, .ranks = team_.size()}, stop_));
}

void ShortCall::copy(const ShortMessages::Copy& what) {
  if (what.to.bytes > 0) require_done(team_.compute.copy(what.to, what.from, stop_));
}

}  // namespace aiacc::inter
