// The fixtures of the conformance suites for the real implementations. For tests only.
#pragma once

#include <unistd.h>

#include <string>
#include <vector>

#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"

namespace aiacc::io {

class RealFixture {
 public:
  Clock& clock() { return clock_; }
  RealLoop& loop() { return loop_; }
  Net& net() { return net_; }
  template <class T>
  T run(Task<T> task) {
    return loop_.run(std::move(task));
  }
  std::vector<Address> places() {
    static int serial = 0;
    std::vector<Address> result{
        Address::local("aiacc-test-" + std::to_string(getpid()) + "-" + std::to_string(serial++)),
        Address::tcp("127.0.0.1", 0)};
    if (access("/proc/net/if_inet6", F_OK) == 0) result.push_back(Address::tcp("::1", 0));
    return result;
  }

 private:
  RealClock clock_;
  RealLoop loop_;
  RealNet net_{loop_};
};

}  // namespace aiacc::io
