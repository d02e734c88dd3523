#include "transports/service/services.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "base/wire/codec.h"

namespace aiacc {
namespace {

using Placement = MessageReceiver::Placement;
constexpr Placement kDropped{Placement::Action::kDrop, {}};

std::string reason_text(int rank, ServiceId service, const wire::ServiceRefused& refused) {
  switch (refused.reason) {
    case wire::ServiceRefused::kEnded:
      return fmt::format("rank {} has ended its subscription to service {} of this group", rank, service);
    case wire::ServiceRefused::kCredit:
      return fmt::format(
          "rank {} grants {} bytes of credit in service {} of this group, and a message of {} bytes exceeds it: all "
          "members "
          "subscribe with the same options",
          rank, refused.credit, service, refused.bytes);
    case wire::ServiceRefused::kUnknown: break;
  }
  return fmt::format(
      "rank {} has no subscription to service {} of this group: all members subscribe, and pass a barrier, before the "
      "first "
      "message",
      rank, service);
}

}  // namespace

Services::Services(Loop& loop, ViewPtr world, int rank, MessagePort* port, HostDomain* domain, Owner& owner)
    : loop_(loop), world_(std::move(world)), rank_(rank), port_(port), domain_(domain), owner_(owner) {}

Services::~Services() = default;

Task<void> Services::close() {
  closed_ = true;
  for (auto& [key, service] : services_) {
    if (service != nullptr) service->end();
    service = nullptr;
  }
  if (std::exchange(active_, 0) > 0) owner_.services_active(false);
  trim_timer_.disarm();
  deferred_.clear();
  memory_.keep(false);
  if (streams_) co_await streams_->close();
}

void Services::add(Service& service) {
  if (closed_) throw Error(Code::kInvalidState, "this rank leaves the job: it subscribes to nothing any more");
  const Key key{service.view().id(), service.id()};
  if (services_.contains(key)) {
    throw Error(Code::kInvalidState,
                fmt::format("this rank has used service {} of this group already: each subscription of a group has a "
                            "number of its own",
                            service.id()));
  }
  if (!streams_ && domain_ != nullptr) {
    const auto local = world_->ranks_on_host_of(rank_);
    HostStreams::Observer& observer = lost_stream_;
    streams_.emplace(*domain_, Hash64().add(world_->id()).add("services").value() | 1,
                     std::vector<int>(local.begin(), local.end()), static_cast<MessageReceiver&>(*this), observer);
    for (const auto& [lost, why] : lost_) {
      if (const int local_rank = this->local_rank(lost); local_rank >= 0) streams_->lose(local_rank);
    }
  }
  if (active_ == 0) owner_.services_active(true);
  memory_.keep(true);
  ++active_;
  services_.emplace(key, &service);
  for (const auto& [lost, why] : lost_) {
    if (service.rank_of_world(lost) < 0) continue;
    deferred_.push_back({key, 0, {}, lost, 0});
    if (!deferred_job_.linked()) loop_.post(deferred_job_);
  }
}

void Services::remove(Service& service) noexcept {
  const auto found = services_.find({service.view().id(), service.id()});
  if (found == services_.end() || found->second != &service) return;
  found->second = nullptr;
  if (--active_ == 0) {
    trim_timer_.disarm();
    memory_.keep(false);
    owner_.services_active(false);
  } else {
    trim_later();  // what the component has kept comes back now
  }
}

void Services::trim_later() noexcept {
  if (!trim_timer_.armed() && active_ > 0) loop_.arm(trim_timer_, after(loop_.now(), kTrimPeriod));
}

void Services::trim() noexcept {
  memory_.trim();
  if (memory_.kept_bytes() > 0) trim_later();
}

Service* Services::find(const Key& key) noexcept {
  const auto found = services_.find(key);
  return found == services_.end() ? nullptr : found->second;
}

int Services::local_rank(int world_rank) const noexcept {
  return domain_ != nullptr && world_->host_of(world_rank) == world_->host_of(rank_) ? world_->local_rank_of(world_rank)
                                                                                     : -1;
}

// --- outgoing -------------------------------------------------------------------------------------------------------------

MessageHeader Services::header(const Service& service, TrafficClass traffic, std::uint64_t credit_limit) noexcept {
  const Member& self = world_->member(rank_);
  MessageHeader header;
  header.kind = MessageKind::kService;
  header.traffic = traffic;
  header.step = service.id();
  header.member = self.id;
  header.incarnation = self.incarnation;
  header.group = service.view().id();
  header.epoch = service.view().epoch();
  header.credit_limit = credit_limit;
  header.sent_ns = loop_.now().time_since_epoch().count();
  return header;
}

void Services::transmit(int to, const MessageHeader& header, ServiceBytes bytes) noexcept {
  const int local = local_rank(to);
  if (local >= 0 && !streams_->reads(local)) {  // that rank has no subscription and cannot answer: refused here
    if (header.flags != 0) return;
    deferred_.push_back({{header.group, header.step}, header.fingerprint, std::move(bytes), to, header.sequence});
    if (!deferred_job_.linked()) loop_.post(deferred_job_);
    return;
  }
  if (bytes.size() >= ServiceMemory::kSmallest) trim_later();
  Outgoing& outgoing = outgoing_.emplace_back(*this, std::move(bytes));
  outgoing.self = std::prev(outgoing_.end());
  MessageHeader part = header;
  part.total = outgoing.bytes.size();
  if (local >= 0) {
    part.length = part.total;
    ++outgoing.posts;
    streams_->post(local, part, outgoing.bytes.span(), outgoing);
  } else {
    partners_.insert(to);
    do {
      part.length = std::min<std::uint64_t>(port_->chunk_bytes(), part.total - part.offset);
      const Buffer piece{outgoing.bytes.data() + part.offset, part.length};
      ++outgoing.posts;
      const std::span<const Buffer> pieces(&piece, part.length > 0 ? 1 : 0);
      part.traffic == TrafficClass::kBulk ? port_->post(to, part, pieces, outgoing)
                                          : port_->post_now(to, part, pieces, outgoing);
      part.offset += part.length;
    } while (part.offset < part.total);
  }
  outgoing.finished();
}

void Services::send_to_self(Service& service, std::uint64_t word, ServiceBytes bytes) {
  deferred_.push_back({{service.view().id(), service.id()}, word, std::move(bytes)});
  if (!deferred_job_.linked()) loop_.post(deferred_job_);
}

void Services::run_deferred() noexcept {
  std::deque<Deferred> due;
  due.swap(deferred_);
  for (Deferred& next : due) {
    Service* const service = find(next.key);
    if (service == nullptr) continue;
    if (next.to < 0) {
      service->deliver_to_self(next.word, std::move(next.bytes));
    } else if (const auto lost = lost_.find(next.to); lost != lost_.end()) {
      service->on_peer_lost(next.to, lost->second);
    } else {
      const int to = service->rank_of_world(next.to);
      const wire::ServiceRefused unknown{};
      const Error why(Code::kMismatch, reason_text(to, service->id(), unknown), to);
      service->on_refused(to, next.number, next.word, next.bytes.size(), why);
    }
  }
}

void Services::refuse(int from, const MessageHeader& header, wire::ServiceRefused::Reason reason,
                      std::uint64_t credit) noexcept {
  const wire::ServiceRefused refused{header.sequence, header.fingerprint, header.total, reason, credit};
  const Member& self = world_->member(rank_);
  MessageHeader answer = header;
  answer.flags = kRefusal;
  answer.member = self.id;
  answer.incarnation = self.incarnation;
  answer.offset = 0;
  answer.credit_limit = 0;
  answer.sent_ns = loop_.now().time_since_epoch().count();
  const wire::Bytes bytes = wire::encode(refused);
  transmit(from, answer, ServiceBytes::copy_of(bytes));
}

// --- incoming -------------------------------------------------------------------------------------------------------------

bool Services::is_valid(int from, const MessageHeader& header) const noexcept {
  if (from < 0 || from >= world_->size() || header.flags > kRefusal) return false;
  const Member& member = world_->member(from);
  return header.member == member.id && header.incarnation == member.incarnation;
}

Services::Kept* Services::find_kept(int from, const MessageHeader& header) noexcept {
  if (kept_.empty()) return nullptr;
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
    return kept.from == from && kept.key == Key{header.group, header.step} && kept.flags == header.flags &&
           kept.number == header.sequence;
  });
  return found == kept_.end() ? nullptr : &*found;
}

void Services::keep(int from, const Service& service, std::uint64_t number, ServiceBytes bytes, std::size_t placed) {
  kept_.push_back({from, {service.view().id(), service.id()}, 0, number, std::move(bytes), placed});
}

Placement Services::on_header(int from, const MessageHeader& header) noexcept {
  if (!is_valid(from, header)) return kDropped;
  if (local_rank(from) < 0) partners_.insert(from);
  const Key key{header.group, header.step};
  Kept* kept = find_kept(from, header);
  if (header.flags == kRefusal && kept == nullptr) {
    constexpr std::uint64_t kBytes = wire::codec_detail::min_bytes<wire::ServiceRefused>();
    if (header.length != kBytes || header.total != kBytes || header.offset != 0) return kDropped;
    kept_.push_back({from, key, header.flags, header.sequence, ServiceBytes(kBytes)});
    kept = &kept_.back();
  }
  if (kept != nullptr) {
    if (header.offset > kept->bytes.size() || header.length > kept->bytes.size() - header.offset) return kDropped;
    return {Placement::Action::kInto, Buffer{kept->bytes.data() + header.offset, header.length}};
  }
  Service* const service = find(key);
  const int rank = service == nullptr ? -1 : service->rank_of_world(from);
  if (header.flags == kGrant) {
    if (rank >= 0) service->on_grant(rank, header.credit_limit);
    return header.length == 0 ? Placement{Placement::Action::kInto, {}} : kDropped;
  }
  if (header.total >= ServiceMemory::kSmallest) trim_later();
  if (rank >= 0) return service->on_header(rank, header);
  const auto reason = services_.contains(key) ? wire::ServiceRefused::kEnded : wire::ServiceRefused::kUnknown;
  if (header.offset == 0) refuse(from, header, reason, 0);
  return kDropped;
}

void Services::on_placed(int from, const MessageHeader& header) noexcept {
  if (header.flags == kGrant) return;
  if (Kept* const kept = find_kept(from, header); kept != nullptr) {
    kept->placed += header.length;
    if (kept->placed < kept->bytes.size()) return;
    const ServiceBytes bytes = std::move(kept->bytes);
    kept_.remove_if([kept](const Kept& each) { return &each == kept; });
    if (header.flags == kRefusal) refused(from, header, bytes.span());
    return;
  }
  Service* const service = find({header.group, header.step});
  if (service != nullptr && service->rank_of_world(from) >= 0) service->on_placed(service->rank_of_world(from), header);
}

void Services::refused(int from, const MessageHeader& header, std::span<const std::byte> bytes) noexcept {
  Service* const service = find({header.group, header.step});
  const int rank = service == nullptr ? -1 : service->rank_of_world(from);
  if (rank < 0) return;
  try {
    const auto refused = wire::decode<wire::ServiceRefused>(bytes, "a refused service message");
    const Error why(Code::kMismatch, reason_text(rank, service->id(), refused), rank);
    service->on_refused(rank, refused.number, refused.word, refused.bytes, why);
  } catch (const Error&) {  // a malformed refusal is dropped
  }
}

// --- losses ---------------------------------------------------------------------------------------------------------------

void Services::LostStream::stream_broken(int local_rank, const Error& why) noexcept {
  const int rank = owner.world_->ranks_on_host_of(owner.rank_)[static_cast<std::size_t>(local_rank)];
  owner.peer_lost(rank, std::make_exception_ptr(why));
}

void Services::peer_lost(int world_rank, const std::exception_ptr& why) noexcept {
  if (closed_ || !lost_.emplace(world_rank, as_error(why)).second) return;
  const int local = local_rank(world_rank);
  if (local >= 0 && streams_) streams_->lose(local);
  kept_.remove_if([world_rank](const Kept& kept) { return kept.from == world_rank; });
  const Error& loss = lost_.at(world_rank);
  for (const auto& [key, service] : services_) {
    if (service != nullptr) service->on_peer_lost(world_rank, loss);
  }
}

}  // namespace aiacc
