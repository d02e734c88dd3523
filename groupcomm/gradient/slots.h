// Slots: the memory in which an engine's gradients are reduced. Tensors of one kind follow each other in the order in which
// they were added, so that neighbours are one range. The memory is shared with the ranks of this host, where there are any.
//
// A slot stays where it is; memory is given back with the engine. What an add brings gets a chunk of its own if it does not fit
// into what is left of the last one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/mapping.h"
#include "transports/host/host_domain.h"

namespace aiacc::gradient {

class Slots {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t padded(std::size_t bytes) noexcept {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Calls `piece(at, length)` for pieces of even size, of at most `most` bytes, of which all but the last are padded.
  template <class Piece>
  static void for_each_piece(std::size_t bytes, std::size_t most, Piece&& piece) {
    most = std::max(padded(most), kAlignment);
    const std::size_t pieces = (bytes + most - 1) / most;
    const std::size_t each = pieces == 0 ? 0 : padded((bytes + pieces - 1) / pieces);
    for (std::size_t at = 0; at < bytes; at += each) piece(at, std::min(each, bytes - at));
  }

  // `domain` is null if this rank is alone on its host; otherwise it outlives the slots.
  explicit Slots(HostDomain* domain) noexcept : domain_(domain) {}
  ~Slots() { clear(); }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  struct Slot {
    std::byte* data = nullptr;
    // Among the slots of its kind: ranks that add the same tensors in the same order have equal ones, and a slot that begins
    // padded(bytes) after another follows it in memory.
    std::uint64_t position = 0;
  };

  // Gives all of it back.
  void clear() noexcept;
  // The next takes of the kind, of so many bytes together (each padded), follow each other. Throws kOutOfMemory.
  void reserve(std::uint64_t kind, std::size_t bytes);
  // Zero at first. Space was reserved for it.
  Slot take(std::uint64_t kind, std::size_t bytes) noexcept;

 private:
  static constexpr std::size_t kLeastChunk = 64 << 10;
  struct Chunk {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    HostRange range;  // in shared memory, or else:
    Mapping pages;    // which take no memory before they are written: many a gradient stays with the caller
  };
  struct OfKind {
    std::uint64_t chunks = 0;
    std::byte* data = nullptr;  // of the last chunk
    std::size_t bytes = 0;
    std::size_t taken = 0;
  };

  HostDomain* domain_;
  std::vector<Chunk> chunks_;
  std::map<std::uint64_t, OfKind> kinds_;
};

}  // namespace aiacc::gradient
