// Secret: a 32-byte key. aiaccrun makes the job's secret, and sends it to the agents on their standard input; session
// keys are derived from it (base/wire/handshake.h). Copies share one hidden page (base/wire/hidden.h), which is wiped
// when the last copy is destroyed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/io/clock.h"
#include "base/wire/hidden.h"

namespace aiacc::wire {

class Secret {
 public:
  static constexpr std::size_t kBytes = 32;

  Secret() = default;  // all zero: no secret; it authenticates nobody
  explicit Secret(std::span<const std::byte, kBytes> bytes);
  // From its form in messages. Throws kInvalidArgument if the length is wrong.
  static Secret from(std::string_view bytes);
  static Secret fresh(io::Entropy& entropy);

  std::span<const std::byte, kBytes> bytes() const noexcept;
  HiddenText text() const;  // its form in messages; empty if none()
  bool none() const noexcept;
  // In constant time.
  bool operator==(const Secret& other) const noexcept;

 private:
  struct Page;
  std::shared_ptr<const Page> page_;
};

}  // namespace aiacc::wire
