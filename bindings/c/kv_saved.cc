// The key-value store's state in files, one of each server.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "bindings/c/callbacks.h"
#include "bindings/c/guard.h"
#include "bindings/c/kv.h"
#include "groupcomm/kv/saved.h"
#include "runtime/group/group.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

using kv::Store;

void check_path(const char* path) {
  if (path == nullptr || *path == '\0') throw Error(Code::kInvalidArgument, "path is empty");
}

Task<void> save_on_lane(Store* store, int index, std::string* bytes) {
  *bytes = kv::saved_state(store->server(), index, static_cast<int>(store->options().servers.size()));
  co_return;
}

Task<void> restore_on_lane(Store* store, int index, const std::string* bytes) {
  kv::restore_state(store->server(), index, static_cast<int>(store->options().servers.size()), *bytes);
  co_return;
}

// This rank's number among the servers.
std::optional<int> server_index(const KvEntry& entry) {
  const std::vector<int>& servers = entry.store->options().servers;
  const auto found = std::find(servers.begin(), servers.end(), entry.group.group.rank());
  if (found == servers.end()) return std::nullopt;
  return static_cast<int>(found - servers.begin());
}

std::string file_of(const KvEntry& entry, const char* path) {
  return fmt::format("{}.{}", path, entry.group.group.rank());
}

// A file that is there is whole: it gets its name at the end.
void write_file(const std::string& path, const std::string& bytes) {
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) {
    const int why = errno;
    std::remove(partial.c_str());
    throw system_error(fmt::format("cannot write {}", partial), why);
  }
  if (std::rename(partial.c_str(), path.c_str()) != 0)
    throw system_error(fmt::format("cannot rename to {}", path), errno);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw system_error(fmt::format("cannot read {}", path), errno);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw system_error(fmt::format("cannot read {}", path), errno);
  return std::move(text).str();
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_kv_save(aiacc_kv_t kv, const char* path) {
  return guarded([&] {
    refuse_to_block("aiacc_kv_save");
    KvPin pin = pinned_store(kv);
    check_path(path);
    KvEntry& entry = *pin;
    together(entry, [&] {
      const std::optional<int> index = server_index(entry);
      if (!index) return;
      std::string bytes;
      on_lane(entry, [&] { return save_on_lane(entry.store.get(), *index, &bytes); });
      write_file(file_of(entry, path), bytes);
    });
  });
}

aiacc_status_t aiacc_kv_load(aiacc_kv_t kv, const char* path) {
  return guarded([&] {
    refuse_to_block("aiacc_kv_load");
    KvPin pin = pinned_store(kv);
    check_path(path);
    KvEntry& entry = *pin;
    together(entry, [&] {
      const std::optional<int> index = server_index(entry);
      if (!index) return;
      const std::string file = file_of(entry, path), bytes = read_file(file);
      try {
        on_lane(entry, [&] { return restore_on_lane(entry.store.get(), *index, &bytes); });
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("{}: {}", file, error.message()));
      }
    });
  });
}

}  // extern "C"
