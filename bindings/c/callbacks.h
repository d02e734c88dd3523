// Completion callbacks: run on their context's completion thread, where blocking calls are refused.
#pragma once

#include "bindings/c/state.h"
#include "runtime/group/group_operation.h"

namespace aiacc::abi {

// One pending call of a user's function.
class Callback final : public Completion {
 public:
  // Creates the completion thread if there is none yet; throws kSystem if that fails.
  Callback(RealContext& context, const CallOptions& options);
  // The request of a detached operation; it is freed after the call.
  void owns(std::uint64_t request) noexcept { request_ = request; }

 private:
  void run() noexcept override;

  aiacc_callback_t function_;
  void* arg_;
  std::uint64_t request_ = AIACC_NULL;
};

// Exists while this thread runs a function of the user that must not block.
class InsideCallback {
 public:
  InsideCallback() noexcept;
  ~InsideCallback();
  InsideCallback(const InsideCallback&) = delete;
  InsideCallback& operator=(const InsideCallback&) = delete;

 private:
  bool before_;
};

// Throws kInvalidState inside a callback: `call` might wait there for an operation that needs the completion thread.
void refuse_to_block(const char* call);

}  // namespace aiacc::abi
