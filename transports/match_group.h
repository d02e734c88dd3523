// MatchGroup: what the mailbox knows of one group: the operations in progress, their posted sends and receives, and
// unexpected messages, each found by index.
#pragma once

#include <cstdint>
#include <exception>
#include <iterator>
#include <list>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "base/intrusive_list.h"
#include "base/view.h"
#include "transports/call_note.h"
#include "transports/last_calls.h"
#include "transports/match_index.h"
#include "transports/message.h"
#include "transports/message_record.h"
#include "transports/past_calls.h"
#include "transports/unexpected_observer.h"
#include "transports/wire_id.h"

namespace aiacc {

class Exchange;
class PostedRequest;

// No receive for it is posted yet. Indexed by its matching key, and by the operation's number as well if it belongs to a
// collective, by its tag if not.
inline constexpr int kByMatch = 0;
inline constexpr int kByCall = 1;
inline constexpr int kByTag = 2;
inline std::uint64_t hash_of_tag(std::uint32_t tag) noexcept { return Hash64().add(std::uint64_t{tag}).value(); }
struct UnexpectedMessage : MatchNode<UnexpectedMessage, kByMatch>,
                           MatchNode<UnexpectedMessage, kByCall>,
                           MatchNode<UnexpectedMessage, kByTag> {
  UnexpectedMessage(int its_from, const MessageHeader& its_header, bool has_payload)
      : from(its_from), header(its_header), bytes(has_payload ? its_header.length : 0), placed(!has_payload) {}
  int from;
  MessageHeader header;
  std::vector<std::byte> bytes;
  bool placed;
  std::list<UnexpectedMessage>::iterator self;
};

struct MatchGroup {
  explicit MatchGroup(std::uint64_t group) noexcept : id(group) {}

  UnexpectedMessage& keep(int from, const MessageHeader& header, bool has_payload);
  void drop(UnexpectedMessage& one) noexcept { unexpected.erase(one.self); }
  // The first unexpected message of this kind for (sequence, tag, sender), or null. `placed`: for an eager message,
  // whether its payload has been placed.
  UnexpectedMessage* find_early(MessageKind kind, bool placed, std::uint64_t sequence, Tag tag, int from) noexcept;
  // An unexpected message of this operation with another fingerprint, or null.
  const UnexpectedMessage* unexpected_unlike(std::uint64_t sequence, std::uint64_t fingerprint) noexcept;
  Exchange* find(const WireId& operation) noexcept;
  // A message whose call is no operation; `peer` is a rank of the world.
  MessageRecord* find_record(MessageRecord::Kind kind, std::uint64_t sequence, Tag tag, int peer) const noexcept;
  PostedRequest* find(const MatchIndex<PostedRequest>& index, int from, const MessageHeader& header) const noexcept;
  // Of a collective: this rank has made it, and it waits here for its turn, without an Exchange.
  bool is_queued(const WireId& operation) const noexcept {
    return !operation.is_pair() && (queued.contains(operation.sequence) || in_turn.contains(operation.sequence));
  }
  // What this rank called as that collective, if it was something else than the fingerprint says; null otherwise.
  const CallNote* other_call(std::uint64_t sequence, std::uint64_t fingerprint) noexcept;
  template <class Fn>
  void for_each_exchange(Fn&& fn) {
    calls.for_each(fn);
    messages.for_each(fn);
  }

  std::uint64_t id;
  ViewPtr view;  // null until this rank joins
  int rank = -1;
  std::exception_ptr error;  // set once the group has ended
  struct Queued {            // collectives between these numbers that have no Exchange yet
    std::uint64_t first = 1;
    std::uint64_t last = 0;
    bool contains(std::uint64_t sequence) const noexcept { return sequence >= first && sequence <= last; }
  };
  Queued queued;                               // of calls without an operation
  Queued in_turn;                              // of operations
  std::uint64_t newest_call = 0;               // that has had an Exchange
  IntrusiveList<Exchange> calls;               // collectives in progress, the oldest first
  IntrusiveList<Exchange> messages;            // point-to-point messages in progress
  MatchIndex<Exchange> exchanges;              // both, by their WireId
  IntrusiveList<MessageRecord> records;        // posted, without an Exchange, the oldest first
  MatchIndex<MessageRecord> records_by_match;  // by (sequence, tag, peer)
  UnexpectedObserver* observer = nullptr;
  PastCalls past;
  std::optional<LastCalls> last_calls;      // set once this rank makes no more
  MatchIndex<PostedRequest> sends;          // in progress, by (sequence, tag, receiver)
  MatchIndex<PostedRequest> receives;       // posted, by (sequence, tag, sender)
  int arriving = 0;                         // receives for which data has arrived
  std::list<UnexpectedMessage> unexpected;  // in order of arrival
  MatchIndex<UnexpectedMessage, kByMatch> early_by_match;
  MatchIndex<UnexpectedMessage, kByCall> early_by_call;
  MatchIndex<UnexpectedMessage, kByTag> early_by_tag;
};

}  // namespace aiacc
