#include "transports/ofi/worker.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace aiacc::active {
namespace {

constexpr std::size_t kReceives = 64;
constexpr std::size_t kSmallBytes =
    1 << 10;  // of a buffer for messages with little or no payload, of which there may be many
constexpr std::size_t kChunksUnderWay = 8;  // of one send
constexpr std::size_t kEntries = 16;        // of the queue, taken at once

// Of what a peer says, which may be malformed.
bool add_up_to(std::span<const Exposed> pieces, std::uint64_t bytes) {
  for (const Exposed& each : pieces) {
    if (each.bytes == 0 || each.bytes > bytes) return false;
    bytes -= each.bytes;
  }
  return bytes == 0;
}

}  // namespace

// --- the worker ---------------------------------------------------------------------------------------------------------

// Registrations must be gone before the provider, and that before the buffers.
Worker::~Worker() {
  sends_.clear();
  fabric_.reset();
}

std::string Worker::open(const std::string& providers) {
  fabric_ = std::make_unique<Fabric>();
  if (std::string problem = fabric_->open(providers); !problem.empty()) return problem;
  for (std::size_t posted = std::min(kReceives, fabric_->receives()); posted > 0; --posted)
    receive_into(take(kWireBytes));
  return {};
}

Buffer* Worker::take(std::size_t bytes) {
  const bool small = bytes <= kSmallBytes;
  std::vector<Buffer*>& free = small ? free_small_ : free_;
  if (free.empty()) return buffers_.emplace_back(std::make_unique<Buffer>(small ? kSmallBytes : kWireBytes)).get();
  Buffer* const buffer = free.back();
  free.pop_back();
  return buffer;
}

void Worker::give(Buffer* buffer) noexcept {
  (buffer->text.size() == kSmallBytes ? free_small_ : free_).push_back(buffer);
}

bool Worker::arm() noexcept {
  return broken_.empty() && failed_reads_.empty() &&
         fabric_->arm(!blocked_.empty() || !to_receive_.empty() || reads_.waiting());
}

bool Worker::progress() noexcept {
  bool any = !broken_.empty() || !failed_reads_.empty();
  tell_broken();
  for (const Reads::Ended& each : std::exchange(failed_reads_, {})) read_ended(each);
  any |= post_receives();
  any |= reads_.waiting() && reads_.post(*fabric_, failed_reads_);
  for (Peer* each : std::exchange(blocked_, {})) any |= flush(*each);
  std::array<fi_cq_msg_entry, kEntries> entries;
  const ssize_t came = fi_cq_read(fabric_->queue(), entries.data(), entries.size());
  if (came == -FI_EAVAIL) return read_error() || any;
  for (ssize_t i = 0; i < came; ++i) completed(entries[static_cast<std::size_t>(i)]);
  return any || came > 0;
}

bool Worker::read_error() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(fabric_->queue(), &entry, 0) != 1) return false;
  failed(entry);
  return true;
}

void Worker::completed(const fi_cq_msg_entry& entry) {
  auto* const pending = static_cast<Pending*>(entry.op_context);
  if (pending == nullptr) return;
  if (pending->is_read) {
    if (const auto ended = reads_.completed(*pending, nullptr)) read_ended(*ended);
    return;
  }
  auto* const buffer = static_cast<Buffer*>(pending);
  if (buffer->to != nullptr) return sent(buffer, nullptr);
  arrived(buffer, entry.len);
}

void Worker::failed(const fi_cq_err_entry& entry) {
  auto* const pending = static_cast<Pending*>(entry.op_context);
  if (pending == nullptr) return;
  if (pending->is_read) {
    if (const auto ended = reads_.completed(*pending, fi_strerror(entry.err))) read_ended(*ended);
    return;
  }
  auto* const buffer = static_cast<Buffer*>(pending);
  if (buffer->to != nullptr) return sent(buffer, fi_strerror(entry.err));
  receive_into(buffer);  // what came was longer than ours are, or the connection broke meanwhile
}

// A broken endpoint is told outside of the calls of the caller's.
void Worker::tell_broken() {
  for (Peer* peer : std::exchange(broken_, {})) {
    const std::string problem = std::exchange(peer->problem, {});
    peer->has_failed = true;
    if (peer->endpoint == nullptr) {
      for (Buffer* each : std::exchange(peer->waiting, {})) give(each);
    } else if (callbacks_.broken != nullptr) {
      callbacks_.broken(callbacks_.owner, peer->endpoint->callers, problem.c_str());
    }
  }
}

// --- messages -------------------------------------------------------------------------------------------------------------

// `more`: bytes that follow the header.
Buffer* Worker::compose(Peer& to, WireKind kind, std::span<const std::byte> header, std::size_t more) {
  Buffer* const buffer = take(sizeof(WireHeader) + header.size() + more);
  buffer->to = &to;
  buffer->operation = nullptr;
  buffer->send = 0;
  buffer->of_former = false;
  buffer->header() = {};
  buffer->header().kind = kind;
  buffer->header().header_bytes = static_cast<std::uint16_t>(header.size());
  std::copy(header.begin(), header.end(), buffer->text.begin() + sizeof(WireHeader));
  buffer->bytes = sizeof(WireHeader) + header.size();
  return buffer;
}

void Worker::queue(Buffer* buffer) {
  Peer& peer = *buffer->to;
  peer.waiting.push_back(buffer);
  if (peer.waiting.size() == 1) flush(peer);
}

// The provider takes nothing while it connects, or while its queues are full. Whether anything was taken.
bool Worker::flush(Peer& peer) {
  bool any = false;
  while (!peer.waiting.empty()) {
    Buffer* const first = peer.waiting.front();
    const ssize_t status =
        fi_send(fabric_->endpoint(), first->text.data(), first->bytes, nullptr, peer.address, &first->context);
    if (status == -FI_EAGAIN) {
      blocked_.push_back(&peer);
      return any;
    }
    if (status != 0) {
      if (peer.problem.empty()) broken_.push_back(&peer);
      peer.problem = fi_strerror(static_cast<int>(-status));
      return any;
    }
    peer.waiting.pop_front();
    first->place = peer.outstanding.size();
    peer.outstanding.push_back(first);
    any = true;
  }
  return any;
}

void Worker::sent(Buffer* buffer, const char* problem) {
  Peer& peer = *buffer->to;
  peer.outstanding[buffer->place] = peer.outstanding.back();
  peer.outstanding[buffer->place]->place = buffer->place;
  peer.outstanding.pop_back();
  peer.has_failed = peer.has_failed || problem != nullptr;
  Operation* const operation = buffer->operation;
  const auto chunk_of = sends_.find(buffer->send);
  const bool of_former = buffer->of_former;
  give(buffer);
  if (problem != nullptr && !of_former && peer.endpoint != nullptr && callbacks_.broken != nullptr) {
    callbacks_.broken(callbacks_.owner, peer.endpoint->callers, problem);
  }
  if (operation != nullptr && callbacks_.sent != nullptr) callbacks_.sent(callbacks_.owner, *operation, problem);
  if (chunk_of == sends_.end() || problem != nullptr) return;
  --chunk_of->second.under_way;
  pump(chunk_of);
}

void Worker::receive_into(Buffer* buffer) {
  buffer->to = nullptr;
  to_receive_.push_back(buffer);
  if (to_receive_.size() == 1) post_receives();
}

bool Worker::post_receives() {
  bool any = false;
  while (!to_receive_.empty()) {
    Buffer* const buffer = to_receive_.back();
    const ssize_t status = fi_recv(fabric_->endpoint(), buffer->text.data(), buffer->text.size(), nullptr,
                                   FI_ADDR_UNSPEC, &buffer->context);
    if (status != 0) return any;
    to_receive_.pop_back();
    any = true;
  }
  return any;
}

// --- peers ----------------------------------------------------------------------------------------------------------------

Peer* Worker::peer_of(std::span<const std::byte> address, std::string& why) {
  std::vector<std::byte> key(address.begin(), address.end());
  const auto known = peers_.find(key);
  if (known != peers_.end() && known->second.address != FI_ADDR_NOTAVAIL) return &known->second;
  const fi_addr_t inserted = fabric_->insert(key, why);
  if (inserted == FI_ADDR_NOTAVAIL) return nullptr;
  Peer& peer = known != peers_.end() ? known->second : peers_[std::move(key)];
  peer.address = inserted;
  return &peer;
}

Endpoint* Worker::connect(std::span<const std::byte> address, void* callers, std::string& why) {
  Peer* const peer = peer_of(address, why);
  if (peer == nullptr) return nullptr;
  if (peer->endpoint != nullptr) {
    why = "another rank has the same address";
    return nullptr;
  }
  peer->endpoint = std::make_unique<Endpoint>(Endpoint{this, peer, callers});
  return peer->endpoint.get();
}

void Worker::disconnect(Endpoint* endpoint) noexcept {
  Peer& peer = *endpoint->peer;
  std::vector<Operation*> ended, fetches;
  for (Buffer* each : std::exchange(peer.waiting, {})) {
    if (each->operation != nullptr) ended.push_back(each->operation);
    give(each);
  }
  for (Buffer* each : peer.outstanding) {
    each->of_former = true;
    if (Operation* const operation = std::exchange(each->operation, nullptr)) ended.push_back(operation);
  }
  bool lent = reads_.abandon(peer, fetches);
  std::erase_if(failed_reads_, [&](const Reads::Ended& one) {
    if (one.from == &peer) fetches.push_back(one.operation);
    return one.from == &peer;
  });
  std::erase_if(sends_, [&](const auto& one) {
    if (one.second.to != &peer) return false;
    ended.push_back(one.second.operation);
    lent |= !one.second.exposed.empty();
    return true;
  });
  std::erase_if(fetches_, [&](const auto& one) {
    if (one.second.from == &peer) fetches.push_back(one.second.operation);
    return one.second.from == &peer;
  });
  std::erase(blocked_, &peer);
  std::erase(broken_, &peer);
  peer.problem.clear();
  // libfabric 1.17 crashes at times where it is to close a connection that has failed. Nothing comes by that any more.
  if (lent && !peer.has_failed) fabric_->remove(std::exchange(peer.address, FI_ADDR_NOTAVAIL));
  void* const callers = endpoint->callers;
  peer.endpoint.reset();
  peer.had_endpoint = true;
  constexpr char kClosed[] = "the connection is closed";
  for (Operation* each : ended) {
    if (callbacks_.sent != nullptr) callbacks_.sent(callbacks_.owner, *each, kClosed);
  }
  for (Operation* each : fetches) {
    if (callbacks_.fetched != nullptr) callbacks_.fetched(callbacks_.owner, *each, kClosed);
  }
  if (callbacks_.closed != nullptr) callbacks_.closed(callbacks_.owner, callers);
}

// --- sending --------------------------------------------------------------------------------------------------------------

Began Worker::send(Endpoint& endpoint, std::span<const std::byte> header, std::span<const Extent> extents,
                   bool rendezvous, Operation& operation) {
  Peer& peer = *endpoint.peer;
  Send one;
  one.operation = &operation;
  one.to = &peer;
  one.extents = extents;
  for (const Extent& each : extents) one.bytes += each.bytes;
  const std::vector<std::byte>& mine = fabric_->address();
  if (!rendezvous && sizeof(WireHeader) + header.size() + one.bytes > kWireBytes) return Began::kFailed;
  Buffer* const buffer = compose(peer, rendezvous ? WireKind::kOffer : WireKind::kEager, header,
                                 rendezvous ? mine.size() + kMostExposed * sizeof(Exposed) : one.bytes);
  if (!rendezvous) {
    buffer->operation = &operation;
    copy_out(one, buffer->text.data() + buffer->bytes, one.bytes);
    buffer->bytes += one.bytes;
    queue(buffer);
    // What the provider has taken needs nothing of the caller's. A frame without payload may be this rank's last, after which the
    // endpoint is closed.
    if (one.bytes == 0 || !peer.waiting.empty()) return Began::kPending;
    buffer->operation = nullptr;
    return Began::kDone;
  }
  buffer->header().address_bytes = static_cast<std::uint16_t>(mine.size());
  buffer->header().send = ++last_number_;
  buffer->header().bytes = one.bytes;
  std::copy(mine.begin(), mine.end(), buffer->text.begin() + static_cast<std::ptrdiff_t>(buffer->bytes));
  buffer->bytes += mine.size();
  expose(one, *buffer);
  sends_.emplace(last_number_, std::move(one));
  queue(buffer);
  return Began::kPending;
}

// Adds to the offer where the payload can be read.
void Worker::expose(Send& send, Buffer& offer) {
  if (!fabric_->reads() || send.to->had_endpoint || send.extents.size() > kMostExposed || callbacks_.draw == nullptr)
    return;
  std::size_t at = offer.bytes;
  for (const Extent& each : send.extents) {
    Exposed as;
    // Whoever can connect could read what is on offer, if its key were one that can be guessed.
    Registration region = fabric_->expose(each, callbacks_.draw(callbacks_.owner), as);
    if (region == nullptr) return send.exposed.clear();
    send.exposed.push_back(std::move(region));
    std::memcpy(offer.text.data() + at, &as, sizeof as);
    at += sizeof as;
  }
  offer.header().exposed = static_cast<std::uint8_t>(send.extents.size());
  offer.bytes = at;
}

void Worker::copy_out(Send& from, std::byte* to, std::size_t bytes) {
  while (bytes > 0) {
    const Extent& first = from.extents.front();
    const std::size_t part = std::min(bytes, first.bytes - from.skip);
    std::memcpy(to, static_cast<const std::byte*>(first.data) + from.skip, part);
    to += part;
    bytes -= part;
    from.skip += part;
    if (from.skip < first.bytes) continue;
    from.extents = from.extents.subspan(1);
    from.skip = 0;
  }
}

void Worker::granted(const WireHeader& header) {
  const auto one = sends_.find(header.send);
  if (one == sends_.end()) return;
  one->second.fetch = header.fetch;
  one->second.granted = std::min(std::max(one->second.granted, header.bytes), one->second.bytes);
  pump(one);
}

void Worker::pump(Sends::iterator one) {
  Send& it = one->second;
  while (it.sent < it.granted && it.under_way < kChunksUnderWay) {
    const std::size_t bytes = std::min<std::uint64_t>(kChunkBytes, it.granted - it.sent);
    Buffer* const buffer = compose(*it.to, WireKind::kChunk, {}, bytes);
    buffer->header().fetch = it.fetch;
    buffer->header().offset = it.sent;
    copy_out(it, buffer->text.data() + buffer->bytes, bytes);
    buffer->bytes += bytes;
    buffer->send = one->first;
    it.sent += bytes;
    ++it.under_way;
    queue(buffer);
  }
}

// The receiver has it, or does not want it, which is no failure.
void Worker::ended(const WireHeader& header) {
  const auto one = sends_.find(header.send);
  if (one == sends_.end()) return;
  Operation& operation = *one->second.operation;
  sends_.erase(one);
  if (callbacks_.sent != nullptr) callbacks_.sent(callbacks_.owner, operation, nullptr);
}

// --- receiving --------------------------------------------------------------------------------------------------------------

// What makes no sense is no message of a module, and is dropped.
void Worker::arrived(Buffer* buffer, std::size_t bytes) {
  WireHeader header;
  std::memcpy(&header, buffer->text.data(), sizeof header);
  const std::size_t head =
      sizeof header + header.header_bytes + header.address_bytes + header.exposed * sizeof(Exposed);
  if (bytes < sizeof header || header.version != kWireVersion || bytes < head) return receive_into(buffer);
  buffer->bytes = bytes;
  bool kept = false;
  switch (header.kind) {
    case WireKind::kEager: tell_arrived(buffer, header, buffer->text.data() + head, bytes - head, true); break;
    case WireKind::kOffer:
      kept = tell_arrived(buffer, header, buffer, header.bytes, false);
      if (!kept) refuse(*buffer);
      break;
    case WireKind::kGrant: granted(header); break;
    case WireKind::kEnd: ended(header); break;
    case WireKind::kChunk: chunk_came(header, buffer->text.subspan(head, bytes - head)); break;
  }
  receive_into(kept ? take(kWireBytes) : buffer);
}

// `payload`: of an offer, its buffer. Whether the caller keeps it, or has fetched or dropped it already.
bool Worker::tell_arrived(Buffer* buffer, const WireHeader& header, void* payload, std::uint64_t bytes, bool eager) {
  return callbacks_.arrived != nullptr && callbacks_.arrived(callbacks_.owner, buffer->text.data() + sizeof header,
                                                             header.header_bytes, payload, bytes, eager);
}

bool Worker::fetch(void* payload, void* into, std::size_t bytes, Operation& operation) {
  auto* const offer = static_cast<Buffer*>(payload);
  const WireHeader header = offer->header();
  std::string why;
  const std::size_t at = sizeof header + header.header_bytes;
  Peer* const from = peer_of(offer->text.subspan(at, header.address_bytes), why);
  std::array<Exposed, kMostExposed> exposed;
  const std::size_t count = header.exposed;
  // As with what is sent: nothing is lent to an address that has been removed once.
  const bool reads = from != nullptr && !from->had_endpoint && count > 0 && count <= exposed.size() && fabric_->reads();
  if (reads) std::memcpy(exposed.data(), offer->text.data() + at + header.address_bytes, count * sizeof(Exposed));
  give(offer);
  if (from == nullptr) return false;
  if (reads && add_up_to(std::span(exposed.data(), count), bytes)) {
    reads_.begin(*from, header.send, std::span(exposed.data(), count), static_cast<std::byte*>(into), operation);
    reads_.post(*fabric_, failed_reads_);
    return true;
  }
  const std::uint64_t number = ++last_number_;
  Fetch& one = fetches_[number];
  one = {&operation, from, header.send, static_cast<std::byte*>(into), bytes, 0, 0};
  grant(number, one);
  return true;
}

void Worker::drop(void* payload) {
  auto* const offer = static_cast<Buffer*>(payload);
  refuse(*offer);
  give(offer);
}

void Worker::refuse(Buffer& offer) {
  const WireHeader& header = offer.header();
  std::string why;
  Peer* const from = peer_of(offer.text.subspan(sizeof header + header.header_bytes, header.address_bytes), why);
  if (from != nullptr) end(*from, header.send);
}

void Worker::end(Peer& from, std::uint64_t send) {
  Buffer* const answer = compose(from, WireKind::kEnd, {}, 0);
  answer->header().send = send;
  queue(answer);
}

// So that at most kGrantBytes are on their way, and a grant is worth its message.
void Worker::grant(std::uint64_t number, Fetch& to) {
  if (to.granted == to.bytes || to.granted - to.received > kGrantBytes / 2) return;
  to.granted = std::min(to.bytes, to.received + kGrantBytes);
  Buffer* const answer = compose(*to.from, WireKind::kGrant, {}, 0);
  answer->header().send = to.send;
  answer->header().fetch = number;
  answer->header().bytes = to.granted;
  queue(answer);
}

void Worker::chunk_came(const WireHeader& header, std::span<const std::byte> bytes) {
  const auto one = fetches_.find(header.fetch);
  if (one == fetches_.end()) return;
  Fetch& it = one->second;
  if (header.offset > it.granted || bytes.size() > it.granted - header.offset) return;
  std::memcpy(it.into + header.offset, bytes.data(), bytes.size());
  it.received += bytes.size();
  if (it.received < it.bytes) return grant(header.fetch, it);
  Operation& operation = *it.operation;
  end(*it.from, it.send);
  fetches_.erase(one);
  if (callbacks_.fetched != nullptr) callbacks_.fetched(callbacks_.owner, operation, nullptr);
}

void Worker::read_ended(const Reads::Ended& ended) {
  if (ended.problem == nullptr) {
    end(*ended.from, ended.send);
  } else {
    ended.from->has_failed = true;
  }
  if (callbacks_.fetched != nullptr) callbacks_.fetched(callbacks_.owner, *ended.operation, ended.problem);
}

}  // namespace aiacc::active
