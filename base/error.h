// The one exception type of the library, and the code that the C ABI reports for it.
//
// A message says what happened, to whom (rank, host, peer), the numbers that disagree, and what to do next.
// Inside, failures are thrown; the C ABI (bindings/c) turns them into a status and keeps the sentence.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

namespace aiacc {

// Values equal those of aiacc_status_t in include/aiacc/aiacc.h (asserted in bindings/c); they only grow.
enum class Code : std::int32_t {
  kOk = 0,
  kInvalidArgument = 1,  // the caller's argument is wrong; nothing was started
  kInvalidHandle = 2,    // stale, foreign or null handle
  kInvalidState = 3,     // before init, after finalize, in a forked child, inside a callback
  kUnsupported = 4,      // a valid request this build or this group cannot serve
  kOutOfMemory = 5,      // memory, shared memory or a memory limit
  kSystem = 6,           // a system call failed; the message carries errno's text
  kTimeout = 7,          // a deadline passed
  kPeerFailed = 8,       // a member died or its host was lost; peer() names it
  kMismatch = 9,         // members disagree on operation, type, count, root, size or version
  kAborted = 10,         // the group was aborted earlier; the message is that of the first error
  kProtocol = 11,        // the other end sent something that the protocol does not allow
  kPending = 12,         // a request is not complete yet (test); never thrown
  kInternal = 13,        // an invariant of this library does not hold
  kUnreachable = 14,     // the network between two members was broken for too long; neither is known to have failed
  kNotFinite = 15,       // a gradient is not finite; the engine that says so goes on
};

std::string_view code_name(Code code) noexcept;

inline constexpr int kNoPeer = -1;

class Error : public std::exception {
 public:
  // `peer` is the rank (in the group of the operation) that the failure is about, or kNoPeer.
  Error(Code code, std::string message, int peer = kNoPeer);

  Code code() const noexcept { return code_; }
  int peer() const noexcept { return peer_; }
  const std::string& message() const noexcept { return *message_; }
  const char* what() const noexcept override { return message_->c_str(); }

 private:
  Code code_;
  int peer_;
  std::shared_ptr<const std::string> message_;  // exceptions are copied while they propagate, which must not throw
};

// Error of a failed system call: "<what>: <strerror(errno_value)>".
Error system_error(std::string_view what, int errno_value);

// Converts any exception to an Error: bad_alloc becomes kOutOfMemory, other types kInternal.
Error as_error(const std::exception_ptr& error) noexcept;

// An invariant of this library. Checked in every build; throws kInternal with file and line.
#define AIACC_INVARIANT(condition, text)                               \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::aiacc::invariant_failed(#condition, text, __FILE__, __LINE__); \
  } while (0)
[[noreturn]] void invariant_failed(const char* condition, const char* text, const char* file, int line);

}  // namespace aiacc
