// How much memory may still be touched on this host. No system call reports a control group's limit, and the kernel
// kills processes that exceed it. Code that is about to touch much memory therefore compares first, and refuses with
// both numbers (design decision 5).
#pragma once

#include <cstdint>
#include <string>

#include "base/cgroups.h"

namespace aiacc {

struct MemoryRoom {
  std::uint64_t bytes = UINT64_MAX;
  std::string limit;  // the limit that applies: "MemAvailable" or a control group's file, with its value
};

// The minimum of MemAvailable and the remaining room of each control group of this process (versions 1 and 2) and of
// each of its ancestors. The room is limit minus use; file pages that can be dropped do not count as used.
MemoryRoom memory_room(const ReadFile& read_file);

// Reads a file of the real host.
std::optional<std::string> read_host_file(const std::string& path);

// Throws kOutOfMemory with both numbers if `bytes` for `what` ("4 ranks need …") do not fit.
void require_memory(std::uint64_t bytes, const std::string& what, const ReadFile& read_file);

std::string bytes_text(std::uint64_t bytes);  // "1.5 GiB"

}  // namespace aiacc
