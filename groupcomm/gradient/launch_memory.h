// LaunchMemory: where launches are reduced that are not reduced where they were written: those that are encoded for the 16-bit wire of
// one host, and rows of tables. The ranks of this host share it, if there are any. It is kept for later launches.
#pragma once

#include <cstddef>
#include <vector>

#include "transports/host/host_domain.h"

namespace aiacc::gradient {

class LaunchMemory {
 public:
  struct Piece {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    HostRange range;
  };
  // `domain` as for Slots.
  explicit LaunchMemory(HostDomain* domain) noexcept : domain_(domain) {}
  ~LaunchMemory();
  LaunchMemory(const LaunchMemory&) = delete;
  LaunchMemory& operator=(const LaunchMemory&) = delete;

  // What is kept and too short is freed first, as much as is needed. Throws kOutOfMemory.
  Piece take(std::size_t bytes);
  void give(Piece piece) noexcept;

 private:
  void free(Piece& piece) noexcept;

  HostDomain* domain_;
  std::vector<Piece> unused_;  // has room for those that are taken
  std::size_t taken_ = 0;
};

}  // namespace aiacc::gradient
