#include "base/io/procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>

#include "base/fd.h"
#include "base/io/limits.h"

namespace aiacc::io {
namespace {

constexpr std::size_t kMaxSmallFileBytes = 4u << 20;

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

std::optional<ProcessId> process_number(std::string_view name) {
  ProcessId number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number <= 0) return std::nullopt;
  return number;
}

}  // namespace

std::optional<ProcessLine> read_process(ProcessId process) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%d/stat", process);
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::array<char, 512> text{};
  const ssize_t got = ::read(file.get(), text.data(), text.size() - 1);
  if (got <= 0) return std::nullopt;  // ESRCH: it ended in between
  const std::string_view line(text.data(), static_cast<std::size_t>(got));
  const std::size_t name_end = line.rfind(')');  // the name may contain anything, also parentheses
  if (name_end == std::string_view::npos) return std::nullopt;
  ProcessLine result;
  result.id = process;
  unsigned long long began = 0;  // the 22nd field; the state is the third
  constexpr const char* kForm = " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu";
  if (std::sscanf(text.data() + name_end + 1, kForm, &result.state, &result.parent, &began) != 3) return std::nullopt;
  result.began = began;
  return result;
}

std::vector<ProcessLine> read_processes() {
  const Directory directory(opendir("/proc"));
  if (directory == nullptr) throw limit_error("cannot list /proc", errno);
  std::vector<ProcessLine> result;
  while (const dirent* entry = readdir(directory.get())) {  // NOLINT(concurrency-mt-unsafe): no other thread uses it
    const auto number = process_number(entry->d_name);
    const auto line = number ? read_process(*number) : std::nullopt;
    if (line) result.push_back(*line);
  }
  return result;
}

std::vector<ProcessLine> descendants_of(ProcessId root, const std::vector<ProcessLine>& all) {
  std::multimap<ProcessId, ProcessLine> by_parent;
  for (const ProcessLine& line : all) by_parent.emplace(line.parent, line);
  std::vector<ProcessLine> found;
  ProcessId parent = root;
  for (std::size_t next = 0;; ++next) {
    const auto [begin, end] = by_parent.equal_range(parent);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
    if (next == found.size()) return found;
    parent = found[next].id;
  }
}

std::optional<std::string> read_small_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!file) throw limit_error(fmt::format("cannot open {}", path), errno);
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == ESRCH) return std::nullopt;  // a file of a process that ended
    if (got < 0) throw system_error(fmt::format("cannot read {}", path), errno);
    if (got == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxSmallFileBytes) {
      throw Error(Code::kSystem,
                  fmt::format("{} is larger than the {} bytes that were expected at most", path, kMaxSmallFileBytes));
    }
  }
}

}  // namespace aiacc::io
