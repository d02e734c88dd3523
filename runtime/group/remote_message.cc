#include "runtime/group/remote_message.h"

#include <utility>

#include "collectives/inter/point_to_point.h"
#include "runtime/group/group.h"
#include "transports/exchange.h"

namespace aiacc {

static_assert(sizeof(void*) != 8 || sizeof(RemoteReceive) <= 256);
static_assert(sizeof(void*) != 8 || sizeof(RemoteSend) <= 256);

bool RemoteMessage::serves(Group& group, const PlainCall& call, const Buffer& memory) noexcept {
  if (memory.bytes > Mailbox::kEagerBytes || (memory.data == nullptr && memory.bytes > 0)) return false;
  Mailbox& mailbox = *group.team().mailbox;
  const MatchGroup* const known = mailbox.find_group(group.view().id());
  if (known == nullptr || known->error) return false;
  return call.kind == Collective::kRecv || mailbox.has_credit(mailbox.world_rank(*known, call.root), memory.bytes);
}

MessageRecord::Message RemoteMessage::message_of(Group& group, const PlainCall& call, const Buffer& memory) {
  const Mailbox& mailbox = *group.team().mailbox;
  const MatchGroup& known = group.team().mailbox->group(group.view().id());
  return {mailbox.world_rank(known, call.root),
          call.tag,
          group.messengers().pairs.next(call) | kPairSequence,
          call.call().fingerprint(),
          memory.data,
          memory.bytes};
}

Mailbox& RemoteMessage::mailbox() const noexcept { return *group().team().mailbox; }

MatchGroup& RemoteMessage::match_group() const noexcept { return *mailbox().find_group(group().view().id()); }

PlainCall RemoteMessage::call_of(const MessageRecord& record) const noexcept {
  const bool sends = record.kind() == MessageRecord::Kind::kSend;
  return {sends ? Collective::kSend : Collective::kRecv, type_, ReduceOp::kSum, record.message().tag, rank_,
          record.message().bytes / size_of(type_)};
}

void RemoteMessage::identify(Operation& operation, const MessageRecord& record) const noexcept {
  operation.sequence = record.sequence();
  operation.message = WireId(record.sequence(), operation.call.tag, operation.call.root);
}

void RemoteMessage::message_over(std::exception_ptr error) noexcept {
  if (withdrawn()) return released();
  if (!ended(std::move(error))) wants_operation();
}

void RemoteMessage::wants_operation() noexcept {
  if (!std::exchange(handed_over_, true)) group().waiting_calls().hand_over(*this);
}

Task<void> RemoteReceive::go_on(Operation& operation) {
  identify(operation, *this);
  rethrow();
  return inter::recv(operation, this);
}

Task<void> RemoteSend::go_on(Operation& operation) {
  identify(operation, *this);
  rethrow();
  return inter::send(operation, this);
}

}  // namespace aiacc
