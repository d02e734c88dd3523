// Secret: 32 bytes that nobody else may know. The job's own is made by aiaccrun and travels only on the agents' standard input;
// session keys are derived from it (base/wire/handshake.h). Copies share one hidden page (base/wire/hidden.h), which is wiped
// when the last of them goes.
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

  Secret() = default;  // all zero: stands for none, and authenticates nobody
  explicit Secret(std::span<const std::byte, kBytes> bytes);
  // As it stands in messages. Throws kInvalidArgument if it has another length.
  static Secret from(std::string_view bytes);
  static Secret fresh(io::Entropy& entropy);

  std::span<const std::byte, kBytes> bytes() const noexcept;
  HiddenText text() const;  // as it stands in messages; empty if it is none
  bool none() const noexcept;
  // In constant time.
  bool operator==(const Secret& other) const noexcept;

 private:
  struct Page;
  std::shared_ptr<const Page> page_;
};

}  // namespace aiacc::wire
