#include "runtime/info/topology_module.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "base/error.h"

namespace aiacc::info {

// The module is beside the library or in the directory aiacc below it; libaiacc's run path has both. It stays loaded.
Json topology() {
  void* module = dlopen("aiacc-topology.so", RTLD_NOW | RTLD_LOCAL);
  void* symbol = module == nullptr ? nullptr : dlsym(module, "aiacc_topology_describe");
  if (symbol == nullptr) {
    const char* reason = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it for each thread
    return Json::Object{{"missing", reason == nullptr ? "the module aiacc-topology.so is not installed" : reason}};
  }
  const auto describe = reinterpret_cast<char* (*)()>(symbol);
  const std::unique_ptr<char, void (*)(void*)> text(describe(), std::free);
  return text ? Json::parse(text.get()) : Json::Object{{"missing", "no memory for the description"}};
}

}  // namespace aiacc::info
