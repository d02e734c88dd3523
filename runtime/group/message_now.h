// Messages within a host that end or begin to wait within their call, and what each call that waits does when it begins; inline, for
// the ABI's send and recv.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "collectives/intra/intra_messages_now.h"
#include "collectives/intra/small.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/waiting_receive.h"
#include "runtime/watch/recorder.h"

namespace aiacc {

inline void Group::began(WaitingCall& call, OperationLine& line) noexcept {
  (call.receives() ? receiving_ : others_)++;
  context_.watch().add_waiting(call, line);
  forget_cyclic_receives();
  waiting_calls_.add();
  if (board_ != nullptr && &line == &calls_) board_->arrived(call.sequence());
}

inline void WaitingCall::begin_as(const PlainCall& its) noexcept {
  sequence_ = group_.next_ticket(its.kind);
  OperationLine& line = group_.line_of(its);
  // The clock is read for the first that waits. What comes behind it may have begun some milliseconds later than it says.
  began_ =
      line.waiting.empty() ? group_.loop().now() : std::max(line.waiting.front().began(), group_.loop().about_now());
  set_recorded(
      static_cast<std::uint32_t>(group_.context().recorder().begin(group_.recorded_as(), sequence_, its, began_)));
  group_.add_waiting(1);
  group_.began(*this, line);
}

inline void Group::message_ended(const PlainCall& call) noexcept {
  forget_cyclic_receives();
  context_.recorder().add(recorded_as_, ++messages_, call, loop().about_now());
}

inline std::uint64_t Group::finish_send(int member, const PlainCall& call, const Buffer& send) noexcept {
  if (!may_begin_plainly() || !send.on_host() || !intra_messages_->send_now(member, call, send)) return 0;
  message_ended(call);
  return messages_;
}

inline bool Group::finish_receive(int member, const PlainCall& call, const Buffer& recv,
                                  const Lane::Hold& hold) noexcept {
  constexpr std::uint64_t kReceivesPerTurn = 64;  // one of them is left to the loop, which serves everything else
  if (!may_begin_plainly() || !recv.on_host() || ++receives_at_once_ % kReceivesPerTurn == 0) return false;
  if (intra_team_ != nullptr && outstanding() == 0 && hold.unfinished() == 0) {
    intra::SmallWaits waits(*intra_team_, intra::SmallWait::kYieldsToo);
    if (!intra_messages_->recv_soon(member, call, recv, [&waits] { return waits.wait(); })) return false;
  } else if (!intra_messages_->recv_now(member, call, recv)) {
    return false;
  }
  message_ended(call);
  return true;
}

inline Group::BegunReceive Group::begin_receive(int member, const PlainCall& call, const Buffer& recv,
                                                Lane::Hold& hold) noexcept {
  if (!may_begin_plainly() || !recv.on_host()) return {};
  if (!intra_messages_->only_waits(member, call)) {
    if (intra_messages_->recv_now(member, call, recv)) {
      message_ended(call);
      return {messages_, nullptr};
    }
    if (!intra_messages_->prepare_to_post(member, call)) return {};
  }
  std::unique_ptr<WaitingReceive> receive;
  try {
    receive.reset(new (context_.waiting_pool()) WaitingReceive(*this, member, call, recv));
  } catch (const std::bad_alloc&) {
    return {};
  }
  hold.start_as(*receive, [&] {
    receive->begin_as(call);
    intra_messages_->post(*receive, waiting_calls_);
  });
  return {0, std::move(receive)};
}

}  // namespace aiacc
