// A file with what one rank did last, for comparing ranks after a job has hung or failed.
#pragma once

#include <string>

#include "base/json.h"

namespace aiacc {

// Writes {"rank", "host", "reason", "operations"} on one line to PATH.RANK, in place of what was there: a reader finds the old
// or the new file whole. Throws kSystem with a sentence.
void write_record_file(const std::string& path, int rank, const std::string& host, const std::string& reason,
                       Json operations);

}  // namespace aiacc
