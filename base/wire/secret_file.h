// The job's secret in a file of its user, for jobs that aiaccrun does not start.
#pragma once

#include <string>
#include <string_view>

#include "base/wire/secret.h"

namespace aiacc::wire {

// A shell command that creates such a file.
inline constexpr std::string_view kMakeSecretFile = "(umask 077; head -c 32 /dev/urandom >aiacc.secret)";

// The 32 bytes of the file, which must belong to this user or root and be accessible to its owner only. Throws
// kInvalidArgument; the sentence begins with `what` and says what to do.
Secret read_secret_file(std::string_view what, const std::string& path);

}  // namespace aiacc::wire
