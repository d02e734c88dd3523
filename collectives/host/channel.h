// A channel carries the messages of one member of a team to another. It is made when first used: 17 lines and some memory
// at the sender, 5 lines at the receiver.
//
//   sender's lines     0: messages posted, chunks filled    1-16: a ring of 64 descriptors
//   receiver's lines   0: chunks drained                    1-4:  what became of the message in each place of the ring
//
// Message m stands in place m mod 64 until the receiver has consumed it. A small one is copied to the sender's shared memory
// beside its descriptor, and the send is over. A large one in shared memory is read where it is; a large one in private
// memory is asked for and then copied chunk by chunk through two slots, one message at a time.
#pragma once

#include <array>
#include <deque>
#include <optional>

#include "base/task/loop.h"
#include "collectives/host/turn_queue.h"
#include "collectives/operation.h"
#include "transports/host/host_domain.h"

namespace aiacc::host {

inline constexpr std::uint64_t kMessagesInFlight = 64;
inline constexpr std::size_t kSmallMessageBytes = 1 << 10;
inline constexpr std::size_t kMessageChunkBytes = 64 << 10;
inline constexpr std::size_t kMessageChunks = 2;

// Waits until `owner` has lines for `key`.
Task<std::uint32_t> await_lines(HostDomain& domain, int owner, std::uint64_t key, Stop& stop);

// What the receiver learns of a message before its bytes.
struct Descriptor {
  enum class Place : std::uint8_t { kBeside, kShared, kStreamed };
  std::uint64_t number = 0;
  std::uint32_t tag = 0;
  DType type = DType::kInt8;
  Place place = Place::kBeside;
  std::uint64_t count = 0;   // elements
  std::uint64_t offset = 0;  // in the sender's slice: the data, or the slots that it is streamed through

  std::array<std::uint64_t, 4> words() const noexcept;
  static Descriptor from_words(std::uint64_t number, const std::array<std::uint64_t, 4>& words) noexcept;
};

class SendChannel {
 public:
  SendChannel(HostDomain& domain, std::uint64_t key, int to);  // rank in the domain
  ~SendChannel();
  SendChannel(const SendChannel&) = delete;
  SendChannel& operator=(const SendChannel&) = delete;

  // Returns when `data` may be overwritten.
  Task<void> send(const Call& call, Buffer data, Compute& compute, Stop& stop);
  // Peers need the memory no more.
  void close() noexcept { closed_ = true; }

 private:
  Task<void> await_state(std::uint64_t number, std::uint64_t state, Stop& stop);
  Task<void> stream(Buffer data, Compute& compute, Stop& stop);
  std::byte* beside(std::uint64_t number) noexcept;
  std::byte* chunk(std::uint64_t number) noexcept;

  HostDomain& domain_;
  std::uint64_t key_;
  int to_;
  std::uint32_t mine_;
  std::optional<std::uint32_t> theirs_;
  HostRange memory_;
  TurnQueue posting_;
  std::uint64_t posted_ = 0;
  std::uint64_t chunks_ = 0;
  bool closed_ = false;
};

class RecvChannel {
 public:
  RecvChannel(HostDomain& domain, std::uint64_t key, int from);
  ~RecvChannel();
  RecvChannel(const RecvChannel&) = delete;
  RecvChannel& operator=(const RecvChannel&) = delete;

  // Takes the oldest message with the call's tag that no earlier recv takes; throws kMismatch if it is not what is expected.
  Task<void> recv(const Call& call, int from_rank, Buffer into, Compute& compute, Stop& stop);

 private:
  // A recv without its message. The first in the list listens for all.
  struct Waiting : ListNode<Waiting> {
    Waiting(Loop& loop, std::uint32_t wanted) : tag(wanted), wake(loop) {}
    std::uint32_t tag;
    std::optional<Descriptor> message;
    Event wake;
  };

  Task<Descriptor> match(std::uint32_t tag, Stop& stop);
  Task<void> listen(Stop& stop);
  void take_posted();
  void wake_next() noexcept;
  Task<void> drain(const Descriptor& message, Buffer into, Compute& compute, Stop& stop);
  void set_state(std::uint64_t number, std::uint64_t state) noexcept;

  HostDomain& domain_;
  std::uint64_t key_;
  int from_;
  std::uint32_t mine_;
  std::optional<std::uint32_t> theirs_;
  std::uint64_t seen_ = 0;             // messages taken from the ring
  std::deque<Descriptor> unexpected_;  // in their order
  IntrusiveList<Waiting> waiting_;     // in the order of calls
  bool listening_ = false;
  TurnQueue draining_;
  std::uint64_t chunks_ = 0;
};

}  // namespace aiacc::host
