#include "runtime/messages.h"

#include "base/task/scope.h"
#include "collectives/host/host_post.h"
#include "collectives/net/point_to_point.h"
#include "runtime/alone.h"
#include "runtime/pair_sequences.h"
#include "transports/exchange.h"

namespace aiacc {
namespace {

// A send or recv. Whatever decides its place among others of its pair happens before this returns.
Task<void> run_one(Operation& operation, Messengers messengers) {
  const Call& call = operation.call;
  const bool sends = call.kind == Collective::kSend;
  if (call.root == operation.team.rank) return messengers.loopback.run(operation);
  if (messengers.host != nullptr && messengers.host->reaches(call.root)) {
    return sends ? messengers.host->send(operation) : messengers.host->recv(operation);
  }
  operation.sequence = messengers.pairs.next(call) | Exchange::kPairSequence;
  return sends ? net::send(operation) : net::recv(operation);
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

Task<void> sendrecv(Operation& operation, Messengers messengers) {
  const Team& team = operation.team;
  Scope scope(team.loop, operation.stop);
  const Buffer nothing;
  Operation recv{operation.team, half_of(operation.call, Collective::kRecv), operation.sequence, scope.stop(), nothing,
                 operation.recv};
  Operation send{operation.team,     half_of(operation.call, Collective::kSend),
                 operation.sequence, scope.stop(),
                 operation.send,     nothing};
  scope.spawn(run_one(recv, messengers));
  scope.spawn(run_one(send, messengers));
  // Who holds it up is more likely the one who does not send.
  const bool crosses = (recv.sequence & Exchange::kPairSequence) != 0;
  operation.sequence = crosses ? recv.sequence : send.sequence;
  co_await scope.join();
}

// The rank whose message a recv from any takes now, or -1. A message that a recv asks for by its rank is that one's.
int find_sender(const Operation& operation, Messengers messengers) {
  const std::uint32_t tag = operation.call.tag;
  const int first = messengers.pairs.first_looked_at();
  int found = messengers.loopback.has_unasked(tag) ? operation.team.rank : -1;
  const auto consider = [&](int rank) {
    const int n = operation.team.size();
    if (rank >= 0 && (found < 0 || (rank - first + n) % n < (found - first + n) % n)) found = rank;
  };
  if (messengers.host != nullptr) consider(messengers.host->find_unasked(tag, first));
  if (Mailbox* mailbox = operation.team.mailbox; mailbox != nullptr) {
    for (const Mailbox::Unasked& message : mailbox->unasked(operation.team.view->id(), tag)) {
      const std::uint64_t next = messengers.pairs.next_from(message.from, tag) | Exchange::kPairSequence;
      if (message.sequence == next) consider(message.from);
    }
  }
  return found;
}

Task<void> take_any(Operation& operation, Messengers messengers, Event& news, int& sender) {
  while ((sender = find_sender(operation, messengers)) < 0) {
    co_await news.wait(operation.stop);
    news.reset();
  }
  messengers.pairs.took_from(sender);
  operation.call.kind = Collective::kRecv;
  operation.call.root = sender;
  co_await run_one(operation, messengers);
}

Task<void> watch_member(HostPost& post, int member, Event& news, Stop& stop) {
  try {
    co_await post.watch(member, news, stop);
  } catch (const Error&) {  // stopped: the recv itself says how it ended
  }
}

Task<void> recv_any(Operation& operation, Messengers messengers) {
  const Team& team = operation.team;
  Event news(team.loop);
  const Loopback::Watch own(messengers.loopback, news);
  std::optional<Mailbox::Watch> others;
  if (team.mailbox != nullptr) others.emplace(*team.mailbox, team.view->id(), news);
  Scope watching(team.loop, operation.stop);
  HostPost* const host = messengers.host;
  const bool waits = find_sender(operation, messengers) < 0;
  for (int member = 0; waits && host != nullptr && member < host->members(); ++member) {
    if (member != host->me()) watching.spawn(watch_member(*host, member, news, watching.stop()));
  }
  std::exception_ptr error;
  int sender = -1;
  try {
    co_await take_any(operation, messengers, news, sender);
  } catch (...) {
    error = std::current_exception();
  }
  watching.stop().request(error ? error : std::make_exception_ptr(Error(Code::kAborted, "the message is there")));
  co_await watching.join();
  if (error) std::rethrow_exception(error);
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
