#include "base/io/machine_mark.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "base/io/procfs.h"

namespace aiacc::io {

std::string machine_mark() {
  std::optional<std::string> boot = read_small_file("/proc/sys/kernel/random/boot_id");
  if (!boot || boot->empty()) return {};
  std::string mark = boot->substr(0, boot->find('\n'));
  for (const char* space : {"net", "uts", "ipc"}) {
    std::error_code none;
    const std::string link = std::filesystem::read_symlink(fmt::format("/proc/self/ns/{}", space), none).string();
    if (none) return {};
    mark += " " + link;
  }
  for (const char* path : {"/", "/dev/shm"}) {
    struct stat found = {};
    mark += ::stat(path, &found) == 0 ? fmt::format(" {}:{}", found.st_dev, found.st_ino) : " none";
  }
  return mark;
}

}  // namespace aiacc::io
