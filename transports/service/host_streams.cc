#include "transports/service/host_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace aiacc {
namespace {

// Reads in one turn of the loop, so that a writer that is as fast as this reader does not starve other work.
constexpr int kReadsPerTurn = 16;

}  // namespace

HostStreams::HostStreams(HostDomain& domain, std::uint64_t key, std::vector<int> world_ranks, MessageReceiver& receiver,
                         Observer& observer)
    : domain_(domain),
      key_(key),
      world_ranks_(std::move(world_ranks)),
      receiver_(receiver),
      observer_(observer),
      lines_(domain.claim_lines(key, static_cast<std::uint32_t>(world_ranks_.size()))),
      idle_(domain.loop()) {
  for (std::size_t peer = 0; peer < world_ranks_.size(); ++peer) streams_.emplace_back();
  for (int peer = 0; peer < domain_.size(); ++peer) {
    if (peer == domain_.rank()) continue;
    ++running_;
    stream(peer).reader.emplace(domain_.loop(), read_all(peer), static_cast<Root::Owner&>(*this));
    stream(peer).reader->start();
  }
}

HostStreams::~HostStreams() { domain_.release_lines(key_); }

Task<void> HostStreams::close() {
  closing_ = true;
  stop_.request(std::make_exception_ptr(Error(Code::kAborted, "this rank leaves")));
  Stop none;
  while (running_ > 0) {
    idle_.reset();
    co_await idle_.wait(none);
  }
  for (int peer = 0; peer < domain_.size(); ++peer) {
    Stream& its = stream(peer);
    if (!its.lent.empty()) give_back(its, read_word(peer, *its.line, kTaken));  // the writer may not have seen it
    const bool gives_up = !its.queue.empty();  // who has not read what is lent finds it revoked
    lose(peer);
    if (gives_up) domain_.publish(line_for(peer), kPosted, its.posted | kGaveUp);  // pairs with read_some()
  }
}

void HostStreams::lose(int local_rank) noexcept {
  Stream& its = stream(local_rank);
  its.lost = true;
  std::deque<Queued> dropped;
  dropped.swap(its.queue);
  std::deque<Lent> lent;
  lent.swap(its.lent);
  if (!lent.empty()) {
    domain_.publish(line_for(local_rank), kRevoked, 1);  // pairs with fetch(): before they are freed
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  for (const Queued& each : dropped) each.completion->sent(stop_.reason());
  for (const Lent& each : lent) each.completion->sent(stop_.reason());
}

void HostStreams::root_ended(Root& root, std::exception_ptr error) noexcept {
  if (--running_ == 0) idle_.set();
  for (int peer = 0; peer < static_cast<int>(streams_.size()); ++peer) {
    Stream& its = stream(peer);
    const bool writes = its.writer && &*its.writer == &root;
    if (writes) its.writer_ended = true;
    if (!writes && !(its.reader && &*its.reader == &root)) continue;
    if (error && !closing_) broken(peer, as_error(error));
    if (writes && !closing_ && !(its.queue.empty() && its.lent.empty()))
      write_some(peer);  // posted after its last look
    return;
  }
}

void HostStreams::broken(int local_rank, const Error& why) noexcept {
  if (stream(local_rank).lost) return;
  lose(local_rank);
  observer_.stream_broken(local_rank, why);
}

// In order, so nobody tells this rank that it is lost.
void HostStreams::has_left(int local_rank) noexcept {
  const int rank = world_ranks_[static_cast<std::size_t>(local_rank)];
  broken(local_rank, Error(Code::kPeerFailed,
                           fmt::format("rank {} has left the job with messages to rank {} that it had not sent", rank,
                                       world_ranks_[static_cast<std::size_t>(domain_.rank())]),
                           rank));
}

void HostStreams::payload_gone(int local_rank) noexcept {
  if (domain_.leaving(local_rank)) return has_left(local_rank);
  lose(local_rank);  // its process has ended, or has lost this one, which is told elsewhere
}

// --- the lines of a peer --------------------------------------------------------------------------------------------------

bool HostStreams::find(int local_rank) noexcept {
  Stream& its = stream(local_rank);
  if (!its.line) {
    const auto lines = domain_.find_lines(local_rank, key_, static_cast<std::uint32_t>(streams_.size()));
    if (lines) its.line = *lines + static_cast<std::uint32_t>(domain_.rank());
  }
  return its.line.has_value();
}

FlagRef HostStreams::flag_of(int local_rank, Word word) noexcept {
  return {local_rank, *stream(local_rank).line, word};
}

std::uint64_t HostStreams::read_word(int owner, std::uint32_t line, Word word) const noexcept {
  return domain_.line(owner, line).word[word].load(std::memory_order_acquire);
}

// --- writing --------------------------------------------------------------------------------------------------------------

void HostStreams::post(int local_rank, const MessageHeader& header, std::span<const std::byte> payload,
                       SendCompletion& completion) noexcept {
  Stream& its = stream(local_rank);
  if (its.lost || closing_ || !find(local_rank)) {
    completion.sent(nullptr);
    return;
  }
  Queued& queued = its.queue.emplace_back(Queued{{header}, payload, &completion});
  if (payload.size() >= kFetchedBytes && read_word(local_rank, *its.line, kFetches) != 0) {
    queued.frame.header.flags |= kFetched;
    queued.frame.address = reinterpret_cast<std::uintptr_t>(payload.data());
    queued.payload = {};
  }
  if (its.queue.size() == 1) write_some(local_rank);  // else the ring is full
}

void HostStreams::write_some(int local_rank) noexcept {
  Stream& its = stream(local_rank);
  try {
    if (write(local_rank) || (its.writer && !its.writer_ended)) return;
    its.writer_ended = false;
    its.writer.emplace(domain_.loop(), write_rest(local_rank), static_cast<Root::Owner&>(*this));
    ++running_;
  } catch (...) {
    broken(local_rank, as_error(std::current_exception()));
    return;
  }
  its.writer->start();
}

// Writes as much as the ring has room for; returns whether nothing is left to wait for.
bool HostStreams::write(int local_rank) {
  Stream& its = stream(local_rank);
  ControlLine& line = domain_.own_line(line_for(local_rank));
  if (its.memory == nullptr) {
    const HostRange ring = domain_.allocate(kRingBytes);
    its.memory = domain_.view(domain_.rank(), ring);
    line.word[kRing].store(ring.offset + 1, std::memory_order_relaxed);  // published with kPosted
  }
  const std::uint64_t taken = read_word(local_rank, *its.line, kTaken);
  if (taken > its.posted) {
    throw Error(Code::kProtocol, fmt::format("the shared memory of rank {} of this host says that it read {} bytes of "
                                             "{}: something has overwritten the host's segment",
                                             local_rank, taken, its.posted));
  }
  give_back(its, taken);
  std::uint64_t room = kRingBytes - std::min(kRingBytes, its.posted - taken);
  const std::uint64_t before = its.posted;
  while (!its.queue.empty() && room > 0) {
    Queued& next = its.queue.front();
    const std::size_t frame = next.frame.bytes(), whole = frame + next.payload.size();
    while (next.written < whole && room > 0) {
      const auto from = next.written < frame
                            ? std::as_bytes(std::span<const Frame>(&next.frame, 1)).first(frame).subspan(next.written)
                            : next.payload.subspan(next.written - frame);
      const std::uint64_t at = its.posted % kRingBytes;
      const std::size_t bytes = std::min<std::uint64_t>({from.size(), room, kRingBytes - at});
      std::memcpy(its.memory + at, from.data(), bytes);
      next.written += bytes;
      its.posted += bytes;
      room -= bytes;
    }
    if (next.written < whole) break;
    SendCompletion* const done = next.completion;
    const bool lent = next.frame.fetched();
    its.queue.pop_front();
    if (lent) {
      its.lent.push_back({its.posted, done});
    } else {
      done->sent(nullptr);
    }
  }
  if (its.posted != before) domain_.publish(line_for(local_rank), kPosted, its.posted);  // pairs with read_some()
  return its.queue.empty() && its.lent.empty();
}

// Of payloads that the peer has read in this rank's memory.
void HostStreams::give_back(Stream& its, std::uint64_t taken) {
  while (!its.lent.empty() && its.lent.front().end <= taken) {
    SendCompletion* const done = its.lent.front().completion;
    its.lent.pop_front();
    done->sent(nullptr);
  }
}

Task<void> HostStreams::write_rest(int local_rank) {
  Stream& its = stream(local_rank);
  while (!its.lost) {
    const std::uint64_t taken = read_word(local_rank, *its.line, kTaken);
    if (write(local_rank)) co_return;
    const std::uint64_t news = its.queue.empty() ? its.lent.front().end : taken + 1;
    co_await domain_.at_least(flag_of(local_rank, kTaken), news, stop_);
  }
}

// --- reading --------------------------------------------------------------------------------------------------------------

Task<void> HostStreams::read_all(int local_rank) {
  Stream& its = stream(local_rank);
  while (true) {
    const FlagRef claims = HostDomain::claims(local_rank);
    const std::uint64_t seen = read_word(claims.owner, claims.line, static_cast<Word>(claims.word));
    if (find(local_rank)) break;
    co_await domain_.at_least(claims, seen + 1, stop_);
  }
  if (domain_.can_read(local_rank))
    domain_.own_line(line_for(local_rank)).word[kFetches].store(1, std::memory_order_release);  // pairs with post()
  for (int reads = 1; !its.lost; ++reads) {
    co_await domain_.at_least(flag_of(local_rank, kPosted), its.taken + 1, stop_);
    while (reads % kReadsPerTurn != 0 && !its.lost && read_some(local_rank)) ++reads;
    if (reads % kReadsPerTurn == 0) co_await yield_turn(domain_.loop(), stop_);
  }
}

bool HostStreams::read_some(int local_rank) {
  Stream& its = stream(local_rank);
  const std::uint64_t word = read_word(local_rank, *its.line, kPosted), posted = word & ~kGaveUp;
  const bool gave_up = word != posted;
  if (posted == its.taken) {
    if (gave_up) has_left(local_rank);
    return false;
  }
  if (posted < its.taken || posted - its.taken > kRingBytes) {
    throw Error(Code::kProtocol,
                fmt::format("the shared memory of rank {} of this host says that it wrote {} bytes, of "
                            "which {} were read: something has overwritten the host's segment",
                            local_rank, posted, its.taken));
  }
  if (its.its_ring == nullptr) {
    const std::uint64_t offset = read_word(local_rank, *its.line, kRing);
    its.its_ring = domain_.view(local_rank, offset - 1, kRingBytes);
  }
  while (its.taken < posted && !its.lost) {
    const std::uint64_t at = its.taken % kRingBytes;
    const std::uint64_t bytes = std::min(posted - its.taken, kRingBytes - at);
    took(local_rank, std::span(its.its_ring + at, bytes));
    its.taken += bytes;
  }
  domain_.publish(line_for(local_rank), kTaken, its.taken);  // pairs with write(), which may reuse the space
  return true;
}

void HostStreams::took(int local_rank, std::span<const std::byte> bytes) {
  Stream& its = stream(local_rank);
  const int from = world_ranks_[static_cast<std::size_t>(local_rank)];
  const MessageHeader& header = its.header;
  while (!bytes.empty() && !its.lost) {
    std::size_t used = 0;
    const std::size_t frame = its.frame_bytes < sizeof header ? sizeof header : its.frame.bytes();
    if (its.frame_bytes < frame) {
      used = std::min(bytes.size(), frame - its.frame_bytes);
      std::memcpy(reinterpret_cast<std::byte*>(&its.frame) + its.frame_bytes, bytes.data(), used);
      its.frame_bytes += used;
      if (its.frame_bytes == std::max(frame, its.frame.bytes())) begin_payload(local_rank);
    } else {
      used = std::min<std::uint64_t>(bytes.size(), header.length - its.payload_bytes);
      if (its.place.action == MessageReceiver::Placement::Action::kInto) {
        std::memcpy(its.place.into.data + its.payload_bytes, bytes.data(), used);
      }
      its.payload_bytes += used;
    }
    bytes = bytes.subspan(used);
    if (its.frame_bytes < its.frame.bytes() || its.payload_bytes < header.length || its.lost) continue;
    its.frame_bytes = 0;
    if (its.place.action == MessageReceiver::Placement::Action::kInto) receiver_.on_placed(from, header);
  }
}

void HostStreams::begin_payload(int local_rank) {
  Stream& its = stream(local_rank);
  its.header = its.frame.header;
  its.header.flags &= static_cast<std::uint16_t>(~kFetched);
  if (its.header.kind != MessageKind::kService) {
    throw Error(Code::kProtocol,
                fmt::format("a message of kind {} came from rank {} of this host in shared memory: something has "
                            "overwritten the host's segment",
                            static_cast<int>(its.header.kind), local_rank));
  }
  its.payload_bytes = 0;
  its.place = receiver_.on_header(world_ranks_[static_cast<std::size_t>(local_rank)], its.header);
  if (its.frame.fetched()) fetch(local_rank);
}

void HostStreams::fetch(int local_rank) {
  Stream& its = stream(local_rank);
  its.payload_bytes = its.header.length;
  if (its.place.action != MessageReceiver::Placement::Action::kInto) return;
  try {
    domain_.read_private(local_rank, reinterpret_cast<const std::byte*>(its.frame.address),
                         {its.place.into.data, its.header.length});
  } catch (const Error&) {
    return payload_gone(local_rank);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with lose()
  if (read_word(local_rank, *its.line, kRevoked) != 0) payload_gone(local_rank);
}

}  // namespace aiacc
