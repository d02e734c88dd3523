#include "collectives/inter/short_call.h"

#include <bit>

#include "collectives/inter/inter_call.h"
#include "collectives/inter/recursive_doubling_allreduce.h"
#include "collectives/inter/selector.h"

namespace aiacc::inter {
namespace {

bool in_host_memory(const Buffer& buffer) noexcept { return buffer.data != nullptr && buffer.on_host(); }

void require_done(const Compute::Done& work) {
  AIACC_INVARIANT(work.await_ready(), "a short call is served by a Compute that works inline");
}

int rounds_among_members(int ranks) noexcept { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

}  // namespace

bool ShortCall::serves(const Team& team, const Call& call, Buffer send, Buffer recv) noexcept {
  const auto ranks = static_cast<unsigned>(team.size());
  if (team.mailbox == nullptr || ranks < 2 || team.view->most_on_a_host() > 1) return false;
  if (!team.compute.works_inline()) return false;
  if (call.kind == Collective::kBarrier) return true;
  const Reduction& reduction = call.reduction;
  const bool plain = call.kind == Collective::kAllreduce && call.count > 0 && call.bytes() <= kMostBytes &&
                     std::has_single_bit(ranks) && in_host_memory(send) && in_host_memory(recv) &&
                     reduction.prescale == 1.0 && !reduction.operands.named() && !reduction.results.named() &&
                     !reduction.narrows();
  if (!plain || team.selector == nullptr) return plain;
  const Shape shape{.kind = call.kind,
                    .ranks = team.size(),
                    .bytes = call.bytes(),
                    .wide_bytes = call.bytes(),
                    .ordered = reduction.ordered()};
  return team.selector->leaves_to(kRecursiveDoublingAllreduceInfo, shape);
}

ShortCall::ShortCall(Team& team, const Call& call, std::uint64_t sequence, Stop& stop, Buffer send, Buffer recv,
                     Sends sends)
    : team_(team),
      call_(call),
      sequence_(sequence),
      stop_(stop),
      result_(recv),
      exchange_(*team.mailbox, team.view, team.rank, sequence, call.fingerprint(), CallNote(call.summary())),
      rounds_(rounds_among_members(team.size())) {
  exchange_.set_immediate(sends == Sends::kAtOnce);
  if (recv.bytes > kNear) {
    longer_ = std::make_unique_for_overwrite<std::byte[]>(recv.bytes);
    arrived_ = longer_.get();
  }
  if (recv.bytes > 0 && send.data != recv.data) require_done(team.compute.copy(recv, send, stop));
  begin_round();
}

bool ShortCall::advance() {
  while (transfer_) {
    if (!transfer_->ended()) return false;
    transfer_->await_resume();
    end_round();
    transfer_.reset();
    if (++round_ < rounds_) begin_round();
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

void ShortCall::begin_round() {
  const int ranks = team_.size();
  const int distance = 1 << round_;
  if (call_.kind == Collective::kBarrier) {
    const Tag tag = tag_of(Algorithm::kBarrier, static_cast<std::uint64_t>(round_));
    transfer_.emplace(exchange_, stop_, Transfer::To{(team_.rank + distance) % ranks, tag, {}},
                      Transfer::From{(team_.rank - distance + ranks) % ranks, tag, {}});
  } else {
    const Tag tag = tag_of(Algorithm::kRecursiveDoubling, static_cast<std::uint64_t>(round_) + 1);
    const int peer = team_.rank ^ distance;
    transfer_.emplace(exchange_, stop_, Transfer::To{peer, tag, result_},
                      Transfer::From{peer, tag, Buffer{arrived_, result_.bytes}});
  }
  transfer_->start();
}

void ShortCall::end_round() {
  if (call_.kind == Collective::kBarrier) return;
  const Buffer arrived{arrived_, result_.bytes};
  const bool mine_first = (team_.rank & (1 << round_)) == 0;
  const Buffer operands[] = {mine_first ? result_ : arrived, mine_first ? arrived : result_};
  require_done(team_.compute.reduce({&result_, 1}, operands, call_.count, call_.reduction,
                                    {.first = false, .last = round_ == rounds_ - 1, .ranks = team_.size()}, stop_));
}

}  // namespace aiacc::inter
