// Explains why no agent came up on a host: the starter's output and exit status, the likely cause, and the likely
// remedy. Hosts that failed in the same way share one report. Pure: no I/O.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/io/host.h"
#include "launcher/cli/failure.h"
#include "launcher/plan/starter.h"

namespace aiacc::launcher {

struct StartAttempt {
  std::string host;
  Words command;
  bool ssh = false;
  std::string not_run;  // why the starter itself could not be run; with `not_found` if it is missing
  bool not_found = false;
  bool limit = false;                   // no more processes or descriptors here
  std::optional<io::ExitStatus> ended;  // how it ended, if it did
  bool ended_by_us = false;             // aiaccrun ended it
  std::string errors;                   // the end of what it wrote to standard error
  std::string printed;                  // what it printed where an agent should have spoken
  std::string refused;                  // aiaccrun's own reason: another version, silence, an invalid message
  MessageId refused_id = MessageId::kStart;
  std::vector<StartAttempt> earlier;  // earlier attempts on this host, which found no aiaccrun
};

// What went wrong, in one clause, and what to do, for one host.
struct StartCause {
  MessageId id = MessageId::kStart;
  std::string what;
  std::string cure;
};
StartCause explain(const StartAttempt& attempt);

// The lines for the user: the first is the sentence with its id, the others the evidence, indented. The group with the most
// hosts is the sentence; other groups follow as lines of their own.
struct StartReport {
  MessageId id = MessageId::kStart;
  std::string sentence;
  std::vector<std::string> evidence;
};
std::vector<StartReport> report(const std::vector<StartAttempt>& attempts);

// The last lines of `text`, trimmed; `count` at most.
std::vector<std::string> last_lines(const std::string& text, std::size_t count);

// "b", "b and c", "b, c, d and 4 more".
std::string name_hosts(const std::vector<std::string>& names);

}  // namespace aiacc::launcher
