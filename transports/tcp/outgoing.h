// Outgoing: a message that a peer is to get, and the parts in which connections carry it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/intrusive_list.h"
#include "base/io/net.h"
#include "base/time.h"
#include "transports/tcp/data_header.h"
#include "transports/tcp/frame.h"

namespace aiacc::tcp {

struct Outgoing;
struct Carrier;

// What one frame carries: the message's header with the first bytes of its payload, or a chunk of the payload. It is in the
// list of parts that wait, or in that of the connection that carries it, or in none once it has arrived.
struct Part : ListNode<Part> {
  enum class State : std::uint8_t { kWaiting, kCarried, kArrived };
  Outgoing* message = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  State state = State::kWaiting;
  bool in_hand = false;                        // a writer has it, and has not counted it as written
  bool written = false;                        // once at least
  bool again = false;                          // a second connection carries it
  Carrier* carrier = nullptr;                  // of a chunk, the last one
  std::uint64_t position = 0;                  // of a chunk in its carrier's Pace
  Instant taken{};                             // by it
  std::array<std::byte, kFrameBytes> frame{};  // of a chunk
};

// Writes parts.
class PartHolder {
 public:
  // It has this part in its hands: what is not written goes on from a copy, and is nobody's part.
  virtual void let_go(const Part& part) noexcept = 0;

 protected:
  ~PartHolder() = default;
};

// In a list of its Outbound, which owns it.
struct Outgoing : SendCompletion::Message, ListNode<Outgoing> {
  static constexpr std::size_t kMaxPieces = 8;  // a message of more is copied
  static constexpr std::size_t kPrefixBytes = kFrameBytes + kHeaderBytes;

  Outgoing() noexcept { head.message = this; }

  bool copied = false;
  std::vector<std::byte> bytes;  // the frame, the header, and the payload if it was copied
  std::array<io::Piece, kMaxPieces>
      pieces;  // the payload, in its owner's memory or in `copy`; of one that goes in one part and
               // was copied, none
  std::size_t piece_count = 0;
  std::vector<std::byte> copy;  // of a message that was withdrawn, or is kept until it is acknowledged
  std::size_t payload_bytes = 0;
  int to = 0;  // rank
  bool begun = false;

  // From here on: once it was begun.
  TrafficClass traffic = TrafficClass::kBulk;
  std::uint64_t number = 0;  // in its class
  Part head;                 // with all of the payload, unless that goes in chunks
  std::unique_ptr<Part[]> chunks;
  std::size_t chunk_count = 0;
  std::size_t chunk_room = 0;  // in `chunks`
  std::size_t missing = 0;     // parts that have not arrived
  std::size_t unwritten = 0;   // parts that were never written
  std::size_t in_hand = 0;     // parts that writers have
  bool again = false;          // one of its chunks is carried twice

  // From now on its payload is a copy, in that memory.
  void go_on_from(std::vector<std::byte> memory) {
    memory.clear();
    memory.reserve(payload_bytes);
    for (const io::Piece& piece : std::span(pieces).first(piece_count)) {
      memory.insert(memory.end(), piece.begin(), piece.end());
    }
    const std::byte* begin = memory.data();
    for (io::Piece& piece : std::span(pieces).first(piece_count)) {
      piece = {begin, piece.size()};
      begin += piece.size();
    }
    copy = std::move(memory);
    copied = true;
  }

  // It went in one part, which was written, and nobody waits for its completion.
  bool is_short_and_settled() const noexcept {
    return chunk_count == 0 && in_hand == 0 && completion == nullptr && head.state == Part::State::kCarried;
  }
};

// Owns its messages.
class OutgoingList : public IntrusiveList<Outgoing> {
 public:
  ~OutgoingList() { clear(); }
  void clear() noexcept {
    while (Outgoing* message = pop_front()) delete message;
  }
  void take(Outgoing& message) noexcept {
    message.ListNode<Outgoing>::unlink();
    push_back(message);
  }
};

}  // namespace aiacc::tcp
