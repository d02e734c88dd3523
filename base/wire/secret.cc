#include "base/wire/secret.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>

#include "base/error.h"

namespace aiacc::wire {

Secret::Secret(std::span<const std::byte, kBytes> bytes) noexcept {
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

Secret Secret::from(std::string_view bytes) {
  if (bytes.size() != kBytes) {
    throw Error(Code::kInvalidArgument, fmt::format("a secret of {} bytes was given; it has {}", bytes.size(), kBytes));
  }
  return Secret(std::as_bytes(std::span<const char, kBytes>(bytes.data(), kBytes)));
}

Secret Secret::fresh(io::Entropy& entropy) {
  Secret made;
  entropy.fill(made.bytes_);
  return made;
}

Secret::~Secret() { sodium_memzero(bytes_.data(), bytes_.size()); }

bool Secret::none() const noexcept {
  return sodium_is_zero(reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size()) != 0;
}

bool Secret::operator==(const Secret& other) const noexcept {
  return sodium_memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0;
}

}  // namespace aiacc::wire
