// Mailbox: matched messages between the members of groups, above any MessagePort. A Messenger has one (messenger.h).
//
// A message is matched by (group, sequence of the operation, tag, sender). Small ones travel eagerly, header and payload
// together. For a larger one the sender posts an RTS (request to send), the receiver answers with a CTS (clear to send) once
// the receive is posted, and the payload follows in chunks:
//
//   sender                      receiver
//     kEager ──────────────────▶  receive posted: placed. otherwise: stored, bounded by the receiver's credit
//     kRts ────────────────────▶  receive not posted: the header waits
//            ◀────────────────── kCts
//     kData, kData … ──────────▶  into place
//
// A sender that knows of a message before it has its bytes may post the RTS early (Exchange::send_early_rts).
//
// Eager bytes are limited by credit for each sender: a receiver stores at most kCreditBytes of unexpected messages from
// each sender, and kSwapCreditBytes from kMostSwapPeers of them (transports/peers.h): with a thousand peers 250 MiB, and 12 MiB more.
// A sender out of credit posts an RTS instead, so it never waits for credit; each header carries the receiver's current limit.
//
// Every message carries the fingerprint of its operation. What differs from the receiver's own call is not matched, and the
// observer is told. How a group ends, and what is said about it, is transports/control's.
//
// A transfer that fails ends only after the port has released its buffer.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/task/loop.h"
#include "base/view.h"
#include "transports/last_calls.h"
#include "transports/match_group.h"
#include "transports/message.h"
#include "transports/peers.h"
#include "transports/unexpected_observer.h"

namespace aiacc {

class PostedReceive;

// What matching finds and does not decide. Ranks are those of the world.
class MatchObserver {
 public:
  virtual void joined(MatchGroup& group) noexcept = 0;
  // A message of that rank belongs to another call than this rank's, which is `mine`.
  virtual void calls_differ(MatchGroup& group, int from, const MessageHeader& header,
                            const CallNote& mine) noexcept = 0;
  // A message of that rank is not as long as its receive expects.
  virtual void lengths_differ(MatchGroup& group, int from, const std::string& sentence) noexcept = 0;

 protected:
  ~MatchObserver() = default;
};

class Mailbox final {
 public:
  // Larger messages begin with an RTS, which costs two more latencies; an unexpected eager message costs a copy,
  // and memory at the receiver until it is asked for. Over veth between two hosts, 64 KiB in 25 us eagerly and in 54 us after
  // an RTS (bench/hosts); more would let a receiver store much where a thousand peers send at once.
  static constexpr std::size_t kEagerBytes = 64 << 10;
  // Of two members of a collective that send each other something in one step, each has most probably posted its receive, and
  // what it sends brings the other one's credit back.
  static constexpr std::size_t kSwappedEagerBytes = 128 << 10;
  // The same in a collective of at most Peer::kSwapCreditBytes, whose messages are few. The long ones are of the class of data.
  static constexpr std::size_t kLongSwapBytes = 256 << 10;
  // Shorter ones do not use up the usual credit while more of it is on its way.
  static constexpr std::size_t kLeastCreditedSwap = 4 << 10;
  static constexpr std::uint64_t kCreditBytes = Peer::kCreditBytes;
  static_assert(kCreditBytes == 4 * kEagerBytes);
  static constexpr std::size_t kChunkBytes = MessagePort::kChunkBytes;

  // `rank` is this rank in `world`; the port's ranks are those of `world`.
  Mailbox(Loop& loop, MessagePort& port, ViewPtr world, int rank, Peers& peers, MatchObserver& observer);

  Loop& loop() const noexcept { return loop_; }

  // --- groups ------------------------------------------------------------------------------------------------------------
  // So many groups that this rank left last are known. Their messages are counted for the last of them that had at most so many pairs
  // and tags together: 384 KiB.
  static constexpr std::size_t kForgotten = 4096;
  static constexpr std::size_t kForgottenPairs = 16 << 10;
  // Registers this rank as `rank` of `view`. The first Exchange does so implicitly; joining earlier lets this rank
  // relay aborts before its first operation.
  void join(const ViewPtr& view, int rank);
  // This rank makes no call in the group but those.
  void say_last(std::uint64_t group, LastCalls last) noexcept;
  // This rank has left the group: later messages for it are dropped. Without say_last() its last collective was `last`.
  void forget(std::uint64_t group, std::uint64_t last = ~std::uint64_t{0}) noexcept;
  // Of a group that this rank left not long ago; null of any other.
  const LastCalls* left(std::uint64_t group) const noexcept;
  // The error that ended the group, or null.
  std::exception_ptr error_of(std::uint64_t group) const noexcept;
  // Fails all transfers of a group whose error is set.
  void end(MatchGroup& group) noexcept;

  MatchGroup& group(std::uint64_t id) { return groups_.try_emplace(id, id).first->second; }
  MatchGroup* find_group(std::uint64_t id) noexcept;
  bool is_world(const MatchGroup& group) const noexcept { return group.view == world_; }
  const std::map<std::uint64_t, MatchGroup>& groups() const noexcept { return groups_; }
  int world_rank(const MatchGroup& group, int rank) const noexcept;
  int group_rank(const MatchGroup& group, int world_rank) const noexcept;
  // The operation that world rank `from` identifies so.
  WireId seen_from_here(const MatchGroup& group, int from, const WireId& operation) const noexcept;

  // --- what waits --------------------------------------------------------------------------------------------------------
  // For receives from any rank: the sender (its rank in the group) of the first unexpected point-to-point message with this tag
  // for which is_next(rank, sequence) is true; -1 if there is none. Looks at one message, unless some have overtaken others.
  template <class IsNext>
  int unexpected_from(std::uint64_t id, std::uint32_t tag, IsNext&& is_next) noexcept {
    MatchGroup* known = find_group(id);
    if (known == nullptr || known->unexpected.empty()) return -1;
    UnexpectedMessage* found = known->early_by_tag.find(hash_of_tag(tag), [&](const UnexpectedMessage& one) {
      return one.header.tag() == Tag(tag) && is_next(group_rank(*known, one.from), one.header.sequence);
    });
    return found == nullptr ? -1 : group_rank(*known, found->from);
  }
  // Hears of the group's unexpected messages from now on; null: nobody does. This rank must have joined the group.
  void observe_unexpected(std::uint64_t id, UnexpectedObserver* observer) { group(id).observer = observer; }
  // The ranks of the group whose messages this operation waits for, ascending; for the error at a deadline.
  std::vector<int> waited_for(std::uint64_t group, const WireId& operation);
  // The groups with a transfer that waits for this rank of the world, in either direction.
  std::vector<std::uint64_t> groups_waiting_for(int rank);
  bool waits_for(int rank) noexcept;  // also a transfer that is being failed
  // Whether a message for one of the group's receives is arriving.
  bool arriving(std::uint64_t group) noexcept;

  // --- the port's receiver, for kinds eager, RTS, CTS and data --------------------------------------------------------------
  MessageReceiver::Placement on_header(int from, const MessageHeader& header) noexcept;
  void on_placed(int from, const MessageHeader& header) noexcept;
  void peer_lost(int rank) noexcept;

  // --- posted sends and receives (transports/exchange.h) ----------------------------------------------------------------------
  MessagePort& port() noexcept { return port_; }
  MatchObserver& observer() noexcept { return observer_; }
  Peer& peer(int rank) { return peers_[rank]; }
  MessageHeader header(const MatchGroup& group, MessageKind kind, int to_world_rank) noexcept;
  void post(int to, const MessageHeader& header, const Buffer& piece, SendCompletion& completion,
            bool now = false) noexcept;
  void post_header(int to, const MessageHeader& header) noexcept;
  void free_credit(int from, std::uint64_t bytes) noexcept;
  // This rank and that one send each other messages of more than kLeastCreditedSwap.
  void swaps_with(int rank) noexcept;
  bool has_credit(int to, std::uint64_t bytes) noexcept {
    const Peer& its = peers_[to];
    return bytes <= kEagerBytes && its.eager_sent + bytes <= its.may_send;
  }
  // Copies the payload of an unexpected message, which is forgotten then.
  void take_unexpected(MatchGroup& group, UnexpectedMessage& unexpected, const Buffer& into) noexcept;

  // --- messages without an operation (transports/message_record.h) ------------------------------------------------------------
  // Takes back the memory that the port fills for it.
  void revoke_placing(const ReceiveRecord& record) noexcept;
  // What the port fills its memory with belongs to somebody else now: the header, if there is such.
  std::optional<MessageHeader> take_placing(const ReceiveRecord& record) noexcept;
  // The message of this rank that `operation` means, posted without an operation, or the oldest one if it has the same number;
  // null if there is none.
  const MessageRecord* record_of(MatchGroup& group, const WireId& operation, bool exactly) const noexcept;

 private:
  // A message that the port places into the memory of a record.
  struct Placing {
    ReceiveRecord* record;
    int from;
    MessageHeader header;
  };
  struct Ignored final : SendCompletion {  // for headers without payload: the loss of a peer is reported elsewhere
    void sent(std::exception_ptr) noexcept override {}
  };

  MessageReceiver::Placement place_eager(MatchGroup& group, int from, const MessageHeader& header);
  void eager_placed(MatchGroup& group, int from, const MessageHeader& header);
  void rts_came(MatchGroup& group, int from, const MessageHeader& header);
  void cts_came(MatchGroup& group, int from, const MessageHeader& header);
  void tell_observer(MatchGroup& group, const MessageHeader& header) noexcept;
  bool disagrees(MatchGroup& group, int from, const MessageHeader& header);
  void drop_placed(MatchGroup& group) noexcept;
  void keep_last(MatchGroup& left, std::uint64_t last);
  MessageReceiver::Placement place_for(ReceiveRecord& record, int from, const MessageHeader& header);
  bool record_placed(int from, const MessageHeader& header) noexcept;

  Loop& loop_;
  MessagePort& port_;
  ViewPtr world_;
  int rank_;
  Peers& peers_;
  MatchObserver& observer_;
  std::map<std::uint64_t, MatchGroup> groups_;
  // The groups that this rank left last, so that late messages do not recreate their state. Few messages can be late:
  // abort notices, questions, and messages that were never received.
  std::map<std::uint64_t, LastCalls> forgotten_;
  std::deque<std::uint64_t> forgotten_in_order_;
  std::size_t forgotten_pairs_ = 0;  // what they have in LastCalls::pairs
  Ignored ignored_;
  std::vector<Placing> placing_;  // seldom more than one for a peer
};

}  // namespace aiacc
