#include "base/wire/secret.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace aiacc::wire {

struct Secret::Page {
  std::array<std::byte, kBytes> bytes{};
};

namespace {

constexpr std::array<std::byte, Secret::kBytes> kNone{};

}  // namespace

Secret::Secret(std::span<const std::byte, kBytes> bytes) {
  const std::shared_ptr<Page> page = std::allocate_shared<Page>(Hidden<Page>());
  std::copy(bytes.begin(), bytes.end(), page->bytes.begin());
  page_ = page;
}

Secret Secret::from(std::string_view bytes) {
  if (bytes.size() != kBytes) {
    throw Error(Code::kInvalidArgument, fmt::format("a secret of {} bytes was given; it has {}", bytes.size(), kBytes));
  }
  return Secret(std::as_bytes(std::span<const char, kBytes>(bytes.data(), kBytes)));
}

Secret Secret::fresh(io::Entropy& entropy) {
  const std::shared_ptr<Page> page = std::allocate_shared<Page>(Hidden<Page>());
  entropy.fill(page->bytes);
  Secret made;
  made.page_ = page;
  return made;
}

std::span<const std::byte, Secret::kBytes> Secret::bytes() const noexcept {
  return page_ == nullptr ? std::span<const std::byte, kBytes>(kNone)
                          : std::span<const std::byte, kBytes>(page_->bytes);
}

HiddenText Secret::text() const {
  if (page_ == nullptr) return {};
  return HiddenText(reinterpret_cast<const char*>(page_->bytes.data()), kBytes);
}

bool Secret::none() const noexcept {
  return sodium_is_zero(reinterpret_cast<const unsigned char*>(bytes().data()), kBytes) != 0;
}

bool Secret::operator==(const Secret& other) const noexcept {
  return sodium_memcmp(bytes().data(), other.bytes().data(), kBytes) == 0;
}

}  // namespace aiacc::wire
