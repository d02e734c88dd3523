#include "launcher/agent/process_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>

namespace aiacc::launcher {

namespace {

// The first interval at which remaining processes are polled: short, because aiaccrun waits for it before it returns.
constexpr Duration kFirstLook = std::chrono::milliseconds(1);
constexpr Duration kLongestLook = std::chrono::milliseconds(20);
constexpr Duration kKillLimit = std::chrono::seconds(5);

template <class Number>
std::optional<Number> number_at(std::string_view& text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  Number value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open || close + 3 > text.size()) {
    return std::nullopt;
  }
  ProcessStat stat;
  stat.name = std::string(text.substr(open + 1, close - open - 1));
  stat.state = text[close + 2];
  std::string_view rest = text.substr(close + 3);
  auto parent = number_at<io::ProcessId>(rest);
  auto group = number_at<io::ProcessId>(rest);
  if (!parent || !group) return std::nullopt;
  stat.parent = *parent;
  stat.group = *group;
  return stat;
}

std::optional<ProcessStat> read_process_stat(io::Host& host, io::ProcessId process) {
  auto text = host.read_file(fmt::format("/proc/{}/stat", process));
  return text ? parse_process_stat(*text) : std::nullopt;
}

Ancestry find_ancestry(io::Host& host, io::ProcessId process, std::span<const io::ProcessId> roots,
                       io::ProcessId adopter) {
  Ancestry found;
  io::ProcessId group = 0;
  auto root_of = [&](io::ProcessId id) {
    auto at = std::find(roots.begin(), roots.end(), id);
    return at == roots.end() ? -1 : static_cast<int>(at - roots.begin());
  };
  // A longer chain is not an ancestry but a race with a reused process id.
  for (int depth = 0; depth < 256 && process > 0; ++depth) {
    if (int root = root_of(process); root >= 0) return {root, true};
    if (process == adopter) {
      found.adopted = true;
      found.root = root_of(group);
      return found;
    }
    auto stat = read_process_stat(host, process);
    if (!stat) return found;
    group = stat->group;
    process = stat->parent;
  }
  return found;
}

std::string describe_processes(io::Host& host, std::span<const io::ProcessId> processes) {
  constexpr std::size_t kNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(processes.size(), kNamed); ++i) {
    auto stat = read_process_stat(host, processes[i]);
    if (i > 0) text += ", ";
    text += fmt::format("{} ({})", stat ? stat->name : "?", processes[i]);
  }
  if (processes.size() > kNamed) text += fmt::format(" and {} more", processes.size() - kNamed);
  return text;
}

namespace {

// `find_left` says which processes are still to be killed.
template <class Left>
Task<std::vector<io::ProcessId>> kill_all(Loop& loop, io::Host& host, Left find_left, Duration limit, Stop& stop) {
  const Instant give_up = after(loop.now(), limit);
  Duration look = kFirstLook;
  std::vector<io::ProcessId> left = find_left();
  while (!left.empty() && loop.now() < give_up) {
    for (io::ProcessId process : left) host.signal(process, SIGKILL);
    co_await sleep_for(loop, look, stop);
    look = std::min(2 * look, kLongestLook);
    left = find_left();
  }
  co_return left;
}

}  // namespace

Task<std::vector<io::ProcessId>> kill_group(Loop& loop, io::Host& host, io::ProcessId group, Duration limit,
                                            Stop& stop) {
  auto members = [&host, group] {
    std::vector<io::ProcessId> all = host.descendants();
    std::erase_if(all, [&](io::ProcessId process) {
      const auto stat = read_process_stat(host, process);
      return !stat || stat->group != group;
    });
    return all;
  };
  co_return co_await kill_all(loop, host, members, limit, stop);
}

Task<std::vector<io::ProcessId>> kill_descendants(Loop& loop, io::Host& host, Duration limit, Stop& stop) {
  auto all = [&host] { return host.descendants(); };
  co_return co_await kill_all(loop, host, all, limit, stop);
}

Task<std::vector<io::ProcessId>> end_descendants(Loop& loop, io::Host& host, Duration grace, Stop& stop) {
  const std::vector<io::ProcessId> present = host.descendants();
  if (present.empty()) co_return present;
  for (io::ProcessId process : present) host.signal(process, SIGTERM);
  for (io::ProcessId process : present) host.signal(process, SIGCONT);
  const Instant patience = after(loop.now(), grace);
  Duration look = kFirstLook;
  while (loop.now() < patience) {
    co_await sleep_for(loop, look, stop);
    look = std::min(2 * look, kLongestLook);
    if (host.descendants().empty()) co_return present;
  }
  co_await kill_descendants(loop, host, kKillLimit, stop);
  co_return present;
}

}  // namespace aiacc::launcher
