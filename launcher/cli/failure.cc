#include "launcher/cli/failure.h"

#include <fmt/format.h>

#include <array>

#include "base/printable.h"

namespace aiacc::launcher {

namespace {

// In the order of the enumeration, which message_name() relies on (checked by failure_test).
constexpr std::array kKinds = {
    MessageKind{MessageId::kOption, "AR-OPTION", "an option is not known, or is given twice"},
    MessageKind{MessageId::kValue, "AR-VALUE", "the value of an option is missing or not allowed"},
    MessageKind{MessageId::kUsage, "AR-USAGE", "the command line lacks something or contradicts itself"},
    MessageKind{MessageId::kProgram, "AR-PROGRAM", "the program was not found"},
    MessageKind{MessageId::kNotExecutable, "AR-NOEXEC", "the program was found and cannot be executed"},
    MessageKind{MessageId::kWdir, "AR-WDIR", "the working directory of the ranks cannot be used"},
    MessageKind{MessageId::kRanks, "AR-RANKS", "the number of ranks is missing or not possible"},
    MessageKind{MessageId::kSlots, "AR-SLOTS", "more ranks than slots"},
    MessageKind{MessageId::kHosts, "AR-HOSTS", "the list of hosts cannot be read"},
    MessageKind{MessageId::kVariable, "AR-VARIABLE",
                "a variable cannot be forwarded as asked, or names a file that is missing"},
    MessageKind{MessageId::kProvide, "AR-PROVIDE", "a host lacks a package of --provide"},
    MessageKind{MessageId::kSshMissing, "AR-SSH-MISSING", "there is no ssh on this host"},
    MessageKind{MessageId::kSshResolve, "AR-SSH-RESOLVE", "the name of a host is not known"},
    MessageKind{MessageId::kSshUnreachable, "AR-SSH-UNREACHABLE", "a host does not answer"},
    MessageKind{MessageId::kSshRefused, "AR-SSH-REFUSED", "a host refuses ssh connections"},
    MessageKind{MessageId::kSshHostKey, "AR-SSH-HOSTKEY", "a host's key is unknown or has changed"},
    MessageKind{MessageId::kSshAuth, "AR-SSH-AUTH", "ssh may not log in without a password"},
    MessageKind{MessageId::kSshDropped, "AR-SSH-DROPPED", "a host's sshd dropped the connection"},
    MessageKind{MessageId::kRemoteMissing, "AR-REMOTE-MISSING", "there is no aiaccrun on a host"},
    MessageKind{MessageId::kRemoteVersion, "AR-REMOTE-VERSION", "a host has another version of aiaccrun"},
    MessageKind{MessageId::kStart, "AR-START", "no agent came up on a host, for another reason"},
    MessageKind{MessageId::kBusy, "AR-BUSY", "more ranks than usable cores; the job runs"},
    MessageKind{MessageId::kUnbound, "AR-UNBOUND", "a binding that was asked for was left out; the job runs"},
    MessageKind{MessageId::kTopology, "AR-TOPOLOGY", "the machine does not show part of its topology; the job runs"},
    MessageKind{MessageId::kRankStopped, "AR-RANK-STOPPED", "a rank was stopped (state T); the job waits for it"},
    MessageKind{MessageId::kRankLost, "AR-RANK-LOST", "a rank failed, and the job goes on without it (--min-np)"},
    MessageKind{MessageId::kWaiting, "AR-WAITING", "hosts or ranks take long; the job waits for them"},
    MessageKind{MessageId::kSameMachine, "AR-SAME-MACHINE", "two names lead to one machine; the job runs"},
    MessageKind{MessageId::kDiscovery, "AR-DISCOVERY", "the script that finds hosts failed; the job runs"},
    MessageKind{MessageId::kNewRanks, "AR-NEW-RANKS", "ranks are started on hosts that were found; the job runs"},
    MessageKind{MessageId::kHostLeaves, "AR-HOST-LEAVES", "a host with ranks is not listed any more; the job runs"},
    MessageKind{MessageId::kStdin, "AR-STDIN", "standard input cannot be read; the job runs"},
    MessageKind{MessageId::kIgnored, "AR-IGNORED",
                "an option of mpirun, horovodrun or torchrun has no effect; the job runs"},
    MessageKind{MessageId::kRankExit, "AR-RANK-EXIT", "a rank exited with a status other than 0"},
    MessageKind{MessageId::kRankSignal, "AR-RANK-SIGNAL", "a rank was killed by a signal"},
    MessageKind{MessageId::kRankMemory, "AR-RANK-MEMORY", "the kernel killed a rank for memory"},
    MessageKind{MessageId::kRankState, "AR-RANK-STATE", "a rank exited with 0 and in a wrong state"},
    MessageKind{MessageId::kPathLost, "AR-PATH-LOST", "the network between two ranks was broken for too long"},
    MessageKind{MessageId::kTimeout, "AR-TIMEOUT", "the time given by --timeout passed"},
    MessageKind{MessageId::kElastic, "AR-ELASTIC", "fewer ranks than --min-np for longer than --elastic-timeout"},
    MessageKind{MessageId::kInterrupted, "AR-INTERRUPTED", "a signal to aiaccrun ended the job"},
    MessageKind{MessageId::kOutputLost, "AR-OUTPUT-LOST", "output that nobody read was dropped at the end"},
    MessageKind{MessageId::kStrangers, "AR-STRANGERS", "connections that were not of the job were turned away"},
    MessageKind{MessageId::kStdout, "AR-STDOUT", "a standard descriptor was closed at the start"},
    MessageKind{MessageId::kLimit, "AR-LIMIT", "a limit of this host on processes, descriptors or sizes was reached"},
    MessageKind{MessageId::kMemory, "AR-MEMORY", "the host has less memory than the job's ranks need"},
    MessageKind{MessageId::kIsolate, "AR-ISOLATE", "the ranks cannot be isolated as asked"},
    MessageKind{MessageId::kVersions, "AR-VERSIONS", "ranks use different versions of the library"},
    MessageKind{MessageId::kClaim, "AR-CLAIM", "two live processes claim the same rank"},
    MessageKind{MessageId::kAgent, "AR-AGENT", "keeper or agent ended before the job did"},
    MessageKind{MessageId::kHostLost, "AR-HOST-LOST", "the connection to a host was lost before the job ended"},
    MessageKind{MessageId::kLeftover, "AR-LEFTOVER", "processes that ranks left behind were ended"},
    MessageKind{MessageId::kInternal, "AR-INTERNAL", "an error of aiaccrun itself"},
};

}  // namespace

std::span<const MessageKind> message_kinds() noexcept { return kKinds; }

std::string_view message_name(MessageId id) noexcept { return kKinds[static_cast<std::size_t>(id)].name; }

MessageId unexpected(const std::exception& error) noexcept {
  const auto* const known = dynamic_cast<const Error*>(&error);
  return known != nullptr && known->code() == Code::kSystem ? MessageId::kLimit : MessageId::kInternal;
}

bool is_remark(MessageId id) noexcept {
  switch (id) {
    case MessageId::kBusy:
    case MessageId::kUnbound:
    case MessageId::kTopology:
    case MessageId::kSameMachine:
    case MessageId::kNewRanks:
    case MessageId::kHostLeaves:
    case MessageId::kIgnored: return true;
    default: return false;
  }
}

std::string message_line(MessageId id, std::string_view sentence) {
  return fmt::format("aiaccrun: {} [{}]", printable(sentence), message_name(id));
}

LaunchError::LaunchError(MessageId id, int exit_code, std::string sentence)
    : Error(exit_code == kExitUsage ? Code::kInvalidArgument : Code::kSystem, std::move(sentence)),
      id_(id),
      exit_code_(exit_code) {}

}  // namespace aiacc::launcher
