#include "base/guest_environment.h"

#include <sched.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace aiacc {
namespace {

std::string_view variable_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

// Each list that was ever in use, because another thread may still read it.
struct List {
  std::vector<std::string> entries;
  std::vector<char*> pointers;
};

char** keep(std::vector<std::string> entries) {
  static std::mutex mutex;
  static std::deque<List> lists;
  const std::lock_guard lock(mutex);
  List& list = lists.emplace_back();
  list.entries = std::move(entries);
  for (std::string& entry : list.entries) list.pointers.push_back(entry.data());
  list.pointers.push_back(nullptr);
  return list.pointers.data();
}

}  // namespace

GuestEnvironment::GuestEnvironment(std::string_view without, std::span<const std::string> settings) : users_(environ) {
  std::map<std::string_view, std::string_view> set;
  for (const std::string& entry : settings) set[variable_of(entry)] = entry;
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view name = variable_of(*entry);
    if (!name.starts_with(without) && !set.contains(name)) entries.emplace_back(*entry);
  }
  for (const auto& [name, entry] : set) {
    if (entry.size() > name.size()) entries.emplace_back(entry);
  }
  environ = mine_ = keep(std::move(entries));
}

GuestEnvironment::~GuestEnvironment() {
  if (environ == mine_) environ = users_;
}

void outside_of_working_directory(const std::function<void()>& work) {
  std::thread elsewhere;
  try {
    elsewhere = std::thread([&work] {
      [[maybe_unused]] const bool has_left = unshare(CLONE_FS) == 0 && chdir("/proc/self") == 0;
      work();
    });
  } catch (const std::system_error&) {  // no thread can be made
    return work();
  }
  elsewhere.join();
}

}  // namespace aiacc
