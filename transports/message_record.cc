#include "transports/message_record.h"

#include <utility>

#include "transports/exchange.h"
#include "transports/mailbox.h"

namespace aiacc {

void MessageRecord::add_to(MatchGroup& group) noexcept {
  group_ = &group;
  group.records.push_back(*this);
  group.records_by_match.add(*this, WireId::hash_of(message_.sequence, Tag(message_.tag), message_.peer));
}

void MessageRecord::end(std::exception_ptr error) noexcept {
  leave();
  group_->past.add(message_.sequence, message_.fingerprint, note());
  message_ended(std::move(error));
}

// --- ReceiveRecord ---------------------------------------------------------------------------------------------------

void ReceiveRecord::post(Mailbox& mailbox, MatchGroup& group) noexcept {
  add_to(group);
  if (group.unexpected.empty()) return;
  const Tag tag(message_.tag);
  UnexpectedMessage* const eager = group.find_early(MessageKind::kEager, true, message_.sequence, tag, message_.peer);
  if (eager != nullptr && takes(eager->header)) {
    mailbox.take_unexpected(group, *eager, buffer());
    return end(nullptr);
  }
  const bool something =
      eager != nullptr ||
      group.find_early(MessageKind::kEager, false, message_.sequence, tag, message_.peer) != nullptr ||
      group.find_early(MessageKind::kRts, true, message_.sequence, tag, message_.peer) != nullptr;
  if (something) needs_operation();
}

bool ReceiveRecord::takes(const MessageHeader& header) const noexcept {
  return header.fingerprint == message_.fingerprint && header.total == message_.bytes;
}

Buffer ReceiveRecord::place(const MessageHeader&) noexcept {
  if (!std::exchange(port_has_it_, true)) ++group_->arriving;
  return buffer();
}

void ReceiveRecord::placed() noexcept {
  port_has_it_ = false;
  --group_->arriving;
  end(nullptr);
}

void ReceiveRecord::peer_lost() noexcept {
  port_has_it_ = false;
  --group_->arriving;
  if (failing_) end(nullptr);
}

bool ReceiveRecord::withdraw(Mailbox& mailbox) noexcept {
  if (!posted()) return true;
  failing_ = true;
  if (port_has_it_) {
    mailbox.revoke_placing(*this);
    return false;
  }
  leave();
  return true;
}

void ReceiveRecord::hand_over() noexcept {
  if (std::exchange(port_has_it_, false)) --group_->arriving;
  leave();
}

// --- SendRecord ------------------------------------------------------------------------------------------------------

void SendRecord::post(Mailbox& mailbox, MatchGroup& group) noexcept {
  add_to(group);
  port_has_it_ = true;
  mailbox.peer(message_.peer).eager_sent += message_.bytes;
  MessageHeader header = mailbox.header(group, MessageKind::kEager, message_.peer);
  header.step = message_.tag;
  header.sequence = message_.sequence;
  header.fingerprint = message_.fingerprint;
  header.length = header.total = message_.bytes;
  mailbox.post(message_.peer, header, buffer(), *this);
}

void SendRecord::sent(std::exception_ptr error) noexcept {
  port_has_it_ = false;
  if (heir_ != nullptr) return heir_->sent(std::move(error));
  end(failing_ ? nullptr : std::move(error));
}

bool SendRecord::withdraw(Mailbox& mailbox) noexcept {
  if (!posted()) return true;
  failing_ = true;
  mailbox.port().withdraw(*this);
  return false;
}

void SendRecord::hand_over(PostedSend& to) noexcept {
  heir_ = &to;
  leave();
}

}  // namespace aiacc
