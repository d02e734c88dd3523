#include "runtime/info/ways.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/fd.h"
#include "base/io/host_addresses.h"
#include "base/io/limits.h"
#include "base/io/real_loop.h"
#include "runtime/bootstrap/networks.h"
#include "transports/active/active_port_factory.h"
#include "transports/ofi/ofi_library.h"
#include "transports/ucx/ucx_library.h"

namespace aiacc::info {

namespace {

constexpr std::size_t kPage = 4096;

std::string failed(std::string_view what) { return system_error(what, errno).message(); }

Way shared_memory() {
  Way way{"shared memory", false, "", "allow memfd_create and shared mappings (seccomp profile of the container)"};
  const Fd memfd(memfd_create("aiacc-info", MFD_CLOEXEC));
  if (memfd.get() < 0 || ftruncate(memfd.get(), kPage) != 0) {
    way.why = failed("memfd_create");
    return way;
  }
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  if (page == MAP_FAILED) {
    way.why = failed("a shared mapping");
    return way;
  }
  std::memset(page, 1, 1);
  munmap(page, kPage);
  return {"shared memory", true, "a memfd that ranks inherit; /dev/shm is not used", ""};
}

// Lets a child process read a word of this process through the kernel. Returns its errno, 0 if it succeeded, -1 if it read
// something else. As between local peers, the reader is no ancestor of the process that it reads. The child makes system calls
// only, without the C library's fork handlers, and its end raises no signal, so the program does not notice it.
int read_by_another_process() {
  volatile std::uint64_t word = 0x1234567890ABCDEF;
  const pid_t self = getpid();
  const auto child = static_cast<pid_t>(syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) {
    std::uint64_t seen = 0;
    const iovec here{&seen, sizeof seen};
    const iovec there{const_cast<std::uint64_t*>(&word), sizeof seen};
    const long moved = syscall(SYS_process_vm_readv, self, &here, 1L, &there, 1L, 0L);
    const int result = moved == sizeof seen ? (seen == word ? 0 : 255) : errno;
    for (;;) syscall(SYS_exit_group, result);
  }
  if (child < 0) return errno;
  int status = 0;
  while (waitpid(child, &status, __WALL) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return ENOSYS;  // a filter of system calls ended it
  return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

Way reading_through_the_kernel(const ReadFile& read_file) {
  const int refused = read_by_another_process();
  Way way{"reading through the kernel", refused == 0, "process_vm_readv of a local peer works", ""};
  if (refused == 0) return way;
  way.why = refused < 0 ? "process_vm_readv reads another process of that number (pid namespaces)"
                        : system_error("process_vm_readv of a local peer", refused).message();
  const std::string scope = read_file("/proc/sys/kernel/yama/ptrace_scope").value_or("0");
  if (scope[0] != '0') {
    way.why += fmt::format(", kernel.yama.ptrace_scope is {}", scope[0]);
    way.cure = "sysctl kernel.yama.ptrace_scope=0, or take buffers from aiacc_mem_alloc";
  } else {
    way.cure = "allow process_vm_readv (docker --cap-add SYS_PTRACE), or take buffers from aiacc_mem_alloc";
  }
  return way;
}

bool can_bind(int family) {
  const Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return false;
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  const socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), size) == 0;
}

Way tcp() {
  const bool six = can_bind(AF_INET6);
  if (!six && !can_bind(AF_INET)) {
    return {"tcp", false, failed("no socket can listen"), "allow sockets of IPv4 or IPv6"};
  }
  const std::vector<io::InterfaceAddress> all = io::interface_addresses();
  if (io::choose_addresses(all, "").empty()) {
    return {"tcp", false, "no device that is up has an address that other hosts could reach",
            "bring a network device up"};
  }
  return {"tcp", true, six ? "IPv4 and IPv6" : "IPv4 only", ""};
}

Way over(const active::Library& library, std::span<const std::string> settings, const char* cure) {
  const std::string name(library.transport);
  try {
    io::RealLoop loop;
    return {name, true, ActivePortFactory(loop, library, settings).description() + "; messages cannot be encrypted",
            ""};
  } catch (const Error& error) {
    return {name, false, error.message(), cure};
  }
}

Way over_ucx(std::span<const std::string> settings) {
  const std::string obstacle = obstacle_to_ucx(usable_rdma_devices().others, settings, io::lockable_bytes());
  if (!obstacle.empty()) return {std::string(ucx::kLibrary.transport), false, obstacle, "'ulimit -l unlimited'"};
  return over(ucx::kLibrary, settings, "install UCX (Debian package libucx0) and the module aiacc-ucx.so");
}

}  // namespace

std::vector<Way> try_ways(const ReadFile& read_file, std::span<const std::string> ucx,
                          std::span<const std::string> ofi) {
  return {shared_memory(), reading_through_the_kernel(read_file), tcp(), over_ucx(ucx),
          over(ofi::kLibrary, ofi, "install libfabric (Debian package libfabric1) and the module aiacc-ofi.so")};
}

Json to_json(const std::vector<Way>& ways) {
  Json::Array list;
  for (const Way& way : ways) {
    list.push_back(Json::Object{{"name", way.name}, {"available", way.available}, {"why", way.why}});
  }
  return list;
}

// A missing network is no problem for jobs on one host.
Findings judge(const std::vector<Way>& ways) {
  Findings found;
  const RdmaDevices devices = usable_rdma_devices();
  for (const Way& way : ways) {
    if (way.available || (way.name == "ucx" && devices.others.empty()) || (way.name == "ofi" && !devices.efa)) continue;
    const bool network = way.name == "tcp" || way.name == "ucx" || way.name == "ofi";
    const Finding::Level level = network ? Finding::Level::kNote : Finding::Level::kHurts;
    std::string sentence = way.why;
    if (way.name == "reading through the kernel")
      sentence += ": long blocks of alltoalls and scatters in private memory are copied once more";
    if (way.name == "tcp") sentence += ": jobs on this host only";
    if (way.name == "ofi") sentence += ": the EFA devices of this host are not used";
    if (way.name == "ucx") sentence += ": the RDMA devices of this host are not used";
    found.push_back({level, way.name, std::move(sentence), way.cure});
  }
  return found;
}

}  // namespace aiacc::info
