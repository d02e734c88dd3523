// UnexpectedObserver: hears of each point-to-point message that no posted receive asks for, on whatever way it came: a receive
// from any rank may take it.
#pragma once

#include <cstdint>
#include <exception>

namespace aiacc {

class UnexpectedObserver {
 public:
  virtual void unexpected_message(std::uint32_t tag) noexcept = 0;
  // From some rank no message can come any more.
  virtual void source_failed(std::exception_ptr error) noexcept = 0;

 protected:
  ~UnexpectedObserver() = default;
};

}  // namespace aiacc
