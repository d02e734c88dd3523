// Failures of the launcher itself: each has a stable id, documented under DIAGNOSTICS in aiaccrun(1), and an exit code.
//
// A line on the terminal reads "aiaccrun: SENTENCE [ID]". The table below is the only list of ids: a test compares it with
// the manual.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace aiacc::launcher {

// Exit codes of aiaccrun that are not a rank's own. The manual has them in one table.
inline constexpr int kExitOk = 0;
inline constexpr int kExitWrongState = 1;  // a rank exited 0 in a state it must not leave in
inline constexpr int kExitUsage = 2;       // an invalid request; nothing was started
inline constexpr int kExitTimeout = 124;   // --timeout passed
inline constexpr int kExitLauncher = 125;  // aiaccrun, a keeper, an agent or a host failed
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitReaderLeft = 141;  // 128 + SIGPIPE: the reader of aiaccrun's output closed it

enum class MessageId : std::uint8_t {
  // Refused before anything starts.
  kOption,
  kValue,
  kUsage,
  kProgram,
  kNotExecutable,
  kWdir,
  kRanks,
  kSlots,
  kHosts,
  kVariable,
  kProvide,
  // No agent came up on a host.
  kSshMissing,
  kSshResolve,
  kSshUnreachable,
  kSshRefused,
  kSshHostKey,
  kSshAuth,
  kSshDropped,
  kRemoteMissing,
  kRemoteVersion,
  kStart,
  // Remarks while the job starts and runs; the job goes on.
  kBusy,
  kUnbound,
  kTopology,
  kRankStopped,
  kRankLost,
  kWaiting,
  kSameMachine,
  kDiscovery,
  kNewRanks,
  kHostLeaves,
  kStdin,
  kIgnored,
  // How a job ended.
  kRankExit,
  kRankSignal,
  kRankMemory,
  kRankState,
  kPathLost,
  kTimeout,
  kElastic,
  kInterrupted,
  kOutputLost,
  kStrangers,
  kStdout,
  kLimit,
  kMemory,
  kIsolate,
  kVersions,
  kClaim,
  kAgent,
  kHostLost,
  kLeftover,
  kInternal,
};

struct MessageKind {
  MessageId id;
  const char* name;     // "AR-SLOTS"
  const char* meaning;  // one clause; the manual says more
};

std::span<const MessageKind> message_kinds() noexcept;
std::string_view message_name(MessageId id) noexcept;
// Of an error that aiaccrun did not expect: what the system refuses it, it refuses by a limit nearly always.
MessageId unexpected(const std::exception& error) noexcept;
// Whether --quiet leaves it out.
bool is_remark(MessageId id) noexcept;

// "aiaccrun: SENTENCE [AR-ID]", without a newline; unprintable bytes of the sentence become \xNN.
std::string message_line(MessageId id, std::string_view sentence);

// Ends the launcher; what() is the sentence without prefix and id.
class LaunchError : public Error {
 public:
  LaunchError(MessageId id, int exit_code, std::string sentence);
  MessageId id() const noexcept { return id_; }
  int exit_code() const noexcept { return exit_code_; }

 private:
  MessageId id_;
  int exit_code_;
};

// The request itself is invalid: exit code 2.
class UsageError : public LaunchError {
 public:
  UsageError(MessageId id, std::string sentence) : LaunchError(id, kExitUsage, std::move(sentence)) {}
};

}  // namespace aiacc::launcher
