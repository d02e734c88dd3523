// ShortCall: a call between hosts with messages so short that software overhead dominates. It is a state machine
// without a coroutine frame that makes progress whenever it is polled. The calling thread polls for the answer
// (Group::run) and needs no operation if it arrives soon; otherwise finish() continues like any other algorithm.
//
// Its messages (short_messages.h) are those of the algorithm that serves such a call as an operation, so other members may run
// that.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/inter/short_messages.h"
#include "collectives/operation.h"
#include "transports/exchange.h"

namespace aiacc::inter {

class ShortCall {
 public:
  // Of a message that is added to something, for which there must be memory: SyncBN's moments of 2,048 channels.
  static constexpr std::size_t kMostBytes = 24 << 10;
  // Of others.
  static constexpr std::size_t kMostPlainBytes = Mailbox::kEagerBytes;
  // Of a message to the root of a gather among more than two ranks. The root of a short call posts one receive at a time and copies
  // what comes before its turn once more; an operation posts all at once.
  static constexpr std::size_t kMostGatheredBytes = 4 << 10;
  // Serves even calls of which each message has at most so many bytes, of the kinds and with the algorithms of short_messages.h, if
  // their operator may combine partial results. The team must have one rank on each host, its Compute must work inline, and
  // the buffers must be host memory; those of an alltoall must not be in place.
  static bool serves(const Team& team, const Call& call, Buffer send, Buffer recv) noexcept;

  // Begins a call that serves() accepts: its first message leaves, at once, or when the loop writes what many have given it.
  // Throws if the group has ended.
  enum class Sends : std::uint8_t { kAtOnce, kWithOthers };
  ShortCall(Team& team, const Call& call, std::uint64_t sequence, Stop& stop, Buffer send, Buffer recv,
            Sends sends = Sends::kAtOnce);
  ShortCall(const ShortCall&) = delete;
  ShortCall& operator=(const ShortCall&) = delete;

  std::uint64_t sequence() const noexcept { return sequence_; }
  // Makes progress with what has arrived. Returns whether the call is complete; if the call has failed, every call
  // throws its error.
  bool advance();
  // Waits until the call is complete. No other function may be called afterwards.
  Task<void> finish();

 private:
  void begin_round();
  void end_round();
  void copy(const ShortMessages::Copy& what);

  Team& team_;
  const Call& call_;
  const std::uint64_t sequence_;
  Stop& stop_;
  Exchange exchange_;
  ShortMessages messages_;
  const int rounds_;
  int round_ = 0;
  std::unique_ptr<std::byte[]> longer_;  // scratch memory of more than kNear bytes
  static constexpr std::size_t kNear = 2 << 10;
  alignas(64) std::array<std::byte, kNear> near_;
  std::optional<Transfer> transfer_;  // of the current round, behind what it refers to; none: complete
};

}  // namespace aiacc::inter
