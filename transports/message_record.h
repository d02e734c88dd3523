// MessageRecord: a message to or from a rank of another host whose call is no operation: there is neither an Exchange nor a
// coroutine. A receive takes the eager message of its length and call, and a send is for an eager message that has credit.
//
// Whatever is more than that needs an operation (needs_operation()): another call or length, which is a mismatch, an RTS, or a
// stall that is to be looked into. The operation's Transfer goes on with the record (Transfer::To, Transfer::From): what was
// posted stays posted, and what the port has of its memory goes over to the transfer.
#pragma once

#include <cstdint>
#include <exception>

#include "base/data/buffer.h"
#include "base/intrusive_list.h"
#include "transports/call_note.h"
#include "transports/match_index.h"
#include "transports/message.h"

namespace aiacc {

class Mailbox;
struct MatchGroup;
class PostedSend;

class MessageRecord : public ListNode<MessageRecord>, public MatchNode<MessageRecord> {
 public:
  enum class Kind : std::uint8_t { kSend, kRecv };
  // What a call gives. `peer` is a rank of the world, and `sequence` that of the message's WireId.
  struct Message {
    int peer;
    std::uint32_t tag;
    std::uint64_t sequence;
    std::uint64_t fingerprint;
    std::byte* data;
    std::size_t bytes;
  };

  Kind kind() const noexcept { return kind_; }
  int peer() const noexcept { return message_.peer; }
  std::uint64_t sequence() const noexcept { return message_.sequence; }
  bool matches(std::uint64_t sequence, Tag tag, int peer) const noexcept {
    return message_.sequence == sequence && message_.peer == peer && tag == Tag(message_.tag);
  }
  const Message& message() const noexcept { return message_; }
  // Posted, and neither over nor taken over.
  bool posted() const noexcept { return MatchNode<MessageRecord>::indexed(); }

 protected:
  MessageRecord(Kind kind, const Message& message) noexcept : message_(message), kind_(kind) {}
  ~MessageRecord() = default;
  Buffer buffer() const noexcept { return {message_.data, message_.bytes}; }
  void add_to(MatchGroup& group) noexcept;
  void leave() noexcept {
    ListNode<MessageRecord>::unlink();
    unindex();
  }
  void end(std::exception_ptr error) noexcept;

  // The owner's, possibly from inside any call of the mailbox or the port: it must not resume a coroutine, nor call either of them.
  // The message is over, or why it failed; after withdraw() its memory is free. This object is not touched any more.
  virtual void message_ended(std::exception_ptr error) noexcept = 0;
  // An operation is to go on with it soon.
  virtual void needs_operation() noexcept = 0;
  virtual CallNote note() const noexcept = 0;

  MatchGroup* group_ = nullptr;
  Message message_;
  Kind kind_;
  bool port_has_it_ = false;  // a receive's memory is being filled, a send is not complete
};

class ReceiveRecord : public MessageRecord {
 public:
  // Possibly ends inside.
  void post(Mailbox& mailbox, MatchGroup& group) noexcept;
  // It ends without its message. True: now; otherwise message_ended() follows.
  bool withdraw(Mailbox& mailbox) noexcept;

  // For the mailbox.
  bool takes(const MessageHeader& header) const noexcept;
  Buffer place(const MessageHeader& header) noexcept;
  void placed() noexcept;
  void peer_lost() noexcept;  // the port has released its memory
  void must_be_operation() noexcept { needs_operation(); }
  bool being_placed() const noexcept { return port_has_it_; }
  bool failing() const noexcept { return failing_; }
  // For the transfer that takes it over.
  void hand_over() noexcept;

 protected:
  explicit ReceiveRecord(const MessageRecord::Message& message) noexcept : MessageRecord(Kind::kRecv, message) {}
  ~ReceiveRecord() = default;

 private:
  bool failing_ = false;
};

class SendRecord : public MessageRecord, public SendCompletion {
 public:
  // For a message that has credit (Mailbox::has_credit).
  void post(Mailbox& mailbox, MatchGroup& group) noexcept;
  bool withdraw(Mailbox& mailbox) noexcept;
  // For the transfer that takes it over: it hears of the message's completion.
  void hand_over(PostedSend& to) noexcept;

 protected:
  explicit SendRecord(const MessageRecord::Message& message) noexcept : MessageRecord(Kind::kSend, message) {}
  ~SendRecord() = default;

 private:
  void sent(std::exception_ptr error) noexcept override;

  PostedSend* heir_ = nullptr;
  bool failing_ = false;
};

}  // namespace aiacc
