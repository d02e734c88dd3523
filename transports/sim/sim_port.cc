#include "transports/sim/sim_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace aiacc::sim {

SimPort::SimPort(SimFabric& fabric, int rank, SimLoop& loop) : fabric_(fabric), rank_(rank), loop_(loop) {}

SimPort::~SimPort() { close(); }

void SimPort::close() noexcept {
  if (closed_) return;
  closed_ = true;
  Job::unlink();
  notifications_.clear();
  for (auto& [rank, peer] : peers_) {
    peer.cancel();
    for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
      SimMessages unsent;
      peer.out[traffic]->take_unsent(unsent);
      fabric_.recycle(unsent);
      peer.in[traffic]->drop_flying();
    }
    fabric_.recycle(peer.held);
  }
  fabric_.ports_[static_cast<std::size_t>(rank_)] = nullptr;
}

SimPort::Peer& SimPort::peer(int rank) {
  const auto found = peers_.find(rank);
  if (found != peers_.end()) return found->second;
  Peer& fresh = peers_.try_emplace(rank, *this, rank).first->second;
  for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
    fresh.out[traffic] = &fabric_.channel(rank_, rank, static_cast<TrafficClass>(traffic));
    fresh.in[traffic] = &fabric_.channel(rank, rank_, static_cast<TrafficClass>(traffic));
  }
  const NodeId node = fabric_.nodes_[static_cast<std::size_t>(rank)];
  if (node != kNobody && fabric_.world_.dead(node)) {
    expect_loss(rank, after(loop_.now(), fabric_.model_.detection), "has died");
  }
  return fresh;
}

void SimPort::post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                   SendCompletion& completion) noexcept {
  Peer& receiver = peer(to_rank);
  if (closed_ || receiver.lost || loop_.dead()) {
    const auto closed = std::make_exception_ptr(Error(Code::kInvalidState, "this port is closed"));
    notify_later({Notification::What::kSent, &completion, receiver.lost ? receiver.reason : closed, to_rank, {}});
    return;
  }
  SimMessages one;
  if (fabric_.spare_.empty()) {
    one.emplace_back();
  } else {
    one.splice(one.end(), fabric_.spare_, fabric_.spare_.begin());
  }
  SimMessage& message = one.front();
  message.header = header;
  message.from = rank_;
  message.to = to_rank;
  message.pieces.assign(pieces.begin(), pieces.end());
  message.promise(completion);

  const auto traffic = static_cast<std::size_t>(fabric_.queue_of(header.traffic));
  const Instant begins = std::max(after(loop_.now(), fabric_.link(rank_, to_rank).overhead), out_free_[traffic]);
  message.departs = after(begins, fabric_.transfer(rank_, to_rank, header.length));
  out_free_[traffic] = message.departs;
  ++fabric_.messages_;
  fabric_.bytes_ += header.length;
  receiver.out[traffic]->send(one);
}

void SimPort::release(int from_rank) noexcept {
  notify_later({Notification::What::kRelease, nullptr, nullptr, from_rank, {}});
}

void SimPort::withdraw(SendCompletion& completion) noexcept {
  const auto error = std::make_exception_ptr(Error(Code::kAborted, "the sender withdrew this message"));
  SimMessages unsent;
  completion.untold.for_each([&](SendCompletion::Message& each) {
    auto& message = static_cast<SimMessage&>(each);
    message.sending->take_unsent(message, unsent);
    notify_later({Notification::What::kSent, &completion, error, kNoPeer, {}});
  });
  fabric_.recycle(unsent);
}

void SimPort::revoke(int from_rank, const MessageHeader& header) noexcept {
  for (SimChannel* in : peer(from_rank).in) {
    if (!in->revoke(header)) continue;
    notify_later({Notification::What::kRevoked, nullptr, nullptr, from_rank, header});
    return;
  }
}

void SimPort::lose(int rank, std::exception_ptr why) noexcept {
  Peer& gone = peer(rank);
  if (closed_ || gone.lost) return;
  gone.reason = std::move(why);
  loop_.world().schedule(gone, loop_.now(), loop_.node());
}

std::optional<BrokenPath> SimPort::broken_path(int rank) const {
  const SimFabric::LinkState* link = fabric_.state(rank_, rank);
  const auto known = peers_.find(rank);
  if (link == nullptr || !link->cut || (known != peers_.end() && known->second.lost)) return std::nullopt;
  const auto [lower, higher] = std::minmax(rank_, rank);
  return BrokenPath{link->since, fmt::format("{} and {}", fabric_.name(lower), fabric_.name(higher)),
                    "the simulated link is cut"};
}

bool SimPort::sending() const noexcept {
  for (const auto& [rank, receiver] : peers_) {
    if (std::any_of(receiver.out.begin(), receiver.out.end(), [](SimChannel* out) { return out->sending(); }))
      return true;
  }
  return false;
}

// Messages that have departed arrive even if this port is closed, so only those that have not are waited for.
Task<void> SimPort::leave(Duration limit, Stop& stop) {
  const Instant end = after(loop_.now(), limit);
  while (sending() && loop_.now() < end) co_await sleep_for(loop_, std::chrono::microseconds(1), stop);
}

bool SimPort::ask(SimMessages& one, Buffer& place) noexcept {
  SimMessage& message = one.front();
  Peer& sender = peer(message.from);
  if (sender.lost || receiver_ == nullptr) {
    fabric_.recycle(one);
    return false;
  }
  const MessageReceiver::Placement placement = receiver_->on_header(message.from, message.header);
  switch (placement.action) {
    case MessageReceiver::Placement::Action::kInto: place = placement.into; return true;
    case MessageReceiver::Placement::Action::kHold: sender.held.splice(sender.held.end(), one); return false;
    case MessageReceiver::Placement::Action::kDrop: break;
  }
  fabric_.recycle(one);
  return false;
}

void SimPort::ask_held_again(Peer& sender) noexcept {
  SimMessages asked;
  asked.splice(asked.end(), sender.held);
  while (!asked.empty() && !sender.lost) {
    SimMessages one;
    one.splice(one.end(), asked, asked.begin());
    Buffer place;
    if (!ask(one, place)) continue;
    const SimMessage& message = one.front();
    if (!message.elided && place.data != nullptr && place.bytes > 0) {
      std::memcpy(place.data, message.payload.data(), place.bytes);
    }
    receiver_->on_placed(message.from, message.header);
    fabric_.recycle(one);
  }
  fabric_.recycle(asked);
}

void SimPort::expect_loss(int peer_rank, Instant when, const std::string& why) noexcept {
  Peer& gone = peer(peer_rank);
  if (gone.lost || gone.scheduled()) return;
  gone.reason =
      std::make_exception_ptr(Error(Code::kPeerFailed, fmt::format("{} {}", fabric_.name(peer_rank), why), peer_rank));
  loop_.world().schedule(gone, when, loop_.node());
}

void SimPort::lose(Peer& gone) noexcept {
  gone.lost = true;
  SimMessages unsent;
  for (SimChannel* out : gone.out) out->take_unsent(unsent);
  for (SimChannel* in : gone.in) in->drop_flying();
  fabric_.recycle(gone.held);
  for (SimMessage& message : unsent) {
    notify_later({Notification::What::kSent, message.take_completion(), gone.reason, gone.rank, {}});
  }
  fabric_.recycle(unsent);
  if (receiver_ != nullptr) receiver_->on_peer_lost(gone.rank, gone.reason);
}

void SimPort::notify_later(Notification notification) noexcept {
  notifications_.push_back(std::move(notification));
  if (!Job::linked()) loop_.post(*this);
}

void SimPort::run() noexcept {
  for (Notification& notification : std::exchange(notifications_, {})) {
    if (closed_) return;
    switch (notification.what) {
      case Notification::What::kSent: notification.completion->sent(std::move(notification.error)); break;
      case Notification::What::kBroken:
        if (receiver_ != nullptr) receiver_->on_path_broken(notification.from);
        break;
      case Notification::What::kRelease: ask_held_again(peer(notification.from)); break;
      case Notification::What::kRevoked: receiver_->on_placed(notification.from, notification.header); break;
    }
  }
}

}  // namespace aiacc::sim
