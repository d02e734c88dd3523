// The fixtures of base/io's conformance suites for the simulated implementations. For tests only.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/sim/sim_loop.h"
#include "base/sim/sim_net.h"

namespace aiacc::sim {

class SimFixture {
 public:
  io::Clock& clock() { return clock_; }
  SimLoop& loop() { return loop_; }
  io::Net& net() { return net_; }
  SimNetwork& network() { return network_; }
  World& world() { return world_; }
  template <class T>
  T run(Task<T> task) {
    task.start();
    if (!world_.run_while_not([&task] { return task.done(); })) {
      throw Error(Code::kInternal, "the task waits for something that never comes");
    }
    return task.take();
  }
  std::vector<io::Address> places() {
    return {io::Address::local("test-" + std::to_string(serial_++)), io::Address::tcp("127.0.0.1", 0),
            io::Address::tcp("192.0.2.1", 0)};
  }

 private:
  World world_{77};
  SimClock clock_{world_};
  SimNetwork network_{world_};
  SimLoop loop_{world_, "test"};
  SimNet net_{network_, loop_, 0, {1000, 1}};
  int serial_ = 0;
};

}  // namespace aiacc::sim
