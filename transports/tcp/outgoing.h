// Outgoing: a message that a peer is to get, and the parts in which connections carry it.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "base/intrusive_list.h"
#include "base/io/net.h"
#include "transports/tcp/data_header.h"
#include "transports/tcp/frame.h"

namespace aiacc::tcp {

struct Outgoing;

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
  std::array<std::byte, kFrameBytes> frame{};  // of a chunk
};

struct Outgoing : SendCompletion::Message {
  static constexpr std::size_t kMaxPieces = 8;  // a message of more is copied
  static constexpr std::size_t kPrefixBytes = kFrameBytes + kHeaderBytes;

  bool copied = false;
  std::vector<std::byte> bytes;  // the frame, the header, and the payload if it was copied
  std::array<io::Piece, kMaxPieces>
      pieces;  // the payload, in its owner's memory or in `copy`; of one that goes in one part and
               // was copied, none
  std::size_t piece_count = 0;
  std::vector<std::byte> copy;  // of a withdrawn message
  std::size_t payload_bytes = 0;
  int to = 0;                            // rank
  std::list<Outgoing>* queue = nullptr;  // where it waits; null once it was begun
  std::list<Outgoing>::iterator self{};  // in the list where it is

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
};

}  // namespace aiacc::tcp
