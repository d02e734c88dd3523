// Completion callbacks: told on their context's completion thread, where nothing may wait.
#pragma once

#include "bindings/c/state.h"

namespace aiacc::abi {

// One due call of a user's function.
class Callback final : public Completion {
 public:
  // Makes the thread if there is none yet; throws kSystem if that fails.
  Callback(RealContext& context, const CallOptions& options);
  // The request of a detached operation, which ends with the call.
  void owns(std::uint64_t request) noexcept { request_ = request; }

 private:
  void run() noexcept override;

  aiacc_callback_t function_;
  void* arg_;
  std::uint64_t request_ = AIACC_NULL;
};

// Throws kInvalidState inside a callback: `call` would wait there for what may need the completion thread.
void refuse_to_block(const char* call);

}  // namespace aiacc::abi
