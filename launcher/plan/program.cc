#include "launcher/plan/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "launcher/plan/environment.h"

namespace aiacc::launcher {

namespace {

constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";  // when PATH is unset

// Hidden: in a folder that we may not search.
enum class Found : std::uint8_t { kNothing, kHidden, kNotExecutable, kProgram };

Found look_at(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return errno == EACCES ? Found::kHidden : Found::kNothing;
  return S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0 ? Found::kProgram : Found::kNotExecutable;
}

std::string in_directory(const std::string& path, const std::string& directory) {
  if (path.front() == '/') return path;
  return directory + (directory.ends_with('/') ? "" : "/") + path.substr(path.starts_with("./") ? 2 : 0);
}

// A message must fit on a screen: of a long PATH it has the beginning and the number of folders.
std::string shortened(const std::string& path) {
  constexpr std::size_t kEnough = 60;
  if (path.size() <= kEnough) return path;
  const std::size_t last_colon = path.rfind(':', kEnough);
  const auto folders = std::count(path.begin(), path.end(), ':') + 1;
  return fmt::format("{}:..., {} folders", path.substr(0, std::min(last_colon, kEnough)), folders);
}

void check_directory(const std::string& directory) {
  const std::string what = fmt::format("the working directory {} of the ranks", directory);
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) {
    throw UsageError(MessageId::kWdir,
                     system_error(what + " cannot be used", errno).message() + "; create it or change --wdir");
  }
  if (!S_ISDIR(status.st_mode)) throw UsageError(MessageId::kWdir, what + " is no directory; change --wdir");
  if (access(directory.c_str(), X_OK) != 0) {
    throw UsageError(MessageId::kWdir, system_error(what + " may not be entered", errno).message() + "; change --wdir");
  }
}

// How a script is started that has no permission to be executed, or is looked up in PATH.
std::string by_its_interpreter(const std::string& path) {
  return path.ends_with(".py") ? fmt::format("write python {}", path) : "start it by its interpreter";
}

// What to write for a program without a slash that is no file of PATH but one of the working directory.
std::string in_working_directory(const std::string& program, const std::string& cwd) {
  const std::string path = in_directory(program, cwd);
  const Found found = look_at(path);
  if (found == Found::kProgram) return fmt::format("; for the one in the working directory write ./{}", program);
  if (found != Found::kNotExecutable || std::filesystem::is_directory(path)) return "";
  return fmt::format("; the one in the working directory has no permission to be executed: {}",
                     by_its_interpreter(program));
}

[[noreturn]] void not_executable(const std::string& program, const std::string& path) {
  struct stat status {};
  const bool directory = stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  throw LaunchError(MessageId::kNotExecutable, kExitNotExecutable,
                    directory
                        ? fmt::format("{} is a directory ({}) and no program", program, path)
                        : fmt::format("{} cannot be executed ({}): no permission; chmod +x it, or {}", program, path,
                                      by_its_interpreter(program.find('/') == std::string::npos ? path : program)));
}

}  // namespace

std::string find_program(const std::string& program, const std::string& cwd, const std::vector<std::string>& env) {
  check_directory(cwd);
  if (program.find('/') != std::string::npos) {
    std::string path = in_directory(program, cwd);
    const Found found = look_at(path);
    if (found == Found::kProgram) return path;
    if (found == Found::kNotExecutable || found == Found::kHidden) not_executable(program, path);
    throw LaunchError(MessageId::kProgram, kExitNotFound,
                      fmt::format("{} is not there (looked for {})", program, path));
  }

  const Environment environment(env);
  std::string_view rest = environment.has("PATH") ? environment.get("PATH") : kDefaultPath;
  const std::string searched(rest);
  std::string unusable;
  for (;;) {
    const std::size_t colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));  // an empty one is the working directory
    std::string path = in_directory(folder.empty() ? program : fmt::format("{}/{}", folder, program), cwd);
    const Found found = look_at(path);
    if (found == Found::kProgram) return path;
    if (found == Found::kNotExecutable && unusable.empty()) unusable = path;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  if (!unusable.empty()) not_executable(program, unusable);
  throw LaunchError(
      MessageId::kProgram, kExitNotFound,
      fmt::format("{} was not found in PATH ({}){}", program, shortened(searched), in_working_directory(program, cwd)));
}

}  // namespace aiacc::launcher
