// Output that is written as a whole, or whose failure is reported. Replacement of files is atomic: a reader sees the old text or the
// new one, never a part.
#pragma once

#include <string>
#include <string_view>

namespace aiacc {

// Returns 0 if write_whole_file() could write to `path` now, otherwise the errno. It changes nothing; with it a program
// reports a bad name before it does the work whose result goes into the file.
int check_writable(const std::string& path);

// Writes `text` to a new file beside `path`'s target, with the target's mode, and renames it to the target. If a step
// fails, the old file is unchanged and no temporary file remains. If the target is not a regular file (a pipe,
// /dev/null), it is written to directly. Returns 0 or the errno of the failure.
int write_whole_file(const std::string& path, std::string_view text);

// Writes `text` to standard output, with all that stdio has buffered for it. Throws kSystem: a full disk is to be told.
void print_whole(const std::string& text);

}  // namespace aiacc
