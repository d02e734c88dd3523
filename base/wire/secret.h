// Secret: 32 bytes that nobody else may know, wiped when they are no longer needed. The job's own is made by aiaccrun and
// travels only on the agents' standard input; session keys are derived from it (base/wire/handshake.h).
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/io/clock.h"

namespace aiacc::wire {

class Secret {
 public:
  static constexpr std::size_t kBytes = 32;

  Secret() = default;  // all zero: stands for none, and authenticates nobody
  explicit Secret(std::span<const std::byte, kBytes> bytes) noexcept;
  // As it stands in messages. Throws kInvalidArgument if it has another length.
  static Secret from(std::string_view bytes);
  static Secret fresh(io::Entropy& entropy);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  std::span<const std::byte, kBytes> bytes() const noexcept { return bytes_; }
  bool none() const noexcept;
  // In constant time.
  bool operator==(const Secret& other) const noexcept;

 private:
  std::array<std::byte, kBytes> bytes_{};
};

}  // namespace aiacc::wire
