// Files that others read: a reader finds the old text or the new one, never a part.
#pragma once

#include <string>
#include <string_view>

namespace aiacc {

// Whether write_whole_file() could write to `path` now: 0, or the errno that says why not. Changes nothing there, so that a
// name that is no good is heard of before the work whose result goes into it.
int check_writable(const std::string& path);

// Puts `text` where `path` leads: into a new file beside it, which then takes its name and has its mode. Whatever fails, the
// old file stays as it was and nothing else remains. What is no regular file (a pipe, /dev/null) is written to.
// 0, or the errno of what failed.
int write_whole_file(const std::string& path, std::string_view text);

}  // namespace aiacc
