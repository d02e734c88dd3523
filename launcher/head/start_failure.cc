#include "launcher/head/start_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/printable.h"

namespace aiacc::launcher {

namespace {

constexpr std::size_t kShownLines = 5;
constexpr std::size_t kShownColumns = 200;
constexpr int kSshFailed = 255;

// OpenSSH's messages, by cause. The first match counts: a changed key also causes "verification failed".
struct SshSign {
  std::string_view text;
  MessageId id;
  std::string_view what;
  std::string_view cure;  // {} is the host
};
constexpr std::array kSshSigns = {
    SshSign{"Could not resolve hostname", MessageId::kSshResolve, "its name is not known here",
            "check the spelling of {}, or give its address"},
    SshSign{"REMOTE HOST IDENTIFICATION HAS CHANGED", MessageId::kSshHostKey,
            "its host key is not the one that this account knows",
            "if the host was set up anew: ssh-keygen -R {}, then ssh {} once"},
    SshSign{"Host key verification failed", MessageId::kSshHostKey, "its host key is not known to this account",
            "log in once by hand: ssh {}"},
    SshSign{"Permission denied", MessageId::kSshAuth, "ssh may not log in without asking for a password",
            "set up a key that needs none: ssh-copy-id {}, or ssh-agent for its passphrase"},
    SshSign{"Too many authentication failures", MessageId::kSshAuth, "ssh offered too many keys and was turned away",
            "name the key for {} in ~/.ssh/config (IdentityFile, IdentitiesOnly yes)"},
    SshSign{"Connection refused", MessageId::kSshRefused, "nothing listens on its ssh port",
            "start sshd on {}, or give its port (port=N in a host file)"},
    SshSign{"No route to host", MessageId::kSshUnreachable, "the network does not reach it",
            "check that {} is up and in the same network"},
    SshSign{"Network is unreachable", MessageId::kSshUnreachable, "the network does not reach it",
            "check that {} is up and in the same network"},
    SshSign{"timed out", MessageId::kSshUnreachable, "it does not answer",
            "check that {} is up, and firewalls on the way"},
    SshSign{"kex_exchange_identification", MessageId::kSshDropped, "its sshd dropped the connection",
            "too many log-ins at once? see MaxStartups in sshd_config of {}"},
    SshSign{"Connection closed by", MessageId::kSshDropped, "its sshd dropped the connection",
            "see the log of sshd on {}"},
    SshSign{"Connection reset by", MessageId::kSshDropped, "its sshd dropped the connection",
            "see the log of sshd on {}"},
};

std::string with_host(std::string_view pattern, const std::string& host) {
  std::string text(pattern);
  for (std::size_t at = 0; (at = text.find("{}", at)) != std::string::npos; at += host.size())
    text.replace(at, 2, host);
  return text;
}

StartCause explain_end(const StartAttempt& attempt) {
  const io::ExitStatus status = *attempt.ended;
  if (attempt.ended_by_us) {
    return {MessageId::kStart, quoted(attempt.command.front()) + " closed its output before an agent answered",
            "try its command line by hand"};
  }
  if (attempt.ssh && status.code == kSshFailed) {
    for (const SshSign& sign : kSshSigns) {
      if (attempt.errors.find(sign.text) == std::string::npos) continue;
      return {sign.id, std::string(sign.what), with_host(sign.cure, attempt.host)};
    }
  }
  if (status.code == 127) {
    return {MessageId::kRemoteMissing, "there is no aiaccrun on it",
            "install the same version there, at the same path or in the PATH of its login shell"};
  }
  if (status.code == 126) {
    return {MessageId::kRemoteMissing, "aiaccrun on it cannot be executed",
            "see its permissions, and that it was built for that machine"};
  }
  const std::string how = status.signal != 0 ? fmt::format("was killed by signal {}", status.signal)
                                             : fmt::format("exited with status {}", status.code);
  const bool srun = attempt.command.front() == "srun";
  return {MessageId::kStart, fmt::format("{} {} before an agent answered", quoted(attempt.command.front()), how),
          srun ? "if the Slurm job is over, unset SLURM_JOB_ID; --launch-agent ssh does without srun"
               : "try its command line by hand"};
}

// Hosts with the same cause and the same exit status are reported together.
std::string kind_of(const StartAttempt& attempt, const StartCause& cause) {
  const int code = attempt.ended ? attempt.ended->shell_code() : -1;
  return fmt::format("{} {} {}", static_cast<int>(cause.id), code, cause.what);
}

std::string shown(const std::string& line) {
  const std::string_view begin = shortened(line, kShownColumns);
  return std::string(begin) + (begin.size() < line.size() ? "..." : "");
}

std::string end_of(const StartAttempt& attempt) {
  if (attempt.ended_by_us) return "  it was still running, and was ended";
  return attempt.ended->signal != 0 ? fmt::format("  it was killed by signal {}", attempt.ended->signal)
                                    : fmt::format("  exit code {}", attempt.ended->code);
}

std::vector<std::string> evidence_of(const StartAttempt& attempt) {
  if (attempt.limit) return {};
  std::vector<std::string> lines;
  for (const StartAttempt& earlier : attempt.earlier) {
    for (std::string& line : evidence_of(earlier)) lines.push_back(std::move(line));
  }
  lines.push_back("  command: " + quoted(attempt.command));
  if (attempt.ended) lines.push_back(end_of(attempt));
  for (const std::string& line : last_lines(attempt.errors, kShownLines)) lines.push_back("  stderr: " + shown(line));
  for (const std::string& line : last_lines(attempt.printed, kShownLines)) lines.push_back("  printed: " + shown(line));
  return lines;
}

}  // namespace

std::vector<std::string> last_lines(const std::string& text, std::size_t count) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line;
    for (std::string_view rest = std::string_view(text).substr(begin, end - begin); !rest.empty();) {
      // Escape sequences of other programs are shown, not executed.
      const std::size_t length = rest.front() == '\t' ? 1 : printable_length(rest);
      line += rest.substr(0, length);
      rest.remove_prefix(std::max<std::size_t>(length, 1));
    }
    if (line.find_first_not_of(" \t") != std::string::npos) lines.push_back(std::move(line));
    begin = end + 1;
  }
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

std::string name_hosts(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 8;
  const std::size_t shown = std::min(names.size(), kNamed);
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == shown && shown == names.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + names[i];
  }
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

StartCause explain(const StartAttempt& attempt) {
  if (attempt.limit) return {MessageId::kLimit, attempt.not_run, ""};
  if (!attempt.not_run.empty()) {
    if (attempt.ssh && attempt.not_found) {
      return {MessageId::kSshMissing, "there is no ssh in PATH here",
              "install it (Debian: openssh-client), or name another way with --launch-agent"};
    }
    return {MessageId::kStart, attempt.not_run, "check --launch-agent"};
  }
  if (!attempt.refused.empty()) return {attempt.refused_id, attempt.refused, ""};
  if (attempt.ended) return explain_end(attempt);
  return {MessageId::kStart, "no agent answered", "try its command line by hand"};
}

std::vector<StartReport> report(const std::vector<StartAttempt>& attempts) {
  struct Group {
    std::string kind;
    StartCause cause;
    const StartAttempt* first;
    std::vector<std::string> hosts;
  };
  std::vector<Group> groups;
  for (const StartAttempt& attempt : attempts) {
    StartCause cause = explain(attempt);
    const std::string kind = kind_of(attempt, cause);
    auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.kind == kind; });
    if (same == groups.end()) same = groups.insert(same, Group{kind, std::move(cause), &attempt, {}});
    same->hosts.push_back(attempt.host);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.hosts.size() > b.hosts.size(); });
  std::vector<StartReport> reports;
  for (const Group& group : groups) {
    std::string sentence = fmt::format("no agent on host{} {}: {}", group.hosts.size() == 1 ? "" : "s",
                                       name_hosts(group.hosts), group.cause.what);
    if (!group.cause.cure.empty()) sentence += "; " + group.cause.cure;
    reports.push_back({group.cause.id, std::move(sentence), evidence_of(*group.first)});
  }
  return reports;
}

}  // namespace aiacc::launcher
