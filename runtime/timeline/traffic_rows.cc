#include "runtime/timeline/traffic_rows.h"

namespace aiacc {

void TrafficRows::begin(Instant now) {
  last_.clear();
  rates_.clear();
  looked_ = now;
  for (const ConnectionTraffic& each : count_()) last_[{each.rank, each.number}] = {each.sent, each.received};
}

void TrafficRows::look(Instant now) {
  if (now <= looked_) return;
  const double span = seconds(now - looked_);
  for (const ConnectionTraffic& each : count_()) {
    Last& last = last_[{each.rank, each.number}];
    const std::uint64_t sent = each.sent - last.sent, received = each.received - last.received;
    const bool moves = sent > 0 || received > 0;
    if (moves || last.moved) {
      rates_.push_back(
          {each.rank, each.number, looked_, static_cast<double>(sent) / span, static_cast<double>(received) / span});
    }
    last = {each.sent, each.received, moves};
  }
  looked_ = now;
}

}  // namespace aiacc
