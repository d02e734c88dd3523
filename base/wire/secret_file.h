// The job's secret in a file of its user, for jobs that aiaccrun does not start.
#pragma once

#include <string>
#include <string_view>

#include "base/wire/secret.h"

namespace aiacc::wire {

// A command for a shell that makes such a file.
inline constexpr std::string_view kMakeSecretFile = "(umask 077; head -c 32 /dev/urandom >aiacc.secret)";

// The 32 bytes of the file, which nobody but its owner, this user or root, may read or write. Throws kInvalidArgument; the
// sentence begins with `what` and has the cure.
Secret read_secret_file(std::string_view what, const std::string& path);

}  // namespace aiacc::wire
