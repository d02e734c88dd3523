// A shared-memory domain among other users of the machine, who find the names of its sockets in /proc/net/unix.
#include "runtime/bootstrap/shm_discovery.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstring>

namespace aiacc {
namespace {

using namespace std::chrono_literals;

// Processes of another user that connect to a local socket and close, again and again, for 20 s at most.
class Flood {
 public:
  explicit Flood(const std::string& name) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    for (int i = 0; i < kProcesses; ++i) {
      const pid_t child = fork();
      if (child == 0) connect_for_ever(name, ends[1]);
      children_.push_back(child);
    }
    close(ends[1]);
    for (int i = 0; i < kProcesses; ++i) {
      char byte = 0;
      EXPECT_EQ(read(ends[0], &byte, 1), 1) << "it could not be another user";
    }
    close(ends[0]);
  }
  ~Flood() {
    for (const pid_t child : children_) kill(child, SIGKILL);
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
  }
  bool lasts() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](pid_t one) { return waitpid(one, nullptr, WNOHANG) == 0; });
  }

 private:
  static constexpr int kProcesses = 8;

  [[noreturn]] static void connect_for_ever(const std::string& name, int ready) {
    alarm(20);
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (write(ready, "", 1) != 1) _exit(3);  // connecting waits while the queue is full, which it soon is
    while (true) {
      const int caller = socket(AF_UNIX, SOCK_STREAM, 0);
      if (connect(caller, reinterpret_cast<const sockaddr*>(&address), length) != 0) _exit(2);
      close(caller);
    }
  }

  std::vector<pid_t> children_;
};

// Rank 0 answers nothing, so that only its deadline ends the search of rank 1.
TEST(ShmDomainDiscovery, OtherUsersDoNotDelayItsDeadline) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be two users";
  io::RealLoop loop;
  io::RealNet net(loop);
  ShmDomainDiscovery mine(loop, 16 << 20);
  const std::string silent = mine.name() + "-silent";
  const std::unique_ptr<io::Listener> rank_zero = net.listen(io::Address::local(silent));
  wire::Roster roster;
  roster.job = 7;
  roster.secret.assign(wire::Secret::kBytes, 's');
  roster.ranks.resize(2);
  roster.ranks[0].local_name = silent;
  roster.ranks[1].local_name = mine.name();

  const Flood flood(mine.name());
  Stop stop;
  const Deadline deadline(loop, after(loop.now(), 300ms), stop, "rank 0 does not answer");
  try {
    loop.run(mine.find_first(roster, 1, stop));
    ADD_FAILURE() << "nobody answers";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "rank 0 does not answer");
  }
  EXPECT_TRUE(flood.lasts()) << "the deadline waited for them";
}

}  // namespace
}  // namespace aiacc
