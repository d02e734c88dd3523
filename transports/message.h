// Messages between hosts: active messages with placement (design decision 4). A transport moves (header, payload) from
// one member to another and asks the receiver where the payload goes before it places it. Matching, rendezvous
// (RTS/CTS), chunking and credit are implemented once, above all transports, in transports/mailbox.h.
//
// Implementations: transports/sim, transports/tcp, transports/active (UCX, libfabric) and transports/failover, which is two of them. All
// pass transports/message_conformance.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "base/data/buffer.h"
#include "base/error.h"
#include "base/intrusive_list.h"
#include "base/task/loop.h"

namespace aiacc {

enum class MessageKind : std::uint8_t {
  kEager = 1,    // header and payload together
  kRts = 2,      // request to send: the sender holds the payload, or will have it soon
  kCts = 3,      // clear to send: the receive for an RTS is posted
  kData = 4,     // payload, after the CTS
  kControl = 6,  // between the libraries of two ranks (transports/control); payload: base/wire/control_messages.h
  kService = 7,  // to a component of a peer with no receive posted (transports/service)
  kPath =
      8,  // between two FailoverPorts (transports/failover), which hand it to nobody; payload: base/wire/path_messages.h
};
constexpr bool is_kind(MessageKind kind) noexcept {
  return kind >= MessageKind::kEager && kind <= MessageKind::kPath && static_cast<int>(kind) != 5;
}

enum class TrafficClass : std::uint8_t { kControl = 0, kLatency = 1, kBulk = 2, kBackground = 3 };
inline constexpr std::size_t kTrafficClasses = 4;

// Identifies a message within an operation: the step of an algorithm, or the caller's tag of a send and recv.
// Consecutive algorithms of one operation have different tags, so they never match each other's messages.
struct Tag {
  std::uint32_t step = 0;
  std::uint16_t algorithm = 0;  // 0: point to point

  constexpr Tag() = default;
  constexpr Tag(std::uint32_t number, std::uint16_t of = 0) noexcept : step(number), algorithm(of) {}  // NOLINT
  constexpr bool operator==(const Tag&) const = default;
};

inline constexpr std::uint16_t kMessageVersion = 3;

// Little-endian on the wire, 96 bytes, spare bytes zero and checked. docs/wire-protocol.md has the layout.
struct MessageHeader {
  std::uint16_t version = kMessageVersion;
  MessageKind kind = MessageKind::kEager;
  TrafficClass traffic = TrafficClass::kBulk;
  std::uint32_t step = 0;    // of `algorithm` within the operation, or the tag of a send
  std::uint32_t member = 0;  // sender
  std::uint32_t incarnation = 0;
  std::uint64_t group = 0;  // View::id()
  std::uint32_t epoch = 0;
  std::uint16_t flags = 0;
  std::uint16_t algorithm = 0;     // 0: point to point
  std::uint64_t sequence = 0;      // number of the operation in its group
  std::uint64_t fingerprint = 0;   // hash of the call: kind, type, op, count, root
  std::uint64_t schedule = 0;      // hash of the recorded schedule, 0 without one
  std::uint64_t offset = 0;        // of this payload in the message
  std::uint64_t length = 0;        // of this payload
  std::uint64_t total = 0;         // of the whole message
  std::uint64_t credit_limit = 0;  // total eager bytes that the receiver of this header may have sent
  std::int64_t sent_ns = 0;        // sender's clock

  Tag tag() const noexcept { return {step, algorithm}; }
};
static_assert(sizeof(MessageHeader) == 96 && std::is_trivially_copyable_v<MessageHeader>);

// Called once when the sender may overwrite the payload: it was copied, or acknowledged end to end.
class SendCompletion {
 public:
  virtual void sent(std::exception_ptr error) noexcept = 0;

  // For the port: its messages that were posted with this completion and are outstanding, so that withdraw() needs no search.
  struct Message : ListNode<Message> {
    SendCompletion* completion = nullptr;  // null: nobody waits (any more)
    void promise(SendCompletion& its) noexcept {
      completion = &its;
      its.untold.push_back(*this);
    }
    SendCompletion* take_completion() noexcept {
      unlink();
      return std::exchange(completion, nullptr);
    }
  };
  IntrusiveList<Message> untold;

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
  // Decides where the payload goes. After a replay the same header may come again, so the decision must be idempotent.
  // kHold: the transport keeps what has arrived and, beyond its credit, stops reading until release(); messages behind
  // it are still offered.
  virtual Placement on_header(int from_rank, const MessageHeader& header) noexcept = 0;
  // The payload of a kInto has been placed (or its place was revoked): the port no longer touches the memory.
  virtual void on_placed(int from_rank, const MessageHeader& header) noexcept = 0;
  // This rank can neither send nor receive any more. Called once for each rank.
  virtual void on_peer_lost(int rank, std::exception_ptr error) noexcept = 0;
  // The connection to this rank is down and is being re-established, usually at once. See MessagePort::broken_path().
  virtual void on_path_broken(int rank) noexcept { static_cast<void>(rank); }

 protected:
  ~MessageReceiver() = default;
};

// A broken network path between this rank and another one.
struct BrokenPath {
  Instant since;  // since when neither the rank nor its host's kernel has answered
  std::string
      // both ends, the lower rank first: "rank 0 on host a (192.0.2.1:4711) and rank 1 on host b (192.0.2.2:4711)"
      ends;
  std::string reason;  // by address: "192.0.2.2:4711: no answer within 3.0 s"; "" if it is not known yet
};

// The bytes that went over the connections of one number between this rank and another, one after the other where they broke: frames and
// what they carry, without what encryption adds.
struct ConnectionTraffic {
  int rank = 0;  // the other
  std::size_t number = 0;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

// One context's port to all members of its world. Ranks are those of the world's view. Driven by the context's loop.
class MessagePort {
 public:
  virtual ~MessagePort() = default;
  virtual void set_receiver(MessageReceiver& receiver) noexcept = 0;

  // Queues a message. Messages of one sender, receiver and traffic class arrive in order. `pieces` stay untouched until `completion`
  // is told, or until the receiver does what it does only when it has all of them: what it has is not taken again. Never blocks and
  // never throws: failures reach the completion.
  virtual void post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                    SendCompletion& completion) noexcept = 0;

  // As post(), for a short message on the critical path: if nothing is queued before it, it is written at once and not
  // batched with later messages. `completion` may be called from inside.
  virtual void post_now(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                        SendCompletion& completion) noexcept {
    post(to_rank, header, pieces, completion);
  }

  // Held messages may be retried: on_header() is repeated for everything held from this rank, oldest first.
  virtual void release(int from_rank) noexcept = 0;

  // Cancels the sends that were posted with `completion`. The completion is called soon, never from inside, even if the
  // peer does not answer. The receiver gets each such message complete and unaltered, or not at all.
  virtual void withdraw(SendCompletion& completion) noexcept = 0;
  // Takes back the destination that the receiver gave for this header. on_placed() is called soon, never from inside,
  // even if the sender does not answer. The contents of the destination are then undefined.
  virtual void revoke(int from_rank, const MessageHeader& header) noexcept = 0;

  // The rank is known to be dead from another source (such as its agent): the port stops trying to reach it and calls
  // on_peer_lost() with `why` soon, never from inside, unless it was called already.
  virtual void lose(int rank, std::exception_ptr why) noexcept = 0;
  // Undoes a loss that on_peer_lost() has told: the rank is reached anew, and what is still on its way from before is dropped. Both
  // ends do so, with the same `epoch`, a higher one each time and never 0, before either sends. Not from inside a callback of this
  // port. False: the rank stays lost.
  virtual bool renew(int /*rank*/, std::uint32_t /*epoch*/) noexcept { return false; }

  // Encrypts all connections. Call before set_receiver(). Throws kUnsupported if the transport cannot.
  virtual void encrypt() {
    throw Error(Code::kUnsupported,
                "AIACC_ENCRYPT=data: the network transport of this job cannot encrypt its messages");
  }
  // Authenticates all connections without encrypting them: the network can read messages and cannot alter them. Throws as
  // encrypt() does.
  virtual void authenticate() {
    throw Error(Code::kUnsupported,
                "AIACC_ENCRYPT=integrity: the network transport of this job cannot authenticate its messages");
  }
  // Appends what each connection has carried, also those that broke; a network without connections has none.
  virtual void count_traffic(std::vector<ConnectionTraffic>& /*counted*/) const {}
  // Connections that were refused because they did not authenticate as part of this job.
  virtual std::uint64_t refused() const noexcept { return 0; }
  // The longest chunk of a long message. A more urgent class waits for one chunk at most: 42 µs at 100 Gb/s.
  static constexpr std::size_t kChunkBytes = 512 << 10;
  virtual std::size_t chunk_bytes() const noexcept { return kChunkBytes; }
  // How many chunks of a long message to post before the first is complete. With two, one connection stays busy while a
  // completion is on its way.
  static constexpr int kChunksOfOneConnection = 2;
  virtual int chunks_in_flight(int /*to_rank*/) const noexcept { return kChunksOfOneConnection; }
  // `listener` gets remarks about connections that a user should see, as sentences. Call before set_receiver().
  virtual void tell_remarks_to(std::function<void(const std::string&)> /*listener*/) {}
  // An operation of the latency class begins: for the time being, less urgent classes fill no queues on its way.
  virtual void note_latency() noexcept {}
  // Why this rank cannot be reached at present, as a sentence with its addresses; "" if no obstacle is known. For
  // reports about stalled operations.
  virtual std::string obstacle(int rank) const { return static_cast<void>(rank), std::string(); }

  // The path to this rank if it is broken; nullopt for a peer that is lost.
  virtual std::optional<BrokenPath> broken_path(int rank) const { return static_cast<void>(rank), std::nullopt; }

  // Orderly shutdown, before close(): returns when every peer that this rank communicated with has received all posted
  // messages and knows that this rank leaves in order, or after `limit`.
  virtual Task<void> leave(Duration limit, Stop& stop) = 0;

  // Stops all callbacks and all access to memory that is not the port's. Call before the receiver or a completion is
  // destroyed.
  virtual void close() noexcept = 0;
};

}  // namespace aiacc
