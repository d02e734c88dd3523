// Messages between hosts: active messages with placement (design decision 4). A transport moves (header, payload) from one
// member to another and asks the receiver where the payload goes before it places it. Matching, rendezvous, chunking and
// replay live once, above all transports (transports/mailbox.h).
//
// Implementations: transports/sim here; tcp, ucx, ofi later. All pass transports/message_conformance.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <type_traits>

#include "base/data/buffer.h"
#include "base/error.h"
#include "base/intrusive_list.h"
#include "base/task/loop.h"

namespace aiacc {

enum class MessageKind : std::uint8_t {
  kEager = 1,    // header and payload together
  kOffer = 2,    // rendezvous: the payload waits at the sender, or will
  kGrant = 3,    // the receiver has a place for an offer
  kData = 4,     // payload of a granted offer
  kAck = 5,      // everything up to `sequence` of this direction arrived
  kAbort = 6,    // the group is aborted; payload: code, rank and sentence
  kService = 7,  // reaches a peer with no collective posted (KVStore)
};

enum class TrafficClass : std::uint8_t { kControl = 0, kLatency = 1, kBulk = 2 };

// Little-endian on the wire, 96 bytes, spare bytes zero and checked. docs/wire-protocol.md has the layout.
struct MessageHeader {
  std::uint16_t version = 1;
  MessageKind kind = MessageKind::kEager;
  TrafficClass traffic = TrafficClass::kBulk;
  std::uint32_t tag = 0;     // step or chunk within the operation
  std::uint32_t member = 0;  // sender
  std::uint32_t incarnation = 0;
  std::uint64_t group = 0;  // View::id()
  std::uint32_t epoch = 0;
  std::uint32_t flags = 0;
  std::uint64_t sequence = 0;      // of the operation in its group
  std::uint64_t fingerprint = 0;   // what the operation is: kind, type, op, count, root
  std::uint64_t schedule = 0;      // hash of the recorded schedule, 0 without one
  std::uint64_t offset = 0;        // of this payload in the message
  std::uint64_t length = 0;        // of this payload
  std::uint64_t total = 0;         // of the whole message
  std::uint64_t credit_limit = 0;  // how far the receiver of this may send
  std::int64_t sent_ns = 0;        // sender's clock
};
static_assert(sizeof(MessageHeader) == 96 && std::is_trivially_copyable_v<MessageHeader>);

// Told once when the payload's bytes may be overwritten: they were copied, or acknowledged end to end.
class SendCompletion {
 public:
  virtual void sent(std::exception_ptr error) noexcept = 0;

 protected:
  ~SendCompletion() = default;
};

class MessageReceiver {
 public:
  struct Placement {
    enum class Action : std::uint8_t { kInto, kHold, kDrop };
    Action action = Action::kDrop;
    Buffer into;  // of kInto: exactly header.length bytes, valid until on_placed() or on_peer_lost()
  };
  // Decides without side effects that would hurt if the same header came again after a replay. kHold: the transport keeps
  // what has arrived and stops reading more than its credit until release(); messages behind it are still asked for.
  virtual Placement on_header(int from_rank, const MessageHeader& header) noexcept = 0;
  // The payload of a kInto lies in its place (or the place was revoked): the port does not touch it any more.
  virtual void on_placed(int from_rank, const MessageHeader& header) noexcept = 0;
  // No message will come from or reach this rank any more. Once a rank.
  virtual void on_peer_lost(int rank, std::exception_ptr error) noexcept = 0;

 protected:
  ~MessageReceiver() = default;
};

// One context's port to all members of its world. Ranks are those of the world's view. Driven by the context's loop.
class MessagePort {
 public:
  virtual ~MessagePort() = default;
  virtual void set_receiver(MessageReceiver& receiver) noexcept = 0;

  // Queues a message. Messages of one sender, receiver and traffic class arrive in order. `pieces` stay untouched until
  // `completion` is told. Never blocks and never throws: failures reach the completion.
  virtual void post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                    SendCompletion& completion) noexcept = 0;

  // The same for a short message whose answer is waited for: it leaves at once, if nothing is before it, and not with others
  // that may follow soon. `completion` may be told from inside.
  virtual void post_now(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                        SendCompletion& completion) noexcept {
    post(to_rank, header, pieces, completion);
  }

  // A held message may now be asked for again: on_header() is repeated for everything held from this rank, oldest first.
  virtual void release(int from_rank) noexcept = 0;

  // The sender gives up what it posted with `completion`: the completion is told soon, never from inside, even if the peer
  // does not answer. The receiver gets each such message whole and right, or never.
  virtual void withdraw(SendCompletion& completion) noexcept = 0;
  // The receiver takes back the place it gave for this header: on_placed() is told soon, never from inside, even if the
  // sender does not answer. What lies in the place then is anything.
  virtual void revoke(int from_rank, const MessageHeader& header) noexcept = 0;

  // Somebody else knows that this rank is gone (its agent said so): no more effort is made to reach it, and on_peer_lost()
  // tells `why` soon, never from inside, unless it was told already.
  virtual void lose(int rank, std::exception_ptr why) noexcept = 0;

  // What travels is encrypted from now on, where a port can; before set_receiver().
  virtual void encrypt() noexcept {}
  // Why this rank cannot be reached just now, as a sentence with its addresses; "" if nothing is known to be in the way. For
  // reports about operations that wait.
  virtual std::string obstacle(int rank) const { return static_cast<void>(rank), std::string(); }

  // Says farewell before close(): returns when every peer that was spoken with has all that was posted and knows that this
  // rank goes in order, or after `limit`.
  virtual Task<void> leave(Duration limit, Stop& stop) = 0;

  // Nobody is told anything any more, and no memory but the port's is touched. Before receiver or completions go away.
  virtual void close() noexcept = 0;
};

}  // namespace aiacc
