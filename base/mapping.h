// Mapping: owns a range of mapped pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace aiacc {

class Mapping {
 public:
  Mapping() = default;
  // As mmap(2), at any address. Empty, with errno set, if the kernel refuses: the caller makes the message.
  static Mapping make(std::size_t bytes, int protection, int flags, int descriptor) noexcept {
    void* base = ::mmap(nullptr, bytes, protection, flags, descriptor, 0);
    return base == MAP_FAILED ? Mapping() : Mapping(static_cast<std::byte*>(base), bytes);
  }
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }

  explicit operator bool() const noexcept { return base_ != nullptr; }
  std::byte* data() const noexcept { return base_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // Gives up ownership, because the pages were moved or are never unmapped.
  std::byte* release() noexcept {
    bytes_ = 0;
    return std::exchange(base_, nullptr);
  }

 private:
  Mapping(std::byte* base, std::size_t bytes) noexcept : base_(base), bytes_(bytes) {}
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace aiacc
