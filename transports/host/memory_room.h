// How much memory may still be touched on this host. No call reports a control group's limit: past it the kernel kills.
// So whoever is about to touch much memory compares first and refuses with both numbers (design decision 5).
#pragma once

#include <cstdint>
#include <string>

#include "base/cgroups.h"

namespace aiacc {

struct MemoryRoom {
  std::uint64_t bytes = UINT64_MAX;
  std::string limit;  // what leaves so little: "MemAvailable" or a control group's file, with its value
};

// The least of MemAvailable and of what each control group of this process, of both versions, and each of its ancestors
// leaves: limit less use, where file pages that can be dropped do not count as used.
MemoryRoom memory_room(const ReadFile& read_file);

// Files of the real host.
std::optional<std::string> read_host_file(const std::string& path);

// Throws kOutOfMemory with both numbers if `bytes` for `what` ("4 ranks need …") do not fit.
void require_memory(std::uint64_t bytes, const std::string& what, const ReadFile& read_file);

std::string bytes_text(std::uint64_t bytes);  // "1.5 GiB"

}  // namespace aiacc
