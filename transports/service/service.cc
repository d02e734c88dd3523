#include "transports/service/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "transports/service/services.h"

namespace aiacc {

// --- ServiceMessage -------------------------------------------------------------------------------------------------------

ServiceMessage::ServiceMessage(Service& service, int from, std::uint64_t word, ServiceBytes bytes,
                               std::size_t cost) noexcept
    : service_(&service), from_(from), word_(word), cost_(cost), bytes_(std::move(bytes)) {
  service.messages_.push_back(*this);
}

ServiceMessage::ServiceMessage(ServiceMessage&& other) noexcept
    : service_(std::exchange(other.service_, nullptr)),
      from_(other.from_),
      word_(other.word_),
      cost_(other.cost_),
      bytes_(std::move(other.bytes_)) {
  other.unlink();
  if (service_ != nullptr) service_->messages_.push_back(*this);
}

ServiceMessage& ServiceMessage::operator=(ServiceMessage&& other) noexcept {
  if (this == &other) return *this;
  release();
  service_ = std::exchange(other.service_, nullptr);
  from_ = other.from_;
  word_ = other.word_;
  cost_ = other.cost_;
  bytes_ = std::move(other.bytes_);
  other.unlink();
  if (service_ != nullptr) service_->messages_.push_back(*this);
  return *this;
}

void ServiceMessage::release() noexcept {
  bytes_ = ServiceBytes();
  unlink();
  if (Service* const service = std::exchange(service_, nullptr); service != nullptr) service->released(from_, cost_);
}

// --- the subscription -----------------------------------------------------------------------------------------------------

Service::Service(Services& services, ViewPtr view, int rank, ServiceId id, ServiceHandler& handler,
                 ServiceOptions options)
    : services_(services),
      view_(std::move(view)),
      rank_(rank),
      id_(id),
      handler_(handler),
      options_(options),
      ranks_(static_cast<std::size_t>(services.world().size()), -1),
      peers_(static_cast<std::size_t>(view_->size())) {
  if (options.credit < kMinCredit) {
    throw Error(Code::kInvalidArgument,
                fmt::format("a service needs {} bytes of credit at least, not {}", kMinCredit, options.credit));
  }
  for (int member = 0; member < view_->size(); ++member) {
    ranks_[static_cast<std::size_t>(world_rank(member))] = member;
    peer(member).may_send = options.credit;
  }
  services_.add(*this);
}

Service::~Service() {
  while (ServiceMessage* message = messages_.pop_front()) message->service_ = nullptr;
  end();
  for (int member = 0; member < view_->size(); ++member) {
    for (Incoming& incoming : peer(member).incoming) {
      if (incoming.complete() || incoming.bytes.size() == 0) continue;
      services_.keep(world_rank(member), *this, incoming.number, std::move(incoming.bytes), incoming.placed);
    }
  }
  services_.remove(*this);
}

void Service::end() noexcept {
  const std::exception_ptr ended = std::make_exception_ptr(Error(Code::kAborted, "the subscription has ended"));
  for (PeerState& its : peers_) {
    its.lost = true;
    while (Send* send = its.waiting.pop_front()) send->fail(ended);
  }
}

void Service::check(std::size_t bytes) const {
  if (bytes <= longest()) return;
  throw Error(
      Code::kInvalidArgument,
      fmt::format("a message of {} bytes is longer than the {} that service {} takes with its credit of {}: send "
                  "it in parts",
                  bytes, longest(), id_, options_.credit));
}

// --- sending --------------------------------------------------------------------------------------------------------------

Service::Posted Service::post(int to, std::uint64_t word, ServiceBytes& bytes) {
  check(bytes.size());
  PeerState& its = peer(to);
  if (its.lost) return Posted::kLost;
  if (!its.waiting.empty() || !has_credit(its, bytes.size())) return Posted::kNoCredit;
  transmit(to, word, std::move(bytes));
  return Posted::kSent;
}

Service::Posted Service::post(int to, std::uint64_t word, std::span<const std::byte> bytes) {
  check(bytes.size());
  PeerState& its = peer(to);
  if (its.lost) return Posted::kLost;
  if (!its.waiting.empty() || !has_credit(its, bytes.size())) return Posted::kNoCredit;
  transmit(to, word, ServiceBytes::copy_of(bytes, services_.memory()));
  return Posted::kSent;
}

void Service::transmit(int to, std::uint64_t word, ServiceBytes bytes) {
  PeerState& its = peer(to);
  its.sent += bytes.size() + kOverhead;
  if (to == rank_) {
    services_.send_to_self(*this, word, std::move(bytes));
    return;
  }
  its.granted = its.freed;
  MessageHeader header = services_.header(*this, options_.traffic, limit(its));
  header.sequence = ++its.posted;
  header.fingerprint = word;
  services_.transmit(world_rank(to), header, std::move(bytes));
}

Service::Send::Send(Service& service, int to, std::uint64_t word, ServiceBytes bytes, Stop& stop)
    : Leaf(service.services_.loop(), stop), service_(service), to_(to), word_(word), bytes_(std::move(bytes)) {
  service.check(bytes_.size());
}

bool Service::Send::try_now() {
  switch (service_.post(to_, word_, bytes_)) {
    case Posted::kSent: return true;
    case Posted::kNoCredit: return false;
    case Posted::kLost: break;
  }
  throw service_.loss(to_);
}

void Service::Send::begin() noexcept { service_.peer(to_).waiting.push_back(*this); }

Error Service::loss(int rank) const {
  if (!services_.lost(world_rank(rank))) return Error(Code::kAborted, "the subscription has ended");
  const Error& why = services_.loss(world_rank(rank));
  return Error(why.code(), why.message(), rank);
}

void Service::send_waiting(int to) noexcept {
  PeerState& its = peer(to);
  while (!its.lost && !its.waiting.empty() && has_credit(its, its.waiting.front().bytes_.size())) {
    Send& next = *its.waiting.pop_front();
    transmit(to, next.word_, std::move(next.bytes_));
    next.complete();
  }
}

void Service::on_grant(int from, std::uint64_t limit) noexcept {
  PeerState& its = peer(from);
  if (limit <= its.may_send) return;
  its.may_send = limit;
  send_waiting(from);
}

void Service::on_refused(int from, std::uint64_t number, std::uint64_t word, std::uint64_t bytes,
                         const Error& why) noexcept {
  PeerState& its = peer(from);
  // A refusal may arrive twice after a broken connection, and a faulty peer may send any number.
  if (number <= its.refused || number > its.posted || bytes > its.sent - std::min<std::uint64_t>(its.sent, kOverhead)) {
    return;
  }
  its.refused = number;
  its.sent -= bytes + kOverhead;
  handler_.on_refused(from, word, why);
  send_waiting(from);
}

void Service::on_peer_lost(int world_rank, const Error& why) noexcept {
  const int rank = rank_of_world(world_rank);
  if (rank < 0 || peer(rank).lost) return;
  PeerState& its = peer(rank);
  its.lost = true;
  its.incoming.clear();
  const Error here(why.code(), why.message(), rank);
  const std::exception_ptr error = std::make_exception_ptr(here);
  while (Send* send = its.waiting.pop_front()) send->fail(error);
  handler_.on_peer_lost(rank, here);
}

// --- receiving ------------------------------------------------------------------------------------------------------------

MessageReceiver::Placement Service::on_header(int from, const MessageHeader& header) {
  constexpr MessageReceiver::Placement kDropped{MessageReceiver::Placement::Action::kDrop, {}};
  PeerState& its = peer(from);
  if (its.lost) return kDropped;
  on_grant(from, header.credit_limit);
  auto found = std::find_if(its.incoming.begin(), its.incoming.end(),
                            [&](const Incoming& one) { return one.number == header.sequence; });
  if (found == its.incoming.end()) {
    if (header.offset != 0) return kDropped;  // its beginning was refused
    if (header.total > longest() || its.held + header.total + kOverhead > options_.credit) {
      services_.refuse(world_rank(from), header, wire::ServiceRefused::kCredit, options_.credit);
      return kDropped;
    }
    its.held += header.total + kOverhead;
    its.incoming.push_back({header.sequence, header.fingerprint, ServiceBytes(header.total, services_.memory())});
    found = std::prev(its.incoming.end());
  }
  const std::size_t size = found->bytes.size();
  if (header.offset > size || header.length > size - header.offset) return kDropped;
  return {MessageReceiver::Placement::Action::kInto, Buffer{found->bytes.data() + header.offset, header.length}};
}

void Service::on_placed(int from, const MessageHeader& header) noexcept {
  PeerState& its = peer(from);
  const auto found = std::find_if(its.incoming.begin(), its.incoming.end(),
                                  [&](const Incoming& one) { return one.number == header.sequence; });
  if (found == its.incoming.end()) return;
  found->placed += header.length;
  found->came = true;
  deliver(from);
}

void Service::deliver(int from) noexcept {
  PeerState& its = peer(from);
  while (!its.incoming.empty() && its.incoming.front().complete()) {
    Incoming next = std::move(its.incoming.front());
    its.incoming.pop_front();
    const std::size_t cost = next.bytes.size() + kOverhead;
    handler_.on_message(ServiceMessage(*this, from, next.word, std::move(next.bytes), cost));
  }
}

void Service::deliver_to_self(std::uint64_t word, ServiceBytes bytes) noexcept {
  const std::size_t cost = bytes.size() + kOverhead;
  peer(rank_).held += cost;
  handler_.on_message(ServiceMessage(*this, rank_, word, std::move(bytes), cost));
}

void Service::released(int from, std::size_t cost) noexcept {
  PeerState& its = peer(from);
  its.held -= cost;
  its.freed += cost;
  if (from == rank_ && !its.lost) {
    on_grant(from, limit(its));
  } else if (!its.lost && its.freed - its.granted >= options_.credit / 2) {
    // Every message to that rank carries the credit limit too, so a grant message is sent only if none has been posted since
    // half of the credit was freed.
    its.granted = its.freed;
    MessageHeader grant = services_.header(*this, options_.traffic, limit(its));
    grant.flags = Services::kGrant;
    services_.transmit(world_rank(from), grant, ServiceBytes());
  }
}

}  // namespace aiacc
