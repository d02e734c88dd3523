#include "transports/messenger.h"

#include <utility>

namespace aiacc {

Messenger::Messenger(Loop& loop, MessagePort& port, ViewPtr world, int rank, MessageReceiver* services)
    : port_(port),
      world_(std::move(world)),
      services_(services),
      peers_(loop),
      channel_(loop, port, world_, rank, peers_),
      mailbox_(loop, port, world_, rank, peers_, *this),
      aborts_(channel_, mailbox_, peers_),
      mismatches_(loop, channel_, mailbox_, aborts_),
      stragglers_(channel_, mailbox_, aborts_, mismatches_),
      leaving_(loop, port, channel_, mailbox_, peers_, world_->id()) {
  port_.set_receiver(*this);
}

Messenger::~Messenger() { port_.close(); }

void Messenger::set_observer(Observer* observer) noexcept {
  observer_ = observer;
  aborts_.set_observer(observer);
  stragglers_.set_observer(observer);
}

void Messenger::say_last(std::uint64_t group, LastCalls last) noexcept {
  stragglers_.say_last(group, last);
  mailbox_.say_last(group, std::move(last));
}

void Messenger::forget(std::uint64_t group, std::uint64_t last) noexcept {
  aborts_.forget(group);
  mailbox_.forget(group, last);
  stragglers_.forget(group);
}

// Whether the header names its real sender, has this version, and has no reserved bit set.
bool Messenger::is_valid(int from, const MessageHeader& header) const noexcept {
  if (header.version != kMessageVersion || header.kind == MessageKind::kPath || header.flags != 0 || from < 0 ||
      from >= world_->size())
    return false;
  const Member& member = world_->member(from);
  return header.member == member.id && header.incarnation == member.incarnation;
}

MessageReceiver::Placement Messenger::on_header(int from, const MessageHeader& header) noexcept {
  constexpr Placement kDropped{Placement::Action::kDrop, {}};
  if (header.kind == MessageKind::kService) return services_ == nullptr ? kDropped : services_->on_header(from, header);
  if (!is_valid(from, header)) return kDropped;
  if (header.kind != MessageKind::kControl) return mailbox_.on_header(from, header);
  peers_[from].awaited = true;  // it waits for this rank's Leaving
  return channel_.on_header(from, header);
}

void Messenger::on_placed(int from, const MessageHeader& header) noexcept {
  switch (header.kind) {
    case MessageKind::kControl: return channel_.on_placed(from, header);
    case MessageKind::kService: return services_->on_placed(from, header);
    default: return mailbox_.on_placed(from, header);
  }
}

void Messenger::on_peer_lost(int rank, std::exception_ptr error) noexcept {
  Peer& peer = peers_[rank];
  peer.lost = error;
  peers_.changed.set();
  if (services_ != nullptr) services_->on_peer_lost(rank, error);
  const bool missed = !(peers_.leaving || peer.leaves) || mailbox_.waits_for(rank);
  channel_.peer_lost(rank);
  mailbox_.peer_lost(rank);
  if (missed) aborts_.peer_lost(rank, error);
}

}  // namespace aiacc
