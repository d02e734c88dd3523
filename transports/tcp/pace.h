// How long messages are shared by the connections of a pair.
//
// Pull. A connection takes the next chunk when its kernel has room (TCP_NOTSENT_LOWAT), so shares follow the speed of each
// without any agreement. That alone would let a slow connection hold the end of a message: its room is a fixed number of bytes,
// which take it long. So each has a Pace: what it carries unacknowledged, how fast chunks are acknowledged, and from both the
// time at which a chunk would arrive. It leaves a chunk to the others if that is later than all of them need for everything.
//
// Again. A connection that has nothing to take looks at what others carry. A chunk that is expected more than twice as late
// there as here is sent here too, once; the receiver counts its bytes once, and whichever acknowledgement comes first counts.
// The former connection goes on from a copy of what it has not written, so a message that is acknowledged is its owner's again
// although an old chunk of it is still on its way. A connection that stands still is expected to do so for as long as it has
// done already; one that has carried nothing for a while is unknown, and takes a little to be measured.
//
// A peer that computes and reads nothing acknowledges nothing on any connection. What is sent again is bounded: once a chunk,
// and by a connection that carries no more than one.
#pragma once

#include <cstdint>
#include <span>

#include "base/time.h"

namespace aiacc::tcp {

class Pace {
 public:
  static constexpr std::uint64_t kUnknownBytes = 512 << 10;  // that one takes before it is measured
  static constexpr Duration kForgotten = std::chrono::seconds(1);

  // It carries another chunk from now on. Returns the chunk's position: the bytes that were given to this connection, ever.
  std::uint64_t took(std::uint64_t bytes, Instant now) noexcept;
  // The peer has a chunk of this position, and so all before it; it was taken at `taken`.
  void arrived(std::uint64_t position, std::uint64_t bytes, Instant taken, Instant now) noexcept;
  // A chunk is not expected from here any more, although its bytes are still on their way.
  void gave(std::uint64_t bytes) noexcept { expected_ -= bytes; }
  // The peer has one of those.
  void given_arrived(std::uint64_t bytes, Instant now) noexcept;

  bool known(Instant now) const noexcept { return rate_ > 0 && !forgotten(now); }
  double rate(Instant now) const noexcept { return known(now) ? rate_ : 0; }  // bytes a second
  std::uint64_t backlog(Instant now) const noexcept;                          // bytes that are on their way
  std::uint64_t expected() const noexcept { return expected_; }
  // How long until `bytes` more would have arrived.
  Duration eta(std::uint64_t bytes, Instant now) const noexcept;
  // How long until the chunk of this position will have arrived.
  Duration eta_of(std::uint64_t position, Instant now) const noexcept;
  // The time that a chunk takes from here to its acknowledgement, smoothed; zero before there are enough of them.
  Duration delay() const noexcept { return samples_ < kEnough ? Duration{} : delay_; }

 private:
  static constexpr Duration kWindow = std::chrono::milliseconds(1);  // that a rate is of, at least
  // Acknowledgements that waited behind the peer's own data come several at a time: a rate is of some of these.
  static constexpr Duration kRemembered = std::chrono::milliseconds(100);
  static constexpr int kEnough = 4;

  bool forgotten(Instant now) const noexcept { return expected_ == 0 && now - since_ > kForgotten; }
  void progress(std::uint64_t to, Instant now) noexcept;
  Duration at_least(double bytes, Instant now) const noexcept;

  std::uint64_t given_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t expected_ = 0;  // of what is between them, what no other connection carries
  double rate_ = 0;
  Instant since_{};  // of the last progress, or when it began to carry something
  // Of the bytes and the time of which the rate is, the latter without the times in which it carried nothing.
  double measured_bytes_ = 0;
  Duration busy_{};
  Instant begun_{};
  Duration delay_{};
  int samples_ = 0;
};

// Whether `mine` takes a chunk of `bytes` now, of `waiting` bytes that no connection carries. `all`: the connections that could,
// this one among them.
bool takes(const Pace& mine, std::span<const Pace* const> all, std::uint64_t bytes, std::uint64_t waiting,
           Instant now) noexcept;

// Whether `mine` sends a chunk again that is at `position` of `its`.
bool takes_again(const Pace& mine, const Pace& its, std::uint64_t position, std::uint64_t bytes, Instant now) noexcept;

}  // namespace aiacc::tcp
