// HostStreams: service messages between the ranks of a host. For each rank that it sends to, a rank has a ring in its own
// slice of shared memory: headers and payloads one after the other, as on a socket. The reader takes bytes as they come, so
// a payload may be longer than the ring, and gives their place back at once.
//
// A long payload does not go through the ring if the reader can read the writer's memory (HostDomain::can_read): its address
// follows the header, the reader copies it from there, and the writer keeps it until the reader has gone past its address. A
// writer that gives its payloads up before says so first (kRevoked); who has read one meanwhile drops it.
//
// The rings of a rank that leaves stay as long as the segment: what is in them is read after it has gone. What waited for room in one, and
// payloads that are read in its memory, end with it. It says so (kGaveUp in kPosted) to whom that concerns, and its stream is broken for
// that rank once the rest has been read.
//
// Lines. A rank claims one control line for each local peer, with counters: kRing, offset plus 1 of its ring to that
// peer, 0 before its first message; kPosted, bytes that it wrote to the ring, ever, and kGaveUp; kTaken, bytes that it read from the
// peer's ring; kFetches, 1 if it can read the peer's memory; kRevoked, 1 when payloads that the peer may still read in this
// rank's memory are freed. All are written by this rank alone.
//
// A rank that has claimed no lines has no subscription and reads nothing; see reads().
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/task/scope.h"
#include "transports/host/host_domain.h"
#include "transports/message.h"

namespace aiacc {

class HostStreams final : private Root::Owner {
 public:
  static constexpr std::uint64_t kRingBytes = 128 << 10;
  static constexpr std::size_t kFetchedBytes = 32 << 10;  // of payloads that are read in the writer's memory, at least

  class Observer {
   public:
    // That rank of the host has written malformed data or left with messages to this one unsent, or nothing can be written to it. Nothing
    // is read from it any more.
    virtual void stream_broken(int local_rank, const Error& why) noexcept = 0;

   protected:
    ~Observer() = default;
  };

  // `world_ranks` are those of the host's ranks, which headers are offered with. Claims lines under `key` and starts to
  // read. Throws kOutOfMemory.
  HostStreams(HostDomain& domain, std::uint64_t key, std::vector<int> world_ranks, MessageReceiver& receiver,
              Observer& observer);
  ~HostStreams();  // call after close() has ended, or after the loop was destroyed

  bool reads(int local_rank) noexcept { return find(local_rank); }
  // The completion is told when the payload was copied, possibly from inside.
  void post(int local_rank, const MessageHeader& header, std::span<const std::byte> payload,
            SendCompletion& completion) noexcept;
  // Drops messages that wait to be written to that rank.
  void lose(int local_rank) noexcept;
  // Ends reading and writing; messages that wait complete with an error.
  Task<void> close();

 private:
  enum Word : std::uint32_t { kRing, kPosted, kTaken, kFetches, kRevoked };
  static constexpr std::uint64_t kGaveUp = std::uint64_t{1} << 63;  // in kPosted
  static constexpr std::uint16_t kFetched = 1 << 15;  // in the flags of a header in the ring: an address follows
  struct Frame {
    MessageHeader header;
    std::uint64_t address = 0;
    bool fetched() const noexcept { return (header.flags & kFetched) != 0; }
    std::size_t bytes() const noexcept { return fetched() ? sizeof(Frame) : sizeof header; }
  };
  static_assert(sizeof(Frame) == sizeof(MessageHeader) + sizeof(std::uint64_t));
  struct Queued {
    Frame frame;
    std::span<const std::byte> payload;  // in the ring
    SendCompletion* completion;
    std::size_t written = 0;  // of frame and payload
  };
  struct Lent {
    std::uint64_t end;  // of its frame in the ring
    SendCompletion* completion;
  };
  struct Stream {
    std::optional<std::uint32_t> line;  // of the peer: what it claimed for this rank
    bool lost = false;
    // To the peer.
    std::byte* memory = nullptr;
    std::uint64_t posted = 0;
    std::deque<Queued> queue;
    std::deque<Lent> lent;       // payloads that the peer reads in this rank's memory
    std::optional<Root> writer;  // while the ring is full, or payloads are lent
    bool writer_ended = false;
    // From the peer.
    std::optional<Root> reader;
    const std::byte* its_ring = nullptr;
    std::uint64_t taken = 0;
    std::size_t frame_bytes = 0;  // that were read
    Frame frame;
    MessageHeader header;  // as it is offered
    MessageReceiver::Placement place;
    std::uint64_t payload_bytes = 0;  // that were read
  };

  void root_ended(Root& root, std::exception_ptr error) noexcept override;
  bool find(int local_rank) noexcept;
  Stream& stream(int local_rank) noexcept { return streams_[static_cast<std::size_t>(local_rank)]; }
  std::uint64_t read_word(int owner, std::uint32_t line, Word word) const noexcept;
  FlagRef flag_of(int local_rank, Word word) noexcept;  // its line for this rank
  std::uint32_t line_for(int local_rank) const noexcept { return lines_ + static_cast<std::uint32_t>(local_rank); }
  bool write(int local_rank);
  void write_some(int local_rank) noexcept;
  Task<void> write_rest(int local_rank);
  Task<void> read_all(int local_rank);
  bool read_some(int local_rank);
  void give_back(Stream& its, std::uint64_t taken);
  void took(int local_rank, std::span<const std::byte> bytes);
  void begin_payload(int local_rank);
  void fetch(int local_rank);
  void broken(int local_rank, const Error& why) noexcept;
  void has_left(int local_rank) noexcept;
  void payload_gone(int local_rank) noexcept;

  HostDomain& domain_;
  std::uint64_t key_;
  std::vector<int> world_ranks_;
  MessageReceiver& receiver_;
  Observer& observer_;
  std::uint32_t lines_;  // the first of this rank's
  std::deque<Stream> streams_;
  Stop stop_;
  bool closing_ = false;
  int running_ = 0;
  Event idle_;
};

}  // namespace aiacc
