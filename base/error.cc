#include "base/error.h"

#include <fmt/format.h>

#include <cstring>
#include <new>

namespace aiacc {

std::string_view code_name(Code code) noexcept {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kInvalidHandle: return "invalid handle";
    case Code::kInvalidState: return "invalid state";
    case Code::kUnsupported: return "unsupported";
    case Code::kOutOfMemory: return "out of memory";
    case Code::kSystem: return "system error";
    case Code::kTimeout: return "timed out";
    case Code::kPeerFailed: return "peer failed";
    case Code::kMismatch: return "mismatch";
    case Code::kAborted: return "aborted";
    case Code::kProtocol: return "protocol error";
    case Code::kPending: return "pending";
    case Code::kInternal: return "internal error";
    case Code::kUnreachable: return "unreachable";
    case Code::kNotFinite: return "not finite";
  }
  return "unknown code";
}

Error::Error(Code code, std::string message, int peer)
    : code_(code), peer_(peer), message_(std::make_shared<const std::string>(std::move(message))) {}

Error system_error(std::string_view what, int errno_value) {
  char text[128];
  const char* reason = strerror_r(errno_value, text, sizeof text);  // the GNU form: may ignore `text`
  const bool memory = errno_value == ENOMEM;
  return Error(memory ? Code::kOutOfMemory : Code::kSystem, fmt::format("{}: {}", what, reason));
}

Error as_error(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known;
  } catch (const std::bad_alloc&) {
    return Error(Code::kOutOfMemory, "out of memory");
  } catch (const std::exception& foreign) {
    return Error(Code::kInternal, foreign.what());
  } catch (...) {
    return Error(Code::kInternal, "an exception of unknown type");
  }
}

void invariant_failed(const char* condition, const char* text, const char* file, int line) {
  throw Error(Code::kInternal, fmt::format("{} ({} at {}:{}); please report this", text, condition, file, line));
}

}  // namespace aiacc
