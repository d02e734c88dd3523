// HostPost: messages between members of a group on one host, matched by (sender, tag) in the order of the calls.
//
// A sender copies each message into its own slice, hangs it on the chain for that receiver, and publishes how many there
// are; then it is done. The receiver follows the chain, keeps what nobody has asked for yet where it is, copies what was
// asked for, and stores up to where it needs nothing any more; the sender takes memory back when it sends next. So nobody
// stores into another's memory, and no message waits behind another that nobody wants: a send needs memory and nothing
// else. One copy in and one out: 4S bytes.
//
// A member's lines, by the index of the other member: `first` (offset plus 1 of the first message to it), `posted` (how many
// went to it), `taken` (how many came from it that are not needed any more; those behind a gap do not count).
// And one line with the recv that it has waited in for long, for whoever looks for receivers that wait for each other.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "collectives/host/turn_queue.h"
#include "collectives/operation.h"
#include "transports/host/host_domain.h"

namespace aiacc {

class HostPost {
 public:
  // `domain_ranks` and `ranks` are those of the members on this host, ascending; `me` is this one's index.
  HostPost(HostDomain& domain, std::uint64_t view_id, std::vector<int> domain_ranks, std::vector<int> ranks, int me);
  ~HostPost();
  HostPost(const HostPost&) = delete;
  HostPost& operator=(const HostPost&) = delete;

  // Returns when every member has its lines; before any message.
  Task<void> open(Stop& stop);

  // Whether the rank at the other end of a message is on this host.
  bool reaches(int rank) const noexcept { return member_of(rank) >= 0; }
  Task<void> send(Operation& op);
  Task<void> recv(Operation& op);

  // For a receive from any rank: the rank of a member with a message of this tag that nobody has asked for, the first of them
  // from `first` on; -1 if there is none.
  int find_unasked(std::uint32_t tag, int first);
  // Sets `news` whenever a message of another member has come, until `stop`.
  Task<void> watch(int member, Event& news, Stop& stop);
  // This member only receives, and has for a while: `call` is its recv. Null: it does something else now.
  void state_receiving(const CallSummary* call) noexcept;
  // What the member of that rank, which is on this host, stated; nothing if it does something else, or not long.
  std::optional<CallSummary> receiving_of(int rank) const noexcept;
  int members() const noexcept { return static_cast<int>(ranks_.size()); }
  int me() const noexcept { return me_; }

 private:
  // In front of a message. `next` is written once, by the sender, before it publishes the next message.
  struct alignas(64) Header {
    std::atomic<std::uint64_t> next{0};  // offset plus 1
    std::uint64_t bytes = 0;
    std::uint64_t fingerprint = 0;
    std::uint32_t tag = 0;
    std::uint32_t type = 0;
  };
  static_assert(sizeof(Header) == 64);

  struct Outgoing {  // messages to one member
    explicit Outgoing(int to) : member(to) {}
    int member;
    host::TurnQueue turns;
    std::uint64_t posted = 0;
    std::uint64_t freed = 0;
    std::deque<HostRange> ranges;  // of messages freed .. posted - 1
  };
  struct Arrived {
    std::uint64_t number = 0;
    std::uint64_t offset = 0;
  };
  struct Waiting : ListNode<Waiting> {
    explicit Waiting(std::uint32_t wanted) : tag(wanted) {}
    std::uint32_t tag;
    bool matched = false;
    Arrived message;
  };
  struct Incoming {  // messages from one member
    explicit Incoming(int from) : member(from) {}
    int member;
    std::uint64_t seen = 0;       // messages followed so far
    std::uint64_t last = 0;       // offset of the last of them
    std::deque<Arrived> unasked;  // seen and not yet matched
    std::deque<char> finished;    // of messages taken .. seen - 1
    std::uint64_t taken = 0;
    IntrusiveList<Waiting> waiting;
  };
  enum Table : std::uint32_t { kFirst, kPosted, kTaken, kTables };
  static constexpr std::uint32_t kWordsPerLine = 16;

  int member_of(int rank) const noexcept;
  FlagRef flag(int owner, Table table, int about) const noexcept;
  FlagRef statement(int owner) const noexcept;
  std::uint64_t read(int owner, Table table, int about) const noexcept;
  const Header& header(int member, std::uint64_t offset) const noexcept;

  HostRange take_range(std::size_t bytes);
  void give_range(HostRange range) noexcept;
  void reclaim(Outgoing& to) noexcept;
  void follow(Incoming& from);
  void finish(Incoming& from, std::uint64_t number) noexcept;
  Task<void> find_lines(int member, Stop& stop);

  HostDomain& domain_;
  std::uint64_t key_;
  std::vector<int> domain_ranks_;
  std::vector<int> ranks_;
  int me_;
  std::vector<std::uint32_t> lines_;
  std::deque<Outgoing> out_;
  std::deque<Incoming> in_;
  std::multimap<std::uint64_t, HostRange> spare_;  // by size
  std::uint64_t spare_bytes_ = 0;
  std::uint64_t statements_ = 0;
};

}  // namespace aiacc
