// The mailbox's side of messages without an operation.
#include <algorithm>
#include <cstring>

#include "transports/exchange.h"
#include "transports/mailbox.h"

namespace aiacc {

void Mailbox::take_unexpected(MatchGroup& group, UnexpectedMessage& unexpected, const Buffer& into) noexcept {
  if (into.data != nullptr && into.bytes > 0) std::memcpy(into.data, unexpected.bytes.data(), into.bytes);
  const std::size_t bytes = unexpected.bytes.size();
  const int from = unexpected.from;
  group.drop(unexpected);
  peers_[from].stored -= bytes;
  free_credit(from, bytes);
}

// The same header may come again: its memory is the same, unless that is being taken back.
MessageReceiver::Placement Mailbox::place_for(ReceiveRecord& record, int from, const MessageHeader& header) {
  if (record.failing()) {
    free_credit(from, header.length);
    return {MessageReceiver::Placement::Action::kDrop, {}};
  }
  if (!record.being_placed()) placing_.push_back({&record, from, header});
  return {MessageReceiver::Placement::Action::kInto, record.place(header)};
}

bool Mailbox::record_placed(int from, const MessageHeader& header) noexcept {
  const auto found = std::find_if(placing_.begin(), placing_.end(), [&](const Placing& one) {
    return one.from == from && one.header.group == header.group && one.header.sequence == header.sequence &&
           one.header.tag() == header.tag();
  });
  if (found == placing_.end()) return false;
  ReceiveRecord& record = *found->record;
  placing_.erase(found);
  record.placed();
  return true;
}

void Mailbox::revoke_placing(const ReceiveRecord& record) noexcept {
  const auto found =
      std::find_if(placing_.begin(), placing_.end(), [&](const Placing& one) { return one.record == &record; });
  if (found != placing_.end()) port_.revoke(found->from, found->header);
}

std::optional<MessageHeader> Mailbox::take_placing(const ReceiveRecord& record) noexcept {
  const auto found =
      std::find_if(placing_.begin(), placing_.end(), [&](const Placing& one) { return one.record == &record; });
  if (found == placing_.end()) return std::nullopt;
  const MessageHeader header = found->header;
  placing_.erase(found);
  return header;
}

const MessageRecord* Mailbox::record_of(MatchGroup& group, const WireId& operation, bool exactly) const noexcept {
  if (group.records.empty() || !operation.is_pair()) return nullptr;
  if (!exactly) return group.records.front().sequence() == operation.sequence ? &group.records.front() : nullptr;
  if (operation.peer < 0 || operation.peer >= group.view->size()) return nullptr;
  const int peer = world_rank(group, operation.peer);
  for (const MessageRecord::Kind kind : {MessageRecord::Kind::kRecv, MessageRecord::Kind::kSend}) {
    if (const MessageRecord* found = group.find_record(kind, operation.sequence, operation.tag, peer)) return found;
  }
  return nullptr;
}

}  // namespace aiacc
