// What a completion callback may not do: wait.
#pragma once

namespace aiacc::abi {

// This thread runs a completion callback.
bool in_callback() noexcept;
// Throws kInvalidState inside a callback: `call` would wait there for what may need the completion thread.
void refuse_to_block(const char* call);

}  // namespace aiacc::abi
