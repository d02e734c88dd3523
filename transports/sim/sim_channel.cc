#include "transports/sim/sim_channel.h"

#include <algorithm>
#include <cstring>

#include "transports/sim/sim_fabric.h"
#include "transports/sim/sim_port.h"

namespace aiacc::sim {
namespace {

void copy_pieces(SimMessage& message) {
  message.elided = std::any_of(message.pieces.begin(), message.pieces.end(),
                               [](const Buffer& piece) { return piece.data == nullptr && piece.bytes > 0; });
  if (!message.elided) {
    for (const Buffer& piece : message.pieces) {
      if (piece.bytes > 0) message.payload.insert(message.payload.end(), piece.data, piece.data + piece.bytes);
    }
  }
  message.pieces.clear();
}

void copy_part(const SimMessage& message, const Buffer& place, std::size_t begin, std::size_t end) {
  if (message.elided || place.data == nullptr || begin >= end) return;
  std::memcpy(place.data + begin, message.payload.data() + begin, end - begin);
}

// One message in eight arrives in two halves, at most kSplitNs apart.
constexpr std::uint64_t kSplitOneIn = 8;
constexpr std::uint64_t kSplitNs = 2'000;

}  // namespace

void SimChannel::send(SimMessages& one) {
  one.front().sending = this;
  one.front().self = one.begin();
  sending_.splice(sending_.end(), one);
  if (!departure_.scheduled()) schedule_departure();
}

void SimChannel::take_unsent(SimMessages& into) {
  for (SimMessage& message : sending_) message.sending = nullptr;
  into.splice(into.end(), sending_);
  departure_.cancel();
}

void SimChannel::take_unsent(SimMessage& message, SimMessages& into) {
  const bool was_next = message.self == sending_.begin();
  message.sending = nullptr;
  into.splice(into.end(), sending_, message.self);
  if (!was_next) return;
  departure_.cancel();
  schedule_departure();
}

void SimChannel::drop_flying() noexcept {
  arrival_.cancel();
  fabric_.recycle(flying_);
  fabric_.recycle(placing_);
}

bool SimChannel::revoke(const MessageHeader& header) noexcept {
  if (placing_.empty()) return false;
  const MessageHeader& mine = placing_.front().header;
  if (mine.group != header.group || mine.sequence != header.sequence || mine.tag() != header.tag() ||
      mine.offset != header.offset || mine.kind != header.kind) {
    return false;
  }
  fabric_.recycle(placing_);
  arrival_.cancel();
  schedule_arrival();
  return true;
}

void SimChannel::resume() noexcept {
  if (!arrival_.scheduled()) schedule_arrival();
}

void SimChannel::schedule_departure() noexcept {
  if (sending_.empty() || fabric_.port(from_) == nullptr) return;
  fabric_.world_.schedule(departure_, sending_.front().departs, fabric_.nodes_[static_cast<std::size_t>(from_)]);
}

void SimChannel::schedule_arrival() noexcept {
  if (flying_.empty() || !placing_.empty() || fabric_.is_cut(from_, to_)) return;
  if (fabric_.port(to_) == nullptr) {  // the receiver has left in order, or never had a port
    fabric_.recycle(flying_);
    return;
  }
  fabric_.world_.schedule(arrival_, flying_.front().arrives, fabric_.nodes_[static_cast<std::size_t>(to_)]);
}

void SimChannel::depart() noexcept {
  SimMessages one;
  one.splice(one.end(), sending_, sending_.begin());
  schedule_departure();

  SimMessage& message = one.front();
  copy_pieces(message);
  message.sending = nullptr;
  SendCompletion* completion = message.take_completion();
  const Instant now = fabric_.world_.now();
  message.arrives = after(now, fabric_.latency(from_, to_));
  if (SimPort* receiver = fabric_.port(to_); receiver != nullptr && message.header.length > 0) {
    Instant& in_free = receiver->in_free_[static_cast<std::size_t>(fabric_.queue_of(message.header.traffic))];
    message.arrives = std::max(message.arrives, after(in_free, fabric_.transfer(from_, to_, message.header.length)));
    in_free = message.arrives;
  }
  flying_.splice(flying_.end(), one);
  if (!arrival_.scheduled()) schedule_arrival();
  completion->sent(nullptr);
}

void SimChannel::arrive() noexcept {
  SimPort* receiver = fabric_.port(to_);
  if (!placing_.empty()) {
    place_rest();
    return;
  }
  if (fabric_.is_cut(from_, to_)) return;  // the link was cut meanwhile; heal() continues here
  if (receiver == nullptr) {
    fabric_.recycle(flying_);
    return;
  }
  SimMessages one;
  one.splice(one.end(), flying_, flying_.begin());
  if (receiver->ask(one, place_)) {
    SimMessage& message = one.front();
    Random& random = fabric_.world_.random();
    const std::size_t bytes = place_.bytes;
    if (bytes > 0 && random.below(kSplitOneIn) == 0) {
      copy_part(message, place_, 0, bytes / 2);
      placing_.splice(placing_.end(), one);
      const Instant rest = after(fabric_.world_.now(), Duration(static_cast<std::int64_t>(random.below(kSplitNs))));
      fabric_.world_.schedule(arrival_, rest, fabric_.nodes_[static_cast<std::size_t>(to_)]);
      return;
    }
    copy_part(message, place_, 0, bytes);
    const MessageHeader header = message.header;
    fabric_.recycle(one);
    schedule_arrival();
    receiver->receiver_->on_placed(from_, header);
    return;
  }
  schedule_arrival();
}

void SimChannel::place_rest() noexcept {
  SimMessages one;
  one.splice(one.end(), placing_);
  const MessageHeader header = one.front().header;
  SimPort* receiver = fabric_.port(to_);
  if (receiver != nullptr) copy_part(one.front(), place_, place_.bytes / 2, place_.bytes);
  fabric_.recycle(one);
  schedule_arrival();
  if (receiver != nullptr) receiver->receiver_->on_placed(from_, header);
}

}  // namespace aiacc::sim
