#include "runtime/group/messages.h"

#include <utility>

#include "base/task/scope.h"
#include "collectives/inter/point_to_point.h"
#include "collectives/intra/intra_messages.h"
#include "runtime/group/alone.h"
#include "runtime/group/any_receives.h"
#include "runtime/group/pair_sequences.h"
#include "transports/exchange.h"

namespace aiacc {
namespace {

// Starts a send or recv. The order of messages of a pair is fixed when this returns, before the task is awaited.
Task<void> run_one(Operation& operation, Messengers messengers) {
  const Call& call = operation.call;
  const bool sends = call.kind == Collective::kSend;
  if (call.root == operation.team.rank) return messengers.loopback.run(operation);
  if (messengers.host != nullptr && messengers.host->reaches(call.root)) {
    return sends ? messengers.host->send(operation) : messengers.host->recv(operation);
  }
  operation.sequence = messengers.pairs.next(PlainCall::of(call)) | Exchange::kPairSequence;
  operation.message = WireId(operation.sequence, call.tag, call.root);
  return sends ? inter::send(operation) : inter::recv(operation);
}

Call half_of(const Call& whole, Collective kind) noexcept {
  Call half;
  half.kind = kind;
  half.reduction = whole.reduction;
  half.count = kind == Collective::kSend ? whole.count : whole.recv_count;
  half.root = kind == Collective::kSend ? whole.root : whole.from;
  half.tag = kind == Collective::kSend ? whole.tag : whole.recv_tag;
  return half;
}

// Runs the receiving half of `whole`. Diagnoses of `whole` refer to this half while it runs, because a stalled sendrecv more
// likely waits for the rank that does not send.
Task<void> run_receiving(Operation& whole, Operation& recv, const Operation& send, Messengers messengers) {
  Task<void> receiving = run_one(recv, messengers);
  whole.message = recv.message;
  co_await std::move(receiving);
  whole.message = send.message;
}

Task<void> sendrecv(Operation& operation, Messengers messengers) {
  const Team& team = operation.team;
  Scope scope(team.loop, operation.stop);
  const Buffer nothing;
  Operation recv{operation.team, half_of(operation.call, Collective::kRecv), operation.sequence, scope.stop(), nothing,
                 operation.recv};
  recv.traffic = operation.traffic;
  Operation send{operation.team,     half_of(operation.call, Collective::kSend),
                 operation.sequence, scope.stop(),
                 operation.send,     nothing};
  send.traffic = operation.traffic;
  scope.spawn(run_receiving(operation, recv, send, messengers));
  scope.spawn(run_one(send, messengers));
  if (!operation.message) operation.message = send.message;
  co_await scope.join();
}

// The rank whose message a recv from any takes now, or -1. A message that matches a recv with its rank is left to that one.
int find_sender(const Operation& operation, Messengers messengers) {
  const std::uint32_t tag = operation.call.tag;
  const int first = messengers.pairs.first_looked_at();
  int found = messengers.loopback.has_unexpected(tag) ? operation.team.rank : -1;
  const auto consider = [&](int rank) {
    const int n = operation.team.size();
    if (rank >= 0 && (found < 0 || (rank - first + n) % n < (found - first + n) % n)) found = rank;
  };
  if (messengers.host != nullptr) consider(messengers.host->find_unexpected(tag, first));
  if (Mailbox* mailbox = operation.team.mailbox; mailbox != nullptr) {
    consider(mailbox->unexpected_from(operation.team.view->id(), tag, [&](int rank, std::uint64_t sequence) {
      return sequence == (messengers.pairs.next_from(rank, tag) | Exchange::kPairSequence);
    }));
  }
  return found;
}

// Waits until there is a message that the receive may take; returns the rank that sent it.
Task<int> await_sender(const Operation& operation, Messengers messengers, AnyReceives::Place& place) {
  std::optional<IntraMessages::AnySource> on_host;
  for (;;) {
    if (place.failed()) std::rethrow_exception(place.failed());
    if (place.is_first()) {
      place.looked();
      const int found = find_sender(operation, messengers);
      if (found >= 0) co_return found;
    }
    if (!on_host && messengers.host != nullptr) {
      on_host.emplace(*messengers.host, messengers.any_source);
      continue;  // messages that arrived before this observer are not reported to it
    }
    co_await place.wait(operation.stop);
  }
}

Task<void> recv_any(Operation& operation, Messengers messengers) {
  AnyReceives::Place place(messengers.any_source, operation.team.loop, operation.call.tag);
  const int sender = co_await await_sender(operation, messengers, place);
  messengers.pairs.took_from(sender);
  operation.call.kind = Collective::kRecv;
  operation.call.root = sender;
  place.leave();  // wakes the next receive; it looks in a later turn, after this one has taken the message
  co_await run_one(operation, messengers);
  *operation.call.sender = sender;
}

}  // namespace

Task<void> run_message(Operation& operation, Messengers messengers) {
  switch (operation.call.kind) {
    case Collective::kSendrecv: return sendrecv(operation, messengers);
    case Collective::kRecvAny: return recv_any(operation, messengers);
    default: return run_one(operation, messengers);
  }
}

}  // namespace aiacc
