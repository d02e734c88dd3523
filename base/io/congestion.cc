#include "base/io/congestion.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/io/procfs.h"

namespace aiacc::io {
namespace {

bool choose(const Fd& socket, const std::string& name) noexcept {
  return setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

bool paces(const std::string& name) noexcept { return name.starts_with("bbr"); }

// "reno cubic"; empty if the kernel does not say.
std::string listed(const char* which) {
  std::string names = read_small_file(std::string("/proc/sys/net/ipv4/") + which).value_or("");
  while (!names.empty() && names.back() == '\n') names.pop_back();
  return names;
}

[[noreturn]] void refuse_congestion(const std::string& name, int errno_value) {
  const std::string begin = fmt::format("AIACC_TCP_CONGESTION='{}' is not possible: ", name);
  if (errno_value == EPERM) {
    throw Error(Code::kInvalidArgument, fmt::format("{}this user may not choose that congestion control; "
                                                    "net.ipv4.tcp_allowed_congestion_control is '{}'",
                                                    begin, listed("tcp_allowed_congestion_control")));
  }
  throw Error(Code::kInvalidArgument, fmt::format("{}the kernel has no such congestion control; it has {}", begin,
                                                  listed("tcp_available_congestion_control")));
}

}  // namespace

std::string congestion_of(int socket) {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX of the kernel
  socklen_t bytes = name.size();
  if (getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) != 0) return "";
  return {name.data(), strnlen(name.data(), bytes)};
}

void Congestion::prepare(const Fd& socket) {
  if (wanted_ == "system") return;
  if (wanted_ != "auto") {
    if (!choose(socket, wanted_)) refuse_congestion(wanted_, errno);
    return;
  }
  const std::string found = congestion_of(socket.get());
  if (paces(found) && (choose(socket, "cubic") || choose(socket, "reno"))) hosts_choice_ = found;
}

void Congestion::connected(const Fd& socket) const noexcept {
  if (hosts_choice_.empty()) return;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
  if (std::chrono::microseconds(info.tcpi_rtt) >= near_) choose(socket, hosts_choice_);
}

void check_congestion(const std::string& wanted) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket) Congestion(wanted).prepare(socket);  // no sockets on this host: code that needs one will report it
}

}  // namespace aiacc::io
