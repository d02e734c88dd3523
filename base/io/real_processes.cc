#include "base/io/real_processes.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/io/procfs.h"

namespace aiacc::io {
namespace {

struct Name {
  std::string namespaces;
  ProcessId id = 0;
  std::uint64_t began = 0;
};

// "pid:[4026531836] time:[4026531834]"; empty if /proc is missing or belongs to another pid namespace.
std::string namespaces() {
  std::error_code none;
  const std::string self = std::filesystem::read_symlink("/proc/self", none).string();
  if (none || self != fmt::format("{}", ::getpid())) return {};
  const std::string pid = std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
  if (none) return {};
  // Does not exist before Linux 5.6.
  const std::string time = std::filesystem::read_symlink("/proc/self/ns/time", none).string();
  return none ? pid : pid + " " + time;
}

template <class Number>
bool take_number(std::string_view& text, Number& number) {
  const std::size_t space = text.rfind(' ');
  if (space == std::string_view::npos) return false;
  const std::string_view digits = text.substr(space + 1);
  text = text.substr(0, space);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size();
}

std::optional<Name> parse(std::string_view text) {
  Name name;
  if (!take_number(text, name.began) || !take_number(text, name.id) || name.id <= 0) return std::nullopt;
  name.namespaces = text;
  return name;
}

// At most a quarter of the descriptors, to leave the others to the program.
std::size_t most_watched() noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 4 : 0;
}

class RealEnd final : public ProcessEnd, private Watch {
 public:
  RealEnd(RealLoop& loop, ProcessId id) : id_(id), ended_(loop) {}
  ~RealEnd() override { unwatch(); }

  // False if the system does not allow it.
  bool begin(RealLoop& loop, std::uint64_t began) {
    pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, id_, 0)));
    const int reason = pidfd_ ? 0 : errno;
    // Read after the pidfd was opened: if the start time matches, the pidfd refers to that process; otherwise that one
    // has ended.
    const std::optional<ProcessLine> found = read_process(id_);
    if (reason == ESRCH || (found && found->began != began)) {
      ended_.set();
      return true;
    }
    return pidfd_ && found && loop.watch_once(*this, pidfd_.get(), true, false);
  }

  Task<void> wait(Stop& stop) override { co_await ended_.wait(stop); }
  std::string describe() const override { return fmt::format("process {}", id_); }

 private:
  void ready(Ready) noexcept override { ended_.set(); }

  ProcessId id_;
  Event ended_;
  Fd pidfd_;
};

}  // namespace

// Where a process may not watch itself, before Linux 5.3 or behind a seccomp filter, it may watch no other one.
std::string RealProcesses::own_name() const {
  const std::string where = namespaces();
  if (where.empty() || !Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)))) return {};
  const std::optional<ProcessLine> me = read_process(::getpid());
  return me ? fmt::format("{} {} {}", where, me->id, me->began) : std::string();
}

std::unique_ptr<ProcessEnd> RealProcesses::watch(const std::string& text) {
  const std::optional<Name> name = parse(text);
  if (!name || name->id == ::getpid() || name->namespaces.empty() || name->namespaces != namespaces()) return nullptr;
  if (watched_ >= most_watched()) return nullptr;
  try {
    auto end = std::make_unique<RealEnd>(loop_, name->id);
    if (!end->begin(loop_, name->began)) return nullptr;
    ++watched_;
    return end;
  } catch (const Error&) {  // the kernel's limit of watched descriptors was reached
    return nullptr;
  }
}

}  // namespace aiacc::io
