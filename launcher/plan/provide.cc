#include "launcher/plan/provide.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

namespace aiacc::launcher {

namespace {

constexpr const char* kPath = "PYTHONPATH";

// From the folder of aiaccrun: where `make install' puts the Python package, and where a wheel has it.
constexpr std::array kPlaces = {"../share/aiacc/python/aiacc/provide", "../../provide"};

// The folder to be searched for the package; empty if there is none.
std::string folder_of(const std::string& name, const std::filesystem::path& bin) {
  for (const char* place : kPlaces) {
    const std::filesystem::path folder = (bin / place / name).lexically_normal();
    std::error_code absent;
    if (std::filesystem::is_regular_file(folder / name / "__init__.py", absent) ||
        std::filesystem::is_regular_file(folder / "sitecustomize.py", absent)) {
      return folder.string();
    }
  }
  return {};
}

}  // namespace

void provide_packages(std::span<const std::string> names, const std::string& program, std::string_view host,
                      Environment& environment) {
  const std::filesystem::path bin = std::filesystem::path(program).parent_path();
  std::string path;
  for (const std::string& name : names) {
    const std::string folder = folder_of(name, bin);
    if (folder.empty()) {
      throw LaunchError(MessageId::kProvide, kExitLauncher,
                        fmt::format("host {} has no package {} for --provide: it is not installed with {}; install "
                                    "aiacc there again, the same way as here",
                                    host, name, program));
    }
    path += (path.empty() ? "" : ":") + folder;
  }
  if (path.empty()) return;
  // An empty PYTHONPATH is none; an empty entry would be the working directory.
  const std::string_view before = environment.get(kPath);
  environment.set(kPath, before.empty() ? path : fmt::format("{}:{}", path, before));
}

}  // namespace aiacc::launcher
