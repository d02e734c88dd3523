// Outbound: the messages for one peer. A message waits in the queue of its class; when its transmission begins it gets the
// next number of its class, and it is kept until the peer has acknowledged every part of it.
//
// Connections pull: each takes the next part when it can write (design decision 8), so a slow one takes less. One of them,
// the lead, carries the headers of all messages, in the order of their numbers; the payload of a short message goes with its
// header, and that of a longer one in chunks, if there may be several connections. Another connection takes a chunk only
// after the peer has acknowledged the header, so the peer never gets bytes of which it does not know whose they are. What a
// connection carried when it ended, and was not acknowledged, waits for another one.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <list>
#include <span>

#include "transports/tcp/outgoing.h"
#include "transports/tcp/shared.h"

namespace aiacc::tcp {

// What one connection carries that was not acknowledged, oldest first.
struct Carrier {
  IntrusiveList<Part> parts;
};

class Outbound {
 public:
  static constexpr std::uint64_t kWholeBytes = 64 << 10;  // a payload of at most this many goes in one part
  static constexpr std::uint64_t kMaxChunkBytes = 256 << 10;

  Outbound(Shared& shared, int rank) noexcept : shared_(shared), rank_(rank) {}
  ~Outbound() { forget(); }

  // Payloads that are begun from now on go in chunks if `streams`, the number of connections that may share them, is above 1.
  void share_among(std::size_t streams) noexcept { streams_ = streams; }

  void add(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion);
  bool empty() const noexcept;    // the peer has acknowledged everything
  bool waiting() const noexcept;  // something waits for a connection
  // Some chunk waits that connections other than the lead may take.
  bool shares() const noexcept;

  // The connection that carries headers from now on. The former one has ended.
  void lead(Carrier& carrier) noexcept { lead_ = &carrier; }
  bool has_lead() const noexcept { return lead_ != nullptr; }
  bool leads(const Carrier& carrier) const noexcept { return lead_ == &carrier; }
  // The next part for this connection to write; null if there is none. Its address stays valid until wrote() has counted it
  // and its acknowledgement has arrived, or the connection has ended.
  Part* next(Carrier& carrier) noexcept;
  // The kernel has all of `part`. If the message was copied, it is completed when that is true of all its parts and not
  // earlier, because a rank that then computes drives nothing and would never send it.
  void wrote(Part& part) noexcept;
  // The connection has ended: what it carried waits again.
  void ended(Carrier& carrier) noexcept;

  // The peer has all messages of this class up to `number`, and the headers up to `headers`. False if that is impossible.
  bool arrived(TrafficClass traffic, std::uint64_t number, std::uint64_t headers) noexcept;
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
  using Messages = std::list<Outgoing>;
  struct Class {
    Messages queue;                             // not begun
    Messages begun;                             // and not acknowledged as a whole, by number
    Messages::iterator head_due = begun.end();  // the first of them whose header the lead must carry (again)
    std::uint64_t last = 0;                     // number
    std::uint64_t headers_arrived = 0;          // up to this number
    IntrusiveList<Part> shared_chunks;          // waiting; the peer has the header
    IntrusiveList<Part> lead_chunks;            // waiting; the lead has carried the header
    std::size_t waiting_chunks = 0;             // in both
  };
  Class& of(TrafficClass traffic) noexcept { return classes_[static_cast<std::size_t>(traffic)]; }
  void begin(Class& its) noexcept;
  void divide(Outgoing& message);
  void skip_arrived(Class& its) noexcept;
  Part* carry(Carrier& carrier, Part& part) noexcept;
  void arrive(Class& its, Part& part) noexcept;
  void finish(Class& its, Outgoing& message, Messages& finished) noexcept;
  void complete(Messages& finished) noexcept;
  void tell(Outgoing& message, const std::exception_ptr& error) noexcept;
  void recycle(Messages& from, Messages::iterator message) noexcept;

  Shared& shared_;
  int rank_;
  std::size_t streams_ = 1;
  Carrier* lead_ = nullptr;
  std::array<Class, kClasses> classes_;
  Messages spare_;
};

}  // namespace aiacc::tcp
