// IntraMessages: point-to-point messages between members of a group on one host, matched by (sender, tag) in call order.
//
// A sender copies each message into its own slice, appends it to the list for that receiver, and publishes the
// number of messages; then the send is complete. The receiver walks the list, leaves unexpected messages where they
// are, copies those with a posted receive, and publishes how many it no longer needs; the sender frees their memory when
// it needs some, and that of a long one at its next send. So no member stores into another's memory, and no message blocks
// another one: a send needs only memory. One copy in and one out: 4S bytes.
//
// Short messages are allocated consecutively in slabs, because each allocation from the segment checks the memory
// limits. Messages to one member are freed in the order of sending, so its slabs form a queue without holes. A message that
// follows the last one directly needs no link: a link would be a store into a line that the receiver reads. One of at most
// kMessageAlignment - sizeof(Header) bytes moves one cache line.
//
// A message is lent (Loans) if it is longer than kLongestCopied, or long where it would take more memory than is kept for such messages,
// if its send can wait and the receiver can read this member's memory: its payload stays where it is, and the send is complete when
// the receiver has copied it from there, or this member has copied all that the receiver has not.
//
// Any other send completes in place, and so does a receive whose message is there (send_now, recv_now). Else the receive waits in a
// queue of its sender and tag: as a coroutine (recv), or as a small record whose message is copied when it is found (post).
// One listener for each sender, a coroutine that lives as long as this object, watches the sender's count while anybody waits,
// and gives each message to the oldest receive that waits for its tag: a message costs O(1), however many receives and
// messages wait.
//
// A member's lines, indexed by the other member: `first` (offset plus 1 of the first message to it), `posted` (the
// number of messages to it), `taken` (the number of messages from it that are not needed any more, without those after
// a gap), `reads` (0: this member cannot read its memory; otherwise the number of lent messages that were read, plus 1), and the
// marks of those, and `progress` (Loans). One more line holds the recv in which the member has waited for long, for the detection of
// cyclic receives.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/task/scope.h"
#include "base/task/turn_queue.h"
#include "collectives/intra/loans.h"
#include "collectives/intra/message_memory.h"
#include "collectives/intra/tag_queues.h"
#include "collectives/plain_call.h"
#include "transports/host/host_domain.h"
#include "transports/unexpected_observer.h"

namespace aiacc {

class IntraMessages final : private Root::Owner {
  struct Incoming;

 public:
  // A receive that waits for its message.
  class Receiver : public TagNode<Receiver> {
   protected:
    explicit Receiver(std::uint32_t tag) noexcept : TagNode<Receiver>(tag) {}
    ~Receiver() = default;

   private:
    friend class IntraMessages;
    bool posted_ = false;       // a Posted, not a coroutine's
    std::uint8_t type_ = 0;     // of a Posted, as what follows
    std::uint16_t member_ = 0;  // the sender
    std::uint32_t count_ = 0;
    std::uint32_t note_ = 0;
    std::byte* into_ = nullptr;
  };
  // One without a coroutine. It costs no more than its place in the queue; who posted it is told of its end.
  class Posted : public Receiver {
   public:
    class Owner {
     public:
      // Its message is in its memory, or why it is not. It waits no more. On the lane's thread, from inside any call of this object:
      // this one must not stop others, resume a coroutine, or make calls on it.
      virtual void received(Posted& receive, std::exception_ptr error) noexcept = 0;
      // The same of several, whose messages all are there.
      virtual void received_all(std::span<Posted* const> receives) noexcept {
        for (Posted* const each : receives) received(*each, nullptr);
      }

     protected:
      ~Owner() = default;
    };
    // For a call that prepare_to_post() admitted.
    Posted(int member, const PlainCall& call, const Buffer& into) noexcept : Receiver(call.tag) {
      posted_ = true;
      type_ = static_cast<std::uint8_t>(call.type);
      member_ = static_cast<std::uint16_t>(member);
      count_ = static_cast<std::uint32_t>(call.count);
      into_ = into.data;
    }
    bool waits() const noexcept { return queued(); }
    // What was called.
    PlainCall plain(const IntraMessages& messages) const noexcept;
    Buffer into() const noexcept;
    // The owner's.
    std::uint32_t note() const noexcept { return note_; }
    void set_note(std::uint32_t note) noexcept { note_ = note; }
  };

  // `domain_ranks` and `ranks` are those of the members on this host, ascending; `me` is this one's index. Without a `program`
  // this rank always waits for its operations.
  IntraMessages(HostDomain& domain, std::uint64_t view_id, std::vector<int> domain_ranks, std::vector<int> ranks,
                int me, const Loans::Program* program = nullptr);
  ~IntraMessages();
  IntraMessages(const IntraMessages&) = delete;
  IntraMessages& operator=(const IntraMessages&) = delete;

  // Returns when every member has claimed its lines. Call before any message.
  Task<void> open(Stop& stop);

  // Whether the rank at the other end of a message is on this host.
  bool reaches(int rank) const noexcept { return member_of(rank) >= 0; }
  // Its index; -1 if it is not.
  int member_of(int rank) const noexcept {
    if (!consecutive_) return search_member(rank);
    const int at = rank - ranks_.front();
    return at >= 0 && at < members() ? at : -1;
  }
  Task<void> send(Operation& op);
  Task<void> recv(Operation& op);

  // The same for a caller that cannot wait, with the member at the other end. False if the call would have to wait, or fails; then
  // nothing has happened. The buffers are in host memory.
  inline bool send_now(int member, const PlainCall& call, const Buffer& send) noexcept;
  // Whether send() would lend this message, so that send_now() had better leave it.
  bool lends(int member, const Buffer& send) noexcept {
    return send.bytes > kLongestInSlab && wants_to_lend(to(member), send);
  }
  bool recv_now(int member, const PlainCall& call, const Buffer& recv) noexcept;
  // The same for a recv that may wait a little: `wait` is called as long as no further message of that member has come, and says whether
  // it goes on to wait.
  template <class Wait>
  bool recv_soon(int member, const PlainCall& call, const Buffer& recv, Wait&& wait) noexcept;

  // For tests: lends each long message that can be lent.
  void keep_no_place() noexcept { memory_.keep_no_place(); }

  // For a recv: whether nothing but its message is missing: recv_now() would leave it, and post() can take it.
  inline bool only_waits(int member, const PlainCall& call) noexcept;
  // For a recv that recv_now() left, into host memory: whether post() can take it.
  bool prepare_to_post(int member, const PlainCall& call) noexcept;
  // The receive waits from now on; `owner` hears of its end, and is the same for all of an object.
  inline void post(Posted& receive, Posted::Owner& owner) noexcept;
  // Whether a receive waits for a message that this member, which sends nothing any more, has not sent.
  bool waits_for_more(int member) noexcept {
    const Incoming& its = from(member);
    return its.waiting > 0 && its.posted->load(std::memory_order_acquire) == its.seen;
  }
  // It ends without a message.
  void withdraw(Posted& receive) noexcept;

  // For a receive from any rank: the first rank, counted from `first`, with an unexpected message of this tag; -1 if
  // there is none.
  int find_unexpected(std::uint32_t tag, int first);
  // While it lives, it listens to all members, and `observer` hears of messages that no receive waits for. All of a
  // post have the same observer.
  class AnySource {
   public:
    AnySource(IntraMessages& post, UnexpectedObserver& observer);
    ~AnySource();
    AnySource(const AnySource&) = delete;
    AnySource& operator=(const AnySource&) = delete;

   private:
    IntraMessages& messages_;
  };
  // States that this member has been doing nothing but receive for a while: `call` is its recv. Null withdraws the
  // statement.
  void state_receiving(const CallSummary* call) noexcept;
  // The statement of the member with that rank, which must be on this host; nullopt if it made none.
  std::optional<CallSummary> receiving_of(int rank) const noexcept;
  int members() const noexcept { return static_cast<int>(ranks_.size()); }
  int me() const noexcept { return me_; }

 private:
  // Precedes each message. The sender writes `next` before it publishes the next message, if that does not follow directly.
  struct Header {
    std::atomic<std::uint64_t> next{0};  // offset plus 1
    std::uint64_t bytes = 0;
    std::uint64_t fingerprint = 0;
    std::uint32_t tag = 0;
    std::uint32_t type = 0;
  };
  static_assert(sizeof(Header) == 32);
  static constexpr std::uint32_t kLent = std::uint32_t{1} << 31;  // in its type: a LoanNote follows, and no payload
  static constexpr std::uint64_t kMessageAlignment = 64;
  static_assert(sizeof(Header) + sizeof(LoanNote) <= kMessageAlignment);
  static std::size_t bytes_behind(const Header& message) noexcept {
    return (message.type & kLent) != 0 ? sizeof(LoanNote) : message.bytes;
  }
  // Longer messages get a range of their own, or are lent.
  static constexpr std::uint64_t kLongestInSlab = 64 << 10;
  // So long ones are lent also when there is place: in the caches there is none for both copies.
  static constexpr std::uint64_t kLongestCopied = 1 << 20;
  // What a message takes in a slab.
  static constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
    return (bytes + kMessageAlignment - 1) / kMessageAlignment * kMessageAlignment;
  }
  // Messages follow one another in memory, each in a cache line that the other end had last: an end that waited for each would take
  // several times as long for a short one. The line of the one that comes so many later:
  static constexpr std::uint64_t kPrefetched = 4 * kMessageAlignment;
  // What both ends of a message agree on, and its hash.
  struct Shape {
    DType type = DType::kFloat32;
    Codec codec = Codec::kNone;
    std::uint64_t count = 0;
    std::uint64_t fingerprint = 0;  // 0: of none
  };

  struct Slab {
    HostRange range;
    std::byte* memory = nullptr;
    std::uint64_t filled = 0;
    std::size_t messages = 0;  // number of messages in it
  };
  // Messages that follow one another: any number in slabs, or one in a range of its own.
  struct Run {
    std::size_t messages = 1;
    bool in_slabs = true;
    HostRange own = {};
  };
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  struct Outgoing {  // messages to one member
    explicit Outgoing(int to) : member(to) {}
    int member;
    const std::atomic<std::uint64_t>* taken = nullptr;  // the receiver's word
    FlagRef posted_here;                                // this member's
    TurnQueue turns;
    std::uint64_t posted = 0;
    std::uint64_t freed = 0;
    std::deque<Run> runs;    // messages freed .. posted - 1, and one that is being written
    std::deque<Slab> slabs;  // the last is being filled
    std::uint64_t slab_bytes = 0;
    std::size_t own_ranges = 0;       // runs that are not in slabs
    std::byte* last = nullptr;        // that was posted
    std::uint64_t behind = kNowhere;  // where the next one begins if it follows that directly
    // For a message that follows others in the last slab: those, if any can (place_behind).
    Run* run = nullptr;
    Slab* slab = nullptr;
    std::optional<Loans> loans;
  };
  struct Arrived {
    std::uint64_t number = 0;
    std::uint64_t offset = 0;
  };
  class MatchAwait;
  struct Unexpected : TagNode<Unexpected> {
    Arrived message;
  };
  struct Incoming {  // messages from one member
    Incoming(int from, Loop& loop) : member(from), needed(loop) {}
    int member;
    std::span<const std::byte> slice;                     // the sender's memory
    const std::atomic<std::uint64_t>* posted = nullptr;   // the sender's word
    std::atomic<std::uint64_t>* taken_here = nullptr;     // this member's
    FlagRef reads_here;                                   // this member's, as its marks
    std::atomic<std::uint64_t>* progress_here = nullptr;  // this member's
    std::uint64_t reads = 0;                              // what it says
    std::uint64_t seen = 0;                               // number of messages read so far
    std::uint64_t last = 0;                               // offset of the last of them
    const Header* last_header = nullptr;                  // the same where it is mapped here
    std::uint64_t taken = 0;
    std::uint64_t told = 0;  // of these the sender knows
    // Of the messages from `taken` on, and of some to come; empty or too short while only the first of them came.
    std::deque<char> finished;
    TagQueues<Receiver> receives;    // without a message
    TagQueues<Unexpected> messages;  // without a receive; a tag is in one of them at most
    std::size_t waiting = 0;         // receives
    Event needed;                    // set when the listener has somebody to listen for
    std::optional<Stop> listens;     // while it listens
    std::exception_ptr broken;       // why the listener ended
    std::optional<Root> listener;
  };
  enum Table : std::uint32_t { kFirst, kPosted, kTaken, kReads, kProgress, kTables };
  static constexpr std::uint32_t kWordsPerLine = 16;

  std::uint32_t lines_per_table() const noexcept {
    return (static_cast<std::uint32_t>(domain_ranks_.size()) + kWordsPerLine - 1) / kWordsPerLine;
  }
  // One line of the statement, behind the tables, and then the marks.
  std::uint32_t line_count() const noexcept {
    const std::uint32_t marks = static_cast<std::uint32_t>(domain_ranks_.size()) * Loans::kMarkWords;
    return kTables * lines_per_table() + 1 + (marks + kWordsPerLine - 1) / kWordsPerLine;
  }
  int search_member(int rank) const noexcept;
  FlagRef flag(int owner, Table table, int about) const noexcept;
  FlagRef statement(int owner) const noexcept;
  FlagRef marks(int owner, int about) const noexcept;
  const std::atomic<std::uint64_t>& word(int owner, Table table, int about) const noexcept;
  // Offsets and lengths come from the member, so they are checked.
  const Header& header(const Incoming& from, std::uint64_t offset) const {
    const std::span<const std::byte> slice = from.slice;
    if (offset % kMessageAlignment != 0 || offset >= slice.size()) [[unlikely]]
      throw_no_message(from.member, offset, sizeof(Header));
    return *reinterpret_cast<const Header*>(slice.data() + offset);
  }
  const std::byte* payload(const Incoming& from, std::uint64_t offset, std::size_t bytes) const {
    const std::uint64_t at = offset + sizeof(Header);
    if (bytes > from.slice.size() - at) [[unlikely]]
      throw_no_message(from.member, at, bytes);
    return from.slice.data() + at;
  }
  Outgoing& to(int member) noexcept { return *to_[static_cast<std::size_t>(member)]; }
  Incoming& from(int member) noexcept { return *from_[static_cast<std::size_t>(member)]; }
  [[noreturn]] void throw_no_message(int member, std::uint64_t offset, std::size_t bytes) const;
  [[noreturn]] void throw_corrupt(int member, const std::string& what) const;

  bool can_lend(Outgoing& to, const Buffer& send) noexcept;
  bool can_be_read(const Buffer& memory) noexcept;
  bool wants_to_lend(Outgoing& to, const Buffer& send) noexcept;
  Loans::Loan& lend(Outgoing& to, const Call& call, const Buffer& send);
  std::byte* place_anywhere(Outgoing& to, std::size_t bytes);
  static inline std::byte* place_behind(Outgoing& to, std::size_t message_bytes) noexcept;
  std::byte* place_in_slab(Outgoing& to, std::size_t bytes);
  void add_slab(Outgoing& to, std::size_t bytes);
  // What is told about a message in its header.
  struct Envelope {
    DType type;
    Codec codec;
    std::uint64_t count;
    std::uint32_t tag;
    std::size_t bytes;
  };
  inline std::byte* begin_message(Outgoing& to, const Envelope& envelope);
  inline void post_message(Outgoing& to, std::byte* message, std::size_t bytes) noexcept;
  void drop_oldest(Outgoing& to) noexcept;
  void reclaim(Outgoing& to) noexcept;
  void follow(Incoming& from);
  bool may_be_posted(const PlainCall& call) const noexcept {
    return call.kind == Collective::kRecv && call.count <= UINT32_MAX && ranks_.size() <= UINT16_MAX;
  }
  bool take_unexpected(Incoming& from, std::uint32_t tag, Arrived* message);
  void keep_unexpected(Incoming& from, std::uint32_t tag, const Arrived& message);
  inline void wait_for(Incoming& from, Receiver& receiver) noexcept;
  void wait_no_more(Incoming& from, Receiver& receiver) noexcept;
  void complete(Incoming& from, Posted& receive, const Arrived& arrived, const Header& message) noexcept;
  void tell_received() noexcept;
  // Of what the two ends of a message must agree on; the tag is matched anyway. A hash costs more than the rest of a short message,
  // and most are like the last one.
  std::uint64_t fingerprint(DType type, Codec codec, std::uint64_t count) noexcept {
    const Shape& last = last_shape_;
    const bool same = last.count == count && last.type == type && last.codec == codec && last.fingerprint != 0;
    return same ? last.fingerprint : new_fingerprint(type, codec, count);
  }
  std::uint64_t new_fingerprint(DType type, Codec codec, std::uint64_t count) noexcept;
  [[noreturn]] void throw_differs(const Header& message, const Call& call) const;
  inline void copy_payload(Incoming& from, std::uint64_t offset, const Header& message, const Buffer& into);
  void take_lent(Incoming& from, std::uint64_t offset, const Buffer& into);
  Task<void> copy_payload(Operation& op, Incoming& from, std::uint64_t offset, const Header& message);
  std::uint64_t still_lent(const Incoming& from, const LoanNote& note) const;
  std::size_t take_piece(Incoming& from, const LoanNote& note, std::size_t at, const Buffer& into);
  void read_lent(const Incoming& from, const LoanNote& note, std::size_t at, const Buffer& into);
  const std::byte* copy_of_lent(const Incoming& from, const LoanNote& note, std::size_t at, std::size_t bytes) const;
  void copy_ahead(int member, std::size_t bytes) noexcept;
  void tell_read(Incoming& from, const LoanNote& note);
  void listen_to(Incoming& from);
  Task<void> listen(Incoming& from);
  void stop_listening_if_idle(Incoming& from) noexcept;
  void root_ended(Root& listener, std::exception_ptr error) noexcept override;
  void accept(Incoming& from);
  static void finish(Incoming& from, std::uint64_t number) noexcept;
  static void tell_taken(Incoming& from) noexcept;
  Task<void> find_lines(int member, Stop& stop);

  HostDomain& domain_;
  std::uint64_t key_;
  std::vector<int> domain_ranks_;
  std::vector<int> ranks_;
  bool consecutive_;  // the ranks
  int me_;
  const std::byte* slice_;  // this member's memory
  std::vector<std::uint32_t> lines_;
  MessageMemory memory_;
  const Loans::Program* program_;
  std::deque<Outgoing> out_;
  std::deque<Incoming> in_;
  // By member: where they are, which a deque would have to work out in each call.
  std::vector<Outgoing*> to_;
  std::vector<Incoming*> from_;
  std::uint64_t statements_ = 0;
  std::deque<Unexpected> unexpected_;         // a pool
  std::vector<Unexpected*> free_unexpected_;  // has room for all of the pool
  Posted::Owner* owner_ = nullptr;
  std::array<Posted*, 64> received_{};  // whose owner does not know it yet
  std::size_t received_count_ = 0;
  int any_source_ = 0;
  UnexpectedObserver* observer_ = nullptr;
  Stop listening_;
  Shape last_shape_;
};

}  // namespace aiacc
