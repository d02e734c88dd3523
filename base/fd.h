// Fd: owns a descriptor. The number of an owned descriptor is only used as an argument of calls.
#pragma once

#include <unistd.h>

#include <utility>

namespace aiacc {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int descriptor) noexcept : descriptor_(descriptor) {}
  Fd(Fd&& other) noexcept : descriptor_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }

  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  int release() noexcept { return std::exchange(descriptor_, -1); }
  void reset(int descriptor = -1) noexcept {
    if (descriptor_ >= 0)
      ::close(descriptor_);  // Linux frees the number whatever close() returns, so it must not be repeated after EINTR
    descriptor_ = descriptor;
  }

 private:
  int descriptor_ = -1;
};

}  // namespace aiacc
