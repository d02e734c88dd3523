// What two FailoverPorts (transports/failover) say to each other. A message of kind 8 has the type, a u16, and the fields as its payload.
// `epoch` counts the times that the ranks have begun to use the first network, from 0.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace aiacc::wire {

// Which messages of the first network have come, by traffic class and number in it, from 0.
struct Receipts {
  static constexpr std::uint16_t kType = 421;
  struct Beyond {
    std::uint8_t traffic = 0;
    std::uint64_t first = 0;
    std::uint64_t end = 0;
    auto fields() { return std::tie(traffic, first, end); }
  };
  std::uint32_t epoch = 0;
  bool over = false;                    // this rank uses the first network for this peer no more
  std::vector<std::uint64_t> complete;  // of each class: all messages with a lower number
  std::vector<Beyond> beyond;           // and from `first` to before `end`
  std::string reason;                   // of `over`
  auto fields() { return std::tie(epoch, over, complete, beyond, reason); }
};

// A step of the way back to the first network. The lower rank of the two asks.
struct Return {
  static constexpr std::uint16_t kType = 422;
  enum class Step : std::uint8_t {
    kAsk = 1,      // the sender has begun with `epoch`; the other one does so, too
    kReady = 2,    // it has
    kProbe = 3,    // over the first network, one in each class
    kLast = 4,     // one in each class: the sender sends nothing more of this class over the second network
    kDone = 5,     // all kLast have come at the lower rank
    kAbandon = 6,  // the sender does not go back, and has sent nothing over the first network but probes
  };
  Step step = Step::kAbandon;
  std::uint32_t epoch = 0;
  auto fields() { return std::tie(step, epoch); }
};

}  // namespace aiacc::wire
