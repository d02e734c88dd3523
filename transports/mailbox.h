// Mailbox: matched messages between the members of groups, above any MessagePort. One a context.
//
// A message is matched by (group, sequence of the operation, tag, sender). Small ones travel eagerly, header and payload
// together; the others are offered, granted when the receiver has a place, and then sent in chunks:
//
//   sender                      receiver
//     kEager ──────────────────▶  posted? into place. else: stored, bounded by the credit the receiver gave
//     kOffer ──────────────────▶  posted? else: the header waits
//            ◀────────────────── kGrant
//     kData, kData … ──────────▶  into place
//
// A sender that knows of a message before it has it may offer it early (Exchange::announce).
//
// Eager bytes are limited by credit for each sender: a receiver stores at most kCreditBytes of what nobody asked for yet.
// A sender out of credit offers instead, so it never waits for credit; each header carries the receiver's current limit.
//
// Errors. Every message carries the fingerprint of its operation. If it differs from the receiver's own, both ends learn
// both descriptions (abort_notice.h) and the group ends with kMismatch. A lost peer ends every group it is a member of. An
// abort is relayed once by every member to its neighbours in a binomial graph, so it reaches all in ⌈log₂ n⌉ hops and
// survives dead relays (Angskun, Bosilca, Dongarra, ISPA 2007). An abort of one group touches no other.
//
// A transfer that ends with an error ends when the port has let go of its buffer, and not before.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/data/scratch_pool.h"
#include "base/intrusive_list.h"
#include "base/task/loop.h"
#include "base/view.h"
#include "transports/abort_notice.h"
#include "transports/call_note.h"
#include "transports/message.h"
#include "transports/past_calls.h"

namespace aiacc {

class Exchange;
class Transfer;

// What a member only receives in a group: nothing is to come from it then.
struct Receiving {
  static constexpr int kAnyRank = AbortNotice::kAnyRank;
  int from = kNoPeer;  // a rank of the group, or kAnyRank; kNoPeer: it does something else too, or nothing
  std::string call;    // as a sentence names it
};

// Told once for each group that ends, after its transfers were failed: the place to stop what else its operations wait for.
class MailboxObserver {
 public:
  virtual void group_aborted(std::uint64_t group, const std::exception_ptr& error) noexcept = 0;
  // Another member asks whether this rank only receives in the group.
  virtual Receiving receiving(std::uint64_t group) noexcept = 0;
  // What `rank` answered to Mailbox::ask_receiving().
  virtual void receiving_told(std::uint64_t group, int rank, const Receiving& said) noexcept = 0;

 protected:
  ~MailboxObserver() = default;
};

class Mailbox final : private MessageReceiver {
 public:
  // Larger messages are offered first. An offer costs two more latencies; an eager message that comes too early costs a copy,
  // and memory at the receiver until it is asked for. Over veth between two hosts, 64 KiB in 25 us eagerly and in 54 us after
  // an offer (bench/hosts); more would let a receiver store much where a thousand peers send at once.
  static constexpr std::size_t kEagerBytes = 64 << 10;
  static constexpr std::uint64_t kCreditBytes = 4 * kEagerBytes;
  // A more urgent class waits for one chunk at most: 42 µs at 100 Gb/s.
  static constexpr std::size_t kChunkBytes = 512 << 10;
  // Two keep the way out busy while the completion of the first is on its way.
  static constexpr int kChunksInFlight = 2;

  // `rank` is mine in `world`, whose ranks the port speaks of.
  Mailbox(Loop& loop, MessagePort& port, ViewPtr world, int rank);
  ~Mailbox();  // closes the port; no Exchange is left

  void set_observer(MailboxObserver* observer) noexcept { observer_ = observer; }
  Loop& loop() const noexcept { return loop_; }
  ScratchPool& scratch() noexcept { return scratch_; }  // for what arrives and is not the caller's

  // This rank is `rank` in `view` from now on. Implied by its first Exchange; joining early lets it relay aborts before.
  void join(const ViewPtr& view, int rank);
  // Ends the group on all members. Its transfers and later ones throw `error`; the first one stays.
  void abort(const ViewPtr& view, int rank, const std::exception_ptr& error);
  // Returns when the system has taken what was said of aborts, or after a second: for a rank that does something else then.
  Task<void> tell_aborts(Stop& stop);
  // What ended the group, or null.
  std::exception_ptr error_of(std::uint64_t group) const noexcept;
  // This rank has left the group: what still comes for it is dropped. It has begun the group's collectives up to `last`;
  // whoever waits for a later one is told.
  void forget(std::uint64_t group, std::uint64_t last = ~std::uint64_t{0}) noexcept;

  // Messages of pairs (Exchange::kPairSequence) that nobody has asked for yet: what a receive from any rank chooses among.
  struct Unasked {
    int from;  // rank in the group
    std::uint64_t sequence;
  };
  std::vector<Unasked> unasked(std::uint64_t group, std::uint32_t tag);
  // While it lives, `news` is set whenever such a message comes for the group, which this rank has joined.
  class Watch : public ListNode<Watch> {
   public:
    Watch(Mailbox& mailbox, std::uint64_t group, Event& news) : news_(news) {
      mailbox.group(group).watches.push_back(*this);
    }

   private:
    friend class Mailbox;
    Event& news_;
  };

  // Leaves in order. Returns when every member that this rank has exchanged messages with leaves too, so that nobody needs
  // an answer of this rank any more; or is lost, which ends no group from now on. If the world was aborted its members may
  // have long to go: then a second, or until they have heard what this rank had to say. The world has no operation any more.
  Task<void> leave(Stop& stop);

  // What is told of a call that a member never makes, because it has freed the group.
  static std::string freed_too_early(int rank, const std::string& call, std::uint64_t sequence, int freed);

  // Ranks of the group whose messages this operation waits for now, ascending: for the sentence of a deadline.
  std::vector<int> waited_for(std::uint64_t group, std::uint64_t sequence);

  // Begins to find out who holds up this operation: asks the rank it waits for whom that waits for, and so on. Answers
  // carry what the asked rank found itself, so a chain of n waits is followed in about log₂ n questions when all ask.
  void investigate(std::uint64_t group, std::uint64_t sequence) noexcept;
  // Asks all members of other hosts whether they have begun this operation, for a sentence that names all who have not. As
  // many messages as there are members: for operations whose time is nearly over.
  void survey(std::uint64_t group, std::uint64_t sequence) noexcept;
  // Of the members on other hosts those that have not answered it or have not begun; none if nobody was asked.
  std::vector<int> not_begun(std::uint64_t group, std::uint64_t sequence) noexcept;
  // Who it is, as far as is known now.
  struct Suspicion {
    enum class Kind : std::uint8_t { kNobody, kSilent, kNotBegun, kFinished, kWorking, kEachOther, kNoGroup, kFreed };
    Kind kind = Kind::kNobody;
    int rank = kNoPeer;
    std::string text() const;  // "rank 3 does not answer"
  };
  Suspicion suspicion(std::uint64_t group, std::uint64_t sequence) noexcept;

  // Asks a member of another host whether it only receives; the observer is told the answer.
  void ask_receiving(std::uint64_t group, int rank) noexcept;
  // Something for a receive of the group is on its way.
  bool arriving(std::uint64_t group) noexcept;

 private:
  friend class Exchange;
  friend class Transfer;
  class Part;
  class SendPart;
  class RecvPart;

  struct Early {  // a message that nobody has asked for yet
    int from;
    MessageHeader header;
    std::vector<std::byte> bytes;
    bool placed;
  };
  struct Bucket {  // of those whose (sequence, tag, peer) hash alike
    IntrusiveList<Part> parts;
    std::list<Early> early;
  };
  static constexpr std::size_t kBuckets = 32;

  struct Group final : Timer {  // the timer: an answer to a question did not come
    Group(Mailbox& owner, std::uint64_t group) noexcept : mailbox(owner), id(group) {}
    void expired() noexcept override { mailbox.no_answer(*this); }
    Bucket& bucket(std::uint64_t sequence, std::uint32_t tag, int peer) noexcept;
    Early& keep(Early early);
    // A message of this operation with another fingerprint, that nobody has asked for yet; or null.
    const Early* early_unlike(std::uint64_t sequence, std::uint64_t fingerprint) noexcept;

    Mailbox& mailbox;
    std::uint64_t id;
    ViewPtr view;  // null until this rank joins
    int rank = -1;
    std::exception_ptr error;  // set: aborted
    AbortNotice notice;        // what is relayed
    bool relayed = false;
    std::string unanswered;  // of a pending question: the sentence in case no answer comes
    int asked = kNoPeer;
    IntrusiveList<Exchange> exchanges;
    IntrusiveList<Watch> watches;
    PastCalls past;
    std::array<Bucket, kBuckets> buckets;
    std::bitset<kBuckets>
        kept;  // buckets that may have something early: as a rule there are few, and each operation asks
  };

  struct Peer {
    std::uint64_t eager_sent = 0;           // bytes, ever
    std::uint64_t may_send = kCreditBytes;  // bytes, ever: the peer's last word
    std::uint64_t stored = 0;               // bytes in Early entries, now
    std::uint64_t freed = 0;                // bytes, ever: eager payloads that occupy nothing any more
    bool holds = false;                     // the port holds something because of `stored`
    bool told = false;                      // that this rank leaves
    bool heard = false;                     // and has heard it
    bool left = false;                      // it leaves itself
    std::exception_ptr lost;
  };

  struct Notice final : SendCompletion {  // an abort notice on its way out
    void sent(std::exception_ptr) noexcept override { mailbox->told(self); }
    Mailbox* mailbox = nullptr;
    std::list<Notice>::iterator self;
    std::vector<std::byte> bytes;
  };
  struct Ignored final : SendCompletion {  // of headers without payload: a lost peer is told otherwise
    void sent(std::exception_ptr) noexcept override {}
  };

  Placement on_header(int from, const MessageHeader& header) noexcept override;
  void on_placed(int from, const MessageHeader& header) noexcept override;
  void on_peer_lost(int rank, std::exception_ptr error) noexcept override;

  Placement place_eager(Group& group, int from, const MessageHeader& header);
  void eager_placed(Group& group, int from, const MessageHeader& header);
  void offered(Group& group, int from, const MessageHeader& header);
  void granted(Group& group, int from, const MessageHeader& header);
  void notice_came(int from, const MessageHeader& header);
  void tell_watches(Group& group, const MessageHeader& header) noexcept;
  RecvPart* find_recv(Group& group, int from, const MessageHeader& header) noexcept;
  bool sound(int from, const MessageHeader& header) const noexcept;
  void free_credit(int from, std::uint64_t bytes) noexcept;

  Group& group(std::uint64_t id);
  Group* find_group(std::uint64_t id) noexcept;
  int world_rank(const Group& group, int rank) const noexcept;
  int group_rank(const Group& group, int world_rank) const noexcept;
  MessageHeader header(const Group& group, MessageKind kind, int to_world_rank) noexcept;
  void post(int to, const MessageHeader& header, const Buffer& piece, SendCompletion& completion,
            bool now = false) noexcept;
  void post_header(int to, const MessageHeader& header) noexcept;
  void post_notice(Group& group, int to_world_rank, std::uint64_t sequence, const AbortNotice& notice) noexcept;

  void end_group(Group& group, const AbortNotice& notice, std::exception_ptr error) noexcept;
  void relay(Group& group) noexcept;
  bool disagrees(Group& group, int from, const MessageHeader& header);
  void ask(Group& group, int from, const MessageHeader& header, const CallNote& mine);
  void answer(Group& group, int from, const MessageHeader& header, const AbortNotice& question);
  void end_by_disagreement(Group& group, int from, std::uint64_t sequence, const std::string& mine,
                           const std::string& theirs);
  void no_answer(Group& group) noexcept;
  Exchange* find_exchange(Group& group, std::uint64_t sequence) noexcept;
  int awaited(Group& group, std::uint64_t sequence) noexcept;
  void suspect(Group& group, Exchange& exchange, int rank) noexcept;
  void ask_where(Group& group, Exchange& exchange, int rank) noexcept;
  const CallNote* other_call(Group& group, std::uint64_t sequence, std::uint64_t fingerprint) noexcept;
  void tell_whereabouts(Group& group, int from, std::uint64_t sequence, const AbortNotice& question) noexcept;
  void tell_freed(std::uint64_t group, int from, std::uint64_t sequence) noexcept;
  void end_by_freeing(Group& group, const Exchange& exchange, int freed) noexcept;
  void tell_receiving(Group& group, int from) noexcept;
  void whereabouts_came(Group& group, int from, std::uint64_t sequence, const AbortNotice& notice) noexcept;

  Task<void> say_leaving(Stop& stop);
  void tell_leaving(int rank) noexcept;
  void peer_leaves(int rank) noexcept;
  bool needed_by(int rank) noexcept;
  bool anybody_stays() noexcept;

  Loop& loop_;
  MessagePort& port_;
  ViewPtr world_;
  int rank_;
  ScratchPool scratch_;
  MailboxObserver* observer_ = nullptr;
  std::map<std::uint64_t, Group> groups_;
  // The last groups that this rank left, so that what still comes for them begins nothing anew. Few messages can be that
  // late: notices of an abort, questions, and what a member sent that nobody ever asked for.
  static constexpr std::size_t kForgotten = 4096;
  std::map<std::uint64_t, std::uint64_t> forgotten_;  // the last collective that this rank began there
  std::deque<std::uint64_t> forgotten_in_order_;
  std::map<int, Peer> peers_;  // those this rank has exchanged messages with
  struct Incoming {
    int from;
    MessageHeader header;
    std::vector<std::byte> bytes;
  };
  std::list<Incoming> incoming_;  // notices that are being placed
  std::list<Notice> outgoing_;
  void told(std::list<Notice>::iterator notice) noexcept;
  Ignored ignored_;
  bool leaving_ = false;
  Event news_;  // of those that leave
};

}  // namespace aiacc
