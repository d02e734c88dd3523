// A file with the last operations of one rank, for comparing ranks after a job has hung or failed.
#pragma once

#include <string>

#include "base/json.h"

namespace aiacc {

// Writes {"rank", "host", "reason", "operations"} on one line to PATH.RANK, atomically replacing an existing file: a
// reader sees the complete old or new file. Throws kSystem with a sentence.
void write_record_file(const std::string& path, int rank, const std::string& host, const std::string& reason,
                       Json operations);

}  // namespace aiacc
