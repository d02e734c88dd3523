// Outbound: the messages for one peer. A message waits in the queue of its class; when its transmission begins it gets the
// next number of its class, and it is kept until the peer has acknowledged every part of it.
//
// Connections pull: each takes the next part when it can write (design decision 8), so a slow one takes less. One of them,
// the lead, carries the headers of all messages, in the order of their numbers; the payload of a short message goes with its
// header, and that of a longer one in chunks, if there may be several connections. Another connection takes a chunk only
// after the peer has acknowledged the header, so the peer never gets bytes of which it does not know whose they are. What a
// connection carried when it ended, and was not acknowledged, waits for another one. pace.h says which connection takes a chunk,
// and when one is sent again over another.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "transports/qos/class_shares.h"
#include "transports/tcp/outgoing.h"
#include "transports/tcp/pace.h"
#include "transports/tcp/shared.h"

namespace aiacc::tcp {

class Connection;

// What one connection carries that was not acknowledged, oldest first.
struct Carrier {
  Connection* connection = nullptr;
  PartHolder* holder = nullptr;    // the same
  unsigned classes = kAllClasses;  // a bit for each traffic class that it is for
  std::uint64_t window = 0;  // the bytes that it may have under way; 0: it has no window yet, ~0: it never has one
  IntrusiveList<Part> parts;
  Pace pace;
};

// For how long long messages have been under way.
class BulkMeter {
 public:
  void took(Instant now) noexcept {
    if (under_way_++ == 0) since_ = now;
  }
  void ended(Instant now) noexcept {
    if (--under_way_ == 0) busy_ += now - since_;
  }
  Duration busy(Instant now) const noexcept { return under_way_ > 0 ? busy_ + (now - since_) : busy_; }

 private:
  std::size_t under_way_ = 0;  // parts
  Duration busy_{};
  Instant since_{};
};

class Outbound {
 public:
  static constexpr std::uint64_t kWholeBytes = 64 << 10;  // a payload of at most this many goes in one part
  static constexpr std::uint64_t kMaxChunkBytes = 256 << 10;
  static constexpr std::uint64_t kShortChunkBytes = 16 << 10;  // while latency is in use: what is urgent waits for one
  static constexpr std::uint64_t kWideWindow = 1 << 20;
  // Messages are begun while fewer chunks than this wait for each connection. Several connections share a message only when the
  // peer has acknowledged its header, so headers go well ahead of the chunks; one connection needs none ahead.
  static constexpr std::size_t kChunksAhead = 8;
  static constexpr std::size_t kChunksAheadOfOne = 2;

  Outbound(Shared& shared, int rank) noexcept;
  ~Outbound() { forget(); }

  // Payloads that are begun from now on go in chunks if `streams`, the number of connections that may share them, is above 1, or if
  // classes take turns: when there is background traffic, or a class was given a share. While latency is in use bulk and
  // background do too, in short ones, unless the connection's window is so wide that one of them does not matter.
  void share_among(std::size_t streams) noexcept { streams_ = streams; }
  // Two for each connection.
  int chunks_in_flight() const noexcept {
    return MessagePort::kChunksOfOneConnection * static_cast<int>(std::min<std::size_t>(streams_, 8));
  }
  bool divides() const noexcept { return streams_ > 1 || takes_turns_; }

  void add(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion);
  bool empty() const noexcept;     // the peer has acknowledged everything
  bool waiting() const noexcept {  // false: there is nothing for any connection to take
    return may_wait_ != 0 || carries_chunks();
  }
  // Some chunk waits that connections other than the lead may take.
  bool shares() const noexcept;
  // Some chunk is under way, so it may have to be sent again.
  bool carries_chunks() const noexcept { return carried_chunks_ > 0; }
  // A connection found only messages of a class that was to wait for another one, which goes over other connections; since the last
  // call.
  bool held_back() noexcept { return std::exchange(held_back_, false); }
  bool holds_back() const noexcept { return held_back_ && may_wait_ != 0; }
  const BulkMeter& meter() const noexcept { return meter_; }
  // A connection that takes chunks, until it has ended.
  void join(Carrier& carrier) { carriers_.push_back(&carrier); }

  // The connection that carries the headers of this class from now on. If it has one already, that one carries what it has begun
  // and nothing new, and the class moves when the peer has all headers; true: the caller has it acknowledge them soon.
  bool lead(TrafficClass traffic, Carrier& carrier) noexcept;
  // Of all classes that it is for and that have none.
  void lead(Carrier& carrier) noexcept;
  bool move_leads() noexcept;  // of the classes that can; whether there were any
  const Carrier* lead(TrafficClass traffic) const noexcept { return leads_[static_cast<std::size_t>(traffic)]; }
  // The connection that is to lead this class, because what it carries arrives much sooner; null if there is none.
  Carrier* better_lead(TrafficClass traffic) const noexcept;
  // Messages of this class are not acknowledged.
  bool has(TrafficClass traffic) const noexcept {
    const Class& its = classes_[static_cast<std::size_t>(traffic)];
    return !its.queue.empty() || !its.begun.empty();
  }
  // The next part for this connection to write; null if there is none. Its address stays valid until wrote() has counted it
  // and its acknowledgement has arrived, or the connection has ended.
  Part* next(Carrier& carrier) noexcept;
  // The kernel has all of `part`. If the message was copied, or is short enough to be copied now, it is completed when that is true of
  // all its parts and not earlier, because a rank that then computes drives nothing and would never send it.
  void wrote(Part& part) noexcept;
  // The connection has ended: what it carried waits again.
  void ended(Carrier& carrier) noexcept;

  // The peer has all messages of this class up to `number`, and the headers up to `headers`. False if that is impossible.
  // `over`: the connection that says so.
  bool arrived(TrafficClass traffic, std::uint64_t number, std::uint64_t headers,
               const Carrier* over = nullptr) noexcept;
  // The peer says over this connection that it has this part. False if that is impossible.
  bool part_arrived(Carrier& carrier, const Frame& part) noexcept;

  // Gives up a message of this peer that was not told yet: if it was not begun it is forgotten; otherwise it goes on from a
  // copy, and `moved` is told that its bytes are elsewhere now.
  class Moved {
   public:
    virtual void moved(const Outgoing& message, std::span<const io::Piece> before) noexcept = 0;

   protected:
    ~Moved() = default;
  };
  void withdraw(Outgoing& message, Moved& moved);
  void fail(const std::exception_ptr& why) noexcept;
  void forget() noexcept;  // drops everything without notification

 private:
  using Messages = OutgoingList;
  struct Class {
    Messages queue;                     // not begun
    Messages begun;                     // and not acknowledged as a whole, by number
    Outgoing* head_due = nullptr;       // the first of them whose header the lead must carry (again)
    std::uint64_t last = 0;             // number
    std::uint64_t headers_arrived = 0;  // up to this number
    IntrusiveList<Part> shared_chunks;  // waiting; the peer has the header
    IntrusiveList<Part> lead_chunks;    // waiting; the lead has carried the header
    std::size_t waiting_chunks = 0;     // in both
    std::uint64_t waiting_bytes = 0;    // of these
    bool waits() const noexcept { return !queue.empty() || waiting_chunks > 0 || head_due != nullptr; }
    // The peer has all headers, so any connection may bring the next one.
    bool may_move() const noexcept { return headers_arrived == last; }
  };
  Class& of(TrafficClass traffic) noexcept { return classes_[static_cast<std::size_t>(traffic)]; }
  unsigned waiting_classes() noexcept;
  bool has_enough_begun(const Class& its) const noexcept {
    return its.waiting_chunks >= (streams_ > 1 ? kChunksAhead * streams_ : kChunksAheadOfOne);
  }
  bool waits_for_another(const Carrier& carrier, std::size_t traffic, unsigned waiting) const noexcept;
  Part* next_of(Carrier& carrier, std::size_t traffic) noexcept;
  Outgoing& begin(const Carrier& carrier, Class& its) noexcept;
  void divide(Outgoing& message, std::uint64_t longest);
  void skip_carried(Class& its) noexcept;
  static bool is_long(const Part& part) noexcept { return &part != &part.message->head || part.length > kWholeBytes; }
  bool may_take(const Carrier& carrier, std::size_t traffic) const noexcept {
    return leads_[traffic] == &carrier || (carrier.classes >> traffic & 1U) != 0;
  }
  bool takes_chunk(const Carrier& carrier, std::size_t traffic, const Part& chunk) const noexcept;
  Part* carry(Carrier& carrier, Part& part) noexcept;
  Part* carry_again(Carrier& carrier) noexcept;
  void take_out_of_hand(Part& part) noexcept;
  Part* part_of(Class& its, const Frame& frame) noexcept;
  void arrive(Class& its, Part& part, const Carrier* over) noexcept;
  void count_arrived(const Part& part, const Carrier* over) noexcept;
  void finish(Class& its, Outgoing& message, Messages& finished) noexcept;
  void complete(Messages& finished) noexcept;
  void tell(Outgoing& message, const std::exception_ptr& error) noexcept;
  void recycle(Outgoing& message) noexcept;
  void keep(Outgoing& message) noexcept;

  Shared& shared_;
  int rank_;
  // After such a time in which a class has taken nothing, no other one waits for it.
  static constexpr Duration kPatience = std::chrono::milliseconds(200);

  std::size_t streams_ = 1;
  ClassShares shares_;
  bool takes_turns_ = false;
  bool held_back_ = false;
  std::array<Instant, kClasses> took_{};  // when each class last took something while others waited
  std::array<Carrier*, kClasses> leads_{};
  std::array<Carrier*, kClasses> next_leads_{};  // to which a class is to move
  std::array<Class, kClasses> classes_;
  unsigned may_wait_ = 0;  // a bit for each class in which something may wait
  std::vector<Carrier*> carriers_;
  std::size_t carried_chunks_ = 0;
  BulkMeter meter_;
  Messages spare_;
  std::size_t spares_ = 0;
};

}  // namespace aiacc::tcp
