#include "transports/active/module_loader.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "aiacc/aiacc.h"
#include "base/error.h"
#include "base/guest_environment.h"

namespace aiacc::active {
namespace {

class LibraryEnvironment {
 public:
  LibraryEnvironment(const Library& library, std::span<const std::string> settings)
      : guest_(library.prefix, with_defaults(library, settings)) {}

 private:
  static std::vector<std::string> with_defaults(const Library& library, std::span<const std::string> settings) {
    std::vector<std::string> all(library.defaults.begin(), library.defaults.end());
    all.insert(all.end(), settings.begin(), settings.end());
    return all;
  }
  GuestEnvironment guest_;
};

[[noreturn]] void refuse(const Library& library, const std::string& why) {
  throw Error(Code::kUnsupported, fmt::format("the transport {} is not available: {}", library.transport, why));
}

const char* choice_of(const Library& library, std::span<const std::string> settings) {
  const std::size_t name = library.choice.size();
  for (const std::string& each : settings) {
    if (name > 0 && each.starts_with(library.choice) && each.size() > name + 1 && each[name] == '=') {
      return each.c_str() + name + 1;
    }
  }
  return library.standard_choice;
}

struct Found {
  void* symbol = nullptr;
  std::string why;  // there is none
};

// UCX reads a file ucx.conf in the working directory, which is for others that use it. A relative path in LD_LIBRARY_PATH is found
// from there only.
Found look_up(const char* file, const char* entry) {
  Found found;
  const auto look = [&] {
    void* const loaded = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    found.symbol = loaded == nullptr ? nullptr : dlsym(loaded, entry);
    if (found.symbol != nullptr) return;
    const char* const reason = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it for each thread
    found.why = reason == nullptr ? fmt::format("the module {} is not installed", file) : reason;
  };
  outside_of_working_directory(look);
  if (found.symbol == nullptr) look();
  return found;
}

std::string own_version() {
  return fmt::format("{}.{}.{}", AIACC_VERSION_MAJOR, AIACC_VERSION_MINOR, AIACC_VERSION_PATCH);
}

}  // namespace

const Module& load_from(const Library& library, const char* file, std::span<const std::string> settings) {
  const LibraryEnvironment guest(library, settings);
  const Found found = look_up(file, library.entry);
  if (found.symbol == nullptr) refuse(library, found.why);
  const Module* const module = reinterpret_cast<EntryPoint>(found.symbol)();
  if (module->abi != kModuleAbi || own_version() != module->library_version) {
    refuse(library, fmt::format("the module {} is of aiacc {} (interface {}), and this library is {} (interface {})",
                                file, module->library_version, module->abi, own_version(), kModuleAbi));
  }
  return *module;
}

const Module& load(const Library& library, std::span<const std::string> settings) {
  static std::mutex mutex;
  static std::map<std::string_view, const Module*> modules;
  const std::lock_guard lock(mutex);
  const Module*& module = modules[library.transport];
  if (module == nullptr) module = &load_from(library, library.module, settings);
  return *module;
}

Worker* open_worker(const Library& library, const Module& module, std::span<const std::string> settings) {
  const LibraryEnvironment guest(library, settings);
  char problem[256] = "";
  if (Worker* const worker = module.open(choice_of(library, settings), problem, sizeof problem)) return worker;
  std::string chosen;
  for (const std::string& each : settings) chosen += (chosen.empty() ? " with AIACC_" : ", AIACC_") + each;
  refuse(library, fmt::format("{} {}{} has {}", library.name, module.version(), chosen, problem));
}

}  // namespace aiacc::active
