// Submission: what a request of aiacc_gradient_submit names.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <utility>

#include "runtime/group/requested_work.h"

namespace aiacc::gradient {

class Engine;

// The engine refers to it until it has ended; the request owns it.
class Submission final : public RequestedWork {
 public:
  explicit Submission(std::shared_ptr<Engine> engine) noexcept : engine_(std::move(engine)) {}
  const std::exception_ptr& error() const noexcept override { return error_; }
  void expect() noexcept override;
  // Whether a caller waits for it, or has looked.
  bool expected() const noexcept { return expected_.load(std::memory_order_relaxed); }

 private:
  friend class Engine;
  void begin() noexcept override {}  // the engine has it already
  void end(std::exception_ptr error) noexcept {
    error_ = std::move(error);
    finish();
  }

  std::shared_ptr<Engine> engine_;
  std::atomic<bool> expected_{false};
  std::exception_ptr error_;
};

}  // namespace aiacc::gradient
