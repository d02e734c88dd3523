// What two FailoverPorts (transports/failover) say to each other. A message of kind 8 has the type, a u16, and the fields as its payload.
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
  bool over = false;                    // this rank uses the first network for this peer no more
  std::vector<std::uint64_t> complete;  // of each class: all messages with a lower number
  std::vector<Beyond> beyond;           // and from `first` to before `end`
  std::string reason;                   // of `over`
  auto fields() { return std::tie(over, complete, beyond, reason); }
};

}  // namespace aiacc::wire
