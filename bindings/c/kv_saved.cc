// The key-value store's state in files, one of each server, written and read by who serves its parts.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

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

// What this rank serves: the number of a server, and its file, which has its rank.
struct Served {
  int server = 0;
  std::string file, bytes;
};

Task<void> save_on_lane(Store* store, const std::string* path, std::vector<Served>* all) {
  const std::vector<int>& servers = store->options().servers;
  for (const int server : store->server().served()) {
    all->push_back({server, fmt::format("{}.{}", *path, servers[static_cast<std::size_t>(server)]),
                    kv::saved_state(store->server(), server, static_cast<int>(servers.size()))});
  }
  co_return;
}

Task<void> name_on_lane(Store* store, const std::string* path, std::vector<Served>* all) {
  for (const int server : store->server().served()) {
    all->push_back(
        {server, fmt::format("{}.{}", *path, store->options().servers[static_cast<std::size_t>(server)]), {}});
  }
  co_return;
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

void load_file(KvEntry& entry, int server, const std::string& file, const std::string& bytes) {
  try {
    LaneTask::run(entry.context->context().lane(), entry.group.group.default_timeout(),
                  "the replica has not taken its values by the deadline",
                  [&](Stop& stop) { return entry.store->load(stop, server, bytes); });
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", file, error.message()), error.peer());
  }
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_kv_save(aiacc_kv_t kv, const char* path) {
  return guarded([&] {
    refuse_to_block("aiacc_kv_save");
    KvPin pin = pinned_store(kv);
    check_path(path);
    KvEntry& entry = *pin;
    const std::string name = path;
    together(entry, "aiacc_kv_save", false, [&] {
      std::vector<Served> all;
      on_lane(entry, [&] { return save_on_lane(entry.store.get(), &name, &all); });
      for (const Served& one : all) write_file(one.file, one.bytes);
    });
  });
}

aiacc_status_t aiacc_kv_load(aiacc_kv_t kv, const char* path) {
  return guarded([&] {
    refuse_to_block("aiacc_kv_load");
    KvPin pin = pinned_store(kv);
    check_path(path);
    KvEntry& entry = *pin;
    const std::string name = path;
    together(entry, "aiacc_kv_load", false, [&] {
      std::vector<Served> all;
      on_lane(entry, [&] { return name_on_lane(entry.store.get(), &name, &all); });
      for (Served& one : all) one.bytes = read_file(one.file);
      for (const Served& one : all) load_file(entry, one.server, one.file, one.bytes);
    });
  });
}

}  // extern "C"
