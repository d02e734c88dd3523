// ShortCall: a call between hosts whose messages are so short that the time goes into the steps of the call itself: as an
// object that goes on whenever it is asked, without a frame. Who has called looks for the answer (Group::run) and needs
// no operation if it comes soon. Otherwise finish() goes on as any other algorithm.
//
// Its messages are those of recursive doubling and of the dissemination barrier: other members may run these.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "collectives/operation.h"
#include "transports/exchange.h"

namespace aiacc::net {

class ShortCall {
 public:
  static constexpr std::size_t kMostBytes = 1024;
  // Barriers; allreduces of at most so many bytes of powers of two ranks, whose operator may combine partial results. The
  // team has one rank on each host, and its Compute works inline.
  static bool serves(const Team& team, const Call& call, Buffer send, Buffer recv) noexcept;

  // Begins the call that it serves: its first message leaves. Throws if the group has ended.
  ShortCall(Team& team, const Call& call, std::uint64_t sequence, Stop& stop, Buffer send, Buffer recv);
  ShortCall(const ShortCall&) = delete;
  ShortCall& operator=(const ShortCall&) = delete;

  std::uint64_t sequence() const noexcept { return sequence_; }
  // Goes on with what has come. Whether the call is complete; throws what ended it, again and again.
  bool advance();
  // Waits for what is missing. Nothing but this is called any more.
  Task<void> finish();

 private:
  void begin_round();
  void end_round();

  Team& team_;
  const Call& call_;
  const std::uint64_t sequence_;
  Stop& stop_;
  const Buffer result_;  // and partial results meanwhile
  Exchange exchange_;
  const int rounds_;
  int round_ = 0;
  std::optional<Transfer> transfer_;  // of the round; none: complete
  alignas(64) std::array<std::byte, kMostBytes> arrived_;
};

}  // namespace aiacc::net
