// TrafficRows: what each connection of this rank carries, for the timeline: the bytes a second between two looks. The port counts
// anyway (ConnectionTraffic); a look reads the counts. An interval without bytes is told once, after one that had some.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/time.h"
#include "transports/message.h"

namespace aiacc {

class TrafficRows {
 public:
  struct Rate {
    int rank = 0;  // the peer
    std::size_t number = 0;
    Instant from{};                   // until the next one of the connection
    double sent = 0.0, received = 0;  // bytes a second
  };
  using Count = std::function<std::vector<ConnectionTraffic>()>;

  explicit TrafficRows(Count count) : count_(std::move(count)) {}

  // What was carried before `now` does not count.
  void begin(Instant now);
  void look(Instant now);
  std::size_t untaken() const noexcept { return rates_.size(); }
  // Of the looks since the last call, in order.
  std::vector<Rate> take() { return std::exchange(rates_, {}); }

 private:
  struct Last {
    std::uint64_t sent = 0, received = 0;
    bool moved = false;
  };
  Count count_;
  Instant looked_{};
  std::map<std::pair<int, std::size_t>, Last> last_;
  std::vector<Rate> rates_;
};

}  // namespace aiacc
