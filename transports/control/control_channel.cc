#include "transports/control/control_channel.h"

#include <algorithm>

namespace aiacc {
namespace {

constexpr Duration kFlushWithin = std::chrono::seconds(1);

}  // namespace

void ControlChannel::post(int to, const Subject& about, wire::Bytes bytes) noexcept {
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.channel = this;
  outgoing.self = std::prev(outgoing_.end());
  outgoing.bytes = std::move(bytes);
  const Member& self = world_->member(rank_);
  MessageHeader header;
  header.kind = MessageKind::kControl;
  header.traffic = TrafficClass::kControl;
  header.member = self.id;
  header.incarnation = self.incarnation;
  header.group = about.group;
  header.sequence = about.operation.sequence;
  header.step = about.operation.tag.step;
  header.algorithm = about.operation.tag.algorithm;
  header.length = header.total = outgoing.bytes.size();
  header.sent_ns = loop_.now().time_since_epoch().count();
  const Buffer piece{outgoing.bytes.data(), outgoing.bytes.size()};
  port_.post(to, header, {&piece, 1}, outgoing);
}

void ControlChannel::sent(std::list<Outgoing>::iterator message) noexcept {
  outgoing_.erase(message);
  sent_.set();
}

Task<void> ControlChannel::flush(Stop& stop) {
  Stop limit(stop);
  const Deadline deadline(loop_, after(loop_.now(), kFlushWithin), limit, "members of an aborted group cannot be told");
  while (!outgoing_.empty()) {
    sent_.reset();
    try {
      co_await sent_.wait(limit);
    } catch (const Error&) {
      if (stop.requested()) throw;
      co_return;
    }
  }
}

MessageReceiver::Placement ControlChannel::on_header(int from, const MessageHeader& header) noexcept {
  constexpr MessageReceiver::Placement kDropped{MessageReceiver::Placement::Action::kDrop, {}};
  if (header.length > wire::kMaxControlBytes || header.length != header.total) return kDropped;
  Incoming& incoming = incoming_.emplace_back(Incoming{from, header, wire::Bytes(header.length)});
  return {MessageReceiver::Placement::Action::kInto, Buffer{incoming.bytes.data(), incoming.bytes.size()}};
}

void ControlChannel::on_placed(int from, const MessageHeader& header) noexcept {
  const auto found = std::find_if(incoming_.begin(), incoming_.end(), [&](const Incoming& incoming) {
    return incoming.from == from && incoming.header.group == header.group && incoming.header.length == header.length &&
           incoming.header.sequence == header.sequence && incoming.header.tag() == header.tag() &&
           incoming.header.sent_ns == header.sent_ns;
  });
  if (found == incoming_.end()) return;
  const wire::Bytes bytes = std::move(found->bytes);
  incoming_.erase(found);
  try {
    wire::Reader reader(bytes, "a control message");
    std::uint16_t type = 0;
    reader.get(type);
    const auto receiver = receivers_.find(type);
    if (receiver == receivers_.end()) return;
    receiver->second(from, {header.group, WireId(header.sequence, header.tag())}, reader);
  } catch (const Error&) {  // a malformed message is dropped; peers of another version were refused in the handshake
  }
}

void ControlChannel::peer_lost(int rank) noexcept {
  std::erase_if(incoming_, [rank](const Incoming& incoming) { return incoming.from == rank; });
}

}  // namespace aiacc
