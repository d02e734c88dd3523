// RemoteReceive and RemoteSend: an asynchronous recv from a rank of another host, and a send to one that has credit for it: records
// of the mailbox (transports/message_record.h).
#pragma once

#include "runtime/group/waiting_call.h"
#include "transports/message_record.h"

namespace aiacc {

// What both are beside their record.
class RemoteMessage : public WaitingCall {
 public:
  // Whether such a call may be one; the mailbox knows the group. The caller holds the lane.
  static bool serves(Group& group, const PlainCall& call, const Buffer& memory) noexcept;

 protected:
  RemoteMessage(Group& group, const PlainCall& call) noexcept
      : WaitingCall(group), rank_(call.root), type_(call.type) {}

  static MessageRecord::Message message_of(Group& group, const PlainCall& call, const Buffer& memory);
  Mailbox& mailbox() const noexcept;
  MatchGroup& match_group() const noexcept;
  PlainCall call_of(const MessageRecord& record) const noexcept;
  void identify(Operation& operation, const MessageRecord& record) const noexcept;
  // What the record's owner does.
  void message_over(std::exception_ptr error) noexcept;
  void wants_operation() noexcept;

 private:
  std::uint32_t recorded() const noexcept override { return recorded_; }
  void set_recorded(std::uint32_t low) noexcept override { recorded_ = low; }

  std::int32_t rank_;  // the other one, in the group
  std::uint32_t recorded_ = 0;
  DType type_;
  bool handed_over_ = false;
};

class RemoteReceive final : public RemoteMessage, public ReceiveRecord {
 public:
  // Takes the message's number: it is to be begun while the caller holds the lane.
  RemoteReceive(Group& group, const PlainCall& call, const Buffer& recv)
      : RemoteMessage(group, call), ReceiveRecord(message_of(group, call, recv)) {}

  PlainCall plain() const noexcept override { return call_of(*this); }
  bool receives() const noexcept override { return true; }
  Task<void> go_on(Operation& operation) override;

 private:
  void post() noexcept override { ReceiveRecord::post(mailbox(), match_group()); }
  bool withdraw() noexcept override { return ReceiveRecord::withdraw(mailbox()); }
  Buffer memory() const noexcept override { return buffer(); }
  void message_ended(std::exception_ptr error) noexcept override { message_over(std::move(error)); }
  void needs_operation() noexcept override { wants_operation(); }
  CallNote note() const noexcept override { return CallNote(call().summary()); }
};

class RemoteSend final : public RemoteMessage, public SendRecord {
 public:
  RemoteSend(Group& group, const PlainCall& call, const Buffer& send)
      : RemoteMessage(group, call), SendRecord(message_of(group, call, send)) {}

  PlainCall plain() const noexcept override { return call_of(*this); }
  bool receives() const noexcept override { return false; }
  Task<void> go_on(Operation& operation) override;

 private:
  void post() noexcept override { SendRecord::post(mailbox(), match_group()); }
  bool withdraw() noexcept override { return SendRecord::withdraw(mailbox()); }
  Buffer memory() const noexcept override { return buffer(); }
  void message_ended(std::exception_ptr error) noexcept override { message_over(std::move(error)); }
  void needs_operation() noexcept override { wants_operation(); }
  CallNote note() const noexcept override { return CallNote(call().summary()); }
};

}  // namespace aiacc
