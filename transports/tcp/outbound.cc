#include "transports/tcp/outbound.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace aiacc::tcp {
namespace {

ClassShares::Weights weights_of(const TcpPort::Marks& marks) noexcept {
  ClassShares::Weights weights = ClassShares::kDefault;
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    if (marks[traffic].share) weights[traffic] = static_cast<std::uint32_t>(*marks[traffic].share);
  }
  return weights;
}

constexpr auto kBulk = static_cast<std::size_t>(TrafficClass::kBulk);
constexpr auto kBackground = static_cast<std::size_t>(TrafficClass::kBackground);

}  // namespace

Outbound::Outbound(Shared& shared, int rank) noexcept
    : shared_(shared), rank_(rank), shares_(weights_of(shared.settings.marks)) {
  for (const io::TrafficMarks& each : shared.settings.marks) takes_turns_ = takes_turns_ || each.share.has_value();
}

void Outbound::add(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion) {
  Outgoing* spare = spare_.first();
  if (spare == nullptr) {
    spare = new Outgoing;
    spare->to = rank_;
    spare_.push_back(*spare);
    ++spares_;
  }
  Outgoing& message = *spare;
  message.promise(completion);
  message.piece_count = 0;
  message.payload_bytes = 0;
  bool readable = true;
  for (const Buffer& piece : pieces) {
    message.payload_bytes += piece.bytes;
    readable = readable && (piece.data != nullptr || piece.bytes == 0) && piece.kind == MemoryKind::kHost;
  }
  if (!readable || message.payload_bytes != header.length || !is_kind(header.kind)) {
    const Error error(Code::kInvalidArgument, "a message was posted that no connection can carry");
    tell(message, std::make_exception_ptr(error));
    return;
  }

  const bool copied = message.payload_bytes <= TcpPort::kCopyBytes || pieces.size() > Outgoing::kMaxPieces;
  message.bytes.resize(Outgoing::kPrefixBytes + (copied ? message.payload_bytes : 0));
  encode_header(header, std::span<std::byte, kHeaderBytes>(message.bytes.data() + kFrameBytes, kHeaderBytes));
  std::byte* end = message.bytes.data() + Outgoing::kPrefixBytes;
  for (const Buffer& piece : pieces) {
    if (piece.bytes == 0) continue;
    if (copied) {
      std::memcpy(end, piece.data, piece.bytes);
      end += piece.bytes;
    } else {
      message.pieces[message.piece_count++] = {piece.data, piece.bytes};
    }
  }
  message.copied = copied;
  message.traffic = header.traffic;
  message.begun = false;
  --spares_;
  takes_turns_ = takes_turns_ || header.traffic == TrafficClass::kBackground;
  may_wait_ |= 1U << static_cast<unsigned>(header.traffic);
  of(header.traffic).queue.take(message);
}

bool Outbound::empty() const noexcept {
  return std::all_of(classes_.begin(), classes_.end(),
                     [](const Class& its) { return its.queue.empty() && its.begun.empty(); });
}

bool Outbound::shares() const noexcept {
  return std::any_of(classes_.begin(), classes_.end(), [](const Class& its) { return !its.shared_chunks.empty(); });
}

bool Outbound::lead(TrafficClass traffic, Carrier& carrier) noexcept {
  const auto its = static_cast<std::size_t>(traffic);
  if (leads_[its] == &carrier) return false;
  if (leads_[its] == nullptr || classes_[its].may_move()) {
    leads_[its] = &carrier;
    return false;
  }
  next_leads_[its] = &carrier;
  return true;
}

void Outbound::lead(Carrier& carrier) noexcept {
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    const bool its = (carrier.classes >> traffic & 1U) != 0;
    if (its && leads_[traffic] == nullptr) leads_[traffic] = &carrier;
  }
}

bool Outbound::move_leads() noexcept {
  bool moved = false;
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    if (next_leads_[traffic] == nullptr || !classes_[traffic].may_move()) continue;
    leads_[traffic] = std::exchange(next_leads_[traffic], nullptr);
    may_wait_ = kAllClasses;
    moved = true;
  }
  return moved;
}

Carrier* Outbound::better_lead(TrafficClass traffic) const noexcept {
  const auto its = static_cast<std::size_t>(traffic);
  const Carrier* const lead = leads_[its];
  if (lead == nullptr || next_leads_[its] != nullptr || lead->pace.delay() == Duration{}) return nullptr;
  Carrier* best = nullptr;
  Duration soonest = lead->pace.delay() / 2;
  for (Carrier* const each : carriers_) {
    const Duration delay = each->pace.delay();
    if ((each->classes >> its & 1U) == 0 || delay == Duration{} || delay >= soonest) continue;
    soonest = delay;
    best = each;
  }
  return best;
}

// A bit for each.
unsigned Outbound::waiting_classes() noexcept {
  for (unsigned left = may_wait_; left != 0; left &= left - 1) {
    const auto traffic = static_cast<std::size_t>(std::countr_zero(left));
    if (!classes_[traffic].waits()) may_wait_ &= ~(1U << traffic);
  }
  return may_wait_;
}

// Bulk and background that have connections of their own: what the system divides among connections, they divide by their shares. Not
// while the other one takes nothing, nor if that is paced.
bool Outbound::waits_for_another(const Carrier& carrier, std::size_t traffic, unsigned waiting) const noexcept {
  if (traffic != kBulk && traffic != kBackground) return false;
  const std::size_t other = kBulk + kBackground - traffic;
  if ((waiting >> other & 1U) == 0 || may_take(carrier, other) || !shares_.far_ahead(traffic, other)) return false;
  return !shared_.settings.marks[other].rate && shared_.loop.now() - took_[other] < kPatience;
}

Part* Outbound::next(Carrier& carrier) noexcept {
  const unsigned waiting = waiting_classes();
  const bool alone = std::popcount(waiting) < 2;
  if (alone) held_back_ = false;
  for (unsigned left = waiting; left != 0;) {
    const std::size_t traffic = shares_.first(left);
    left &= ~(1U << traffic);
    if (!alone && waits_for_another(carrier, traffic, waiting)) {
      held_back_ = true;
      continue;
    }
    Part* const part = next_of(carrier, traffic);
    if (part == nullptr) continue;
    shares_.took(traffic, Outgoing::kPrefixBytes + part->length, waiting);
    if (!alone) took_[traffic] = shared_.loop.now();
    return part;
  }
  return carried_chunks_ > 0 ? carry_again(carrier) : nullptr;
}

Part* Outbound::next_of(Carrier& carrier, std::size_t traffic) noexcept {
  Class& its = classes_[traffic];
  const bool leads = leads_[traffic] == &carrier;
  if (leads) {
    Outgoing* due = its.head_due;
    if (due != nullptr) {
      its.head_due = its.begun.after(*due);
      skip_carried(its);
    } else if (!its.queue.empty() && !has_enough_begun(its) && next_leads_[traffic] == nullptr) {
      due = &begin(carrier, its);
    }
    if (due != nullptr) return carry(carrier, due->head);
  }
  if (!may_take(carrier, traffic)) return nullptr;
  Part* chunk = its.shared_chunks.first();
  if (chunk == nullptr && leads) chunk = its.lead_chunks.first();
  return chunk != nullptr && takes_chunk(carrier, traffic, *chunk) ? carry(carrier, *chunk) : nullptr;
}

bool Outbound::takes_chunk(const Carrier& carrier, std::size_t traffic, const Part& chunk) const noexcept {
  std::array<const Pace*, TcpPort::kMostStreams + kClasses> all;
  std::size_t count = 0;
  for (const Carrier* each : carriers_) {
    if (may_take(*each, traffic)) all[count++] = &each->pace;
  }
  if (count == 1) return true;
  return takes(carrier.pace, std::span(all).first(count), chunk.length, classes_[traffic].waiting_bytes,
               shared_.loop.now());
}

// A chunk that another connection carries and is late with. The last one of those that it carries is the latest.
Part* Outbound::carry_again(Carrier& carrier) noexcept {
  const Instant now = shared_.loop.now();
  Part* latest = nullptr;
  for (Carrier* const other : carriers_) {
    if (other == &carrier) continue;
    other->parts.for_each([&](Part& part) {
      const Outgoing& message = *part.message;
      const bool is_chunk = &part != &message.head;
      if (!is_chunk || part.again || part.state != Part::State::kCarried) return;
      if (message.head.state != Part::State::kArrived || !may_take(carrier, static_cast<std::size_t>(message.traffic)))
        return;
      if (!takes_again(carrier.pace, other->pace, part.position, part.length, now)) return;
      if (latest != nullptr &&
          latest->carrier->pace.eta_of(latest->position, now) > other->pace.eta_of(part.position, now))
        return;
      latest = &part;
    });
  }
  if (latest == nullptr) return nullptr;
  if (latest->in_hand) take_out_of_hand(*latest);
  latest->carrier->pace.gave(latest->length);
  latest->again = latest->message->again = true;
  latest->unlink();
  ++shared_.parts_again;
  --carried_chunks_;
  return carry(carrier, *latest);
}

void Outbound::take_out_of_hand(Part& part) noexcept {
  part.carrier->holder->let_go(part);
  part.in_hand = false;
  --part.message->in_hand;
}

// The next message of the queue gets its number; the caller carries its header.
Outgoing& Outbound::begin(const Carrier& carrier, Class& its) noexcept {
  Outgoing& message = its.queue.front();
  its.begun.take(message);
  message.begun = true;
  message.number = ++its.last;
  message.head.length = message.payload_bytes;
  message.head.state = Part::State::kWaiting;
  message.head.in_hand = message.head.written = message.again = false;
  message.chunk_count = message.in_hand = 0;
  if (message.payload_bytes > kWholeBytes) {
    const bool shortly =
        message.traffic >= TrafficClass::kBulk && carrier.window < kWideWindow && shared_.latency_in_use();
    if (shortly || divides()) divide(message, shortly ? kShortChunkBytes : kMaxChunkBytes);
  }
  message.missing = message.unwritten = 1 + message.chunk_count;
  for (std::size_t i = 0; i < message.chunk_count; ++i) its.lead_chunks.push_back(message.chunks[i]);
  its.waiting_chunks += message.chunk_count;
  if (message.chunk_count > 0) its.waiting_bytes += message.payload_bytes;
  encode_frame({.kind = FrameKind::kMessage,
                .traffic = message.traffic,
                .number = message.number,
                .offset = 0,
                .length = message.head.length},
               std::span(message.bytes).first<kFrameBytes>());
  return message;
}

// Chunks that are smaller than a connection's share, so that the last ones take equally long.
void Outbound::divide(Outgoing& message, std::uint64_t longest) {
  if (message.copied && message.piece_count == 0) {
    message.pieces[message.piece_count++] = std::span(message.bytes).subspan(Outgoing::kPrefixBytes);
  }
  const std::uint64_t share = message.payload_bytes / (2 * streams_);
  const std::uint64_t at_most = std::clamp<std::uint64_t>(share, std::min(longest, kWholeBytes), longest);
  message.head.length = 0;
  message.chunk_count = static_cast<std::size_t>((message.payload_bytes + at_most - 1) / at_most);
  const std::uint64_t most =
      (message.payload_bytes + message.chunk_count - 1) / message.chunk_count;  // nearly equal ones
  if (message.chunk_room < message.chunk_count) {
    message.chunks = std::make_unique<Part[]>(message.chunk_count);
    message.chunk_room = message.chunk_count;
  }
  for (std::size_t i = 0; i < message.chunk_count; ++i) {
    Part& chunk = message.chunks[i];
    chunk.message = &message;
    chunk.offset = i * most;
    chunk.length = std::min(most, message.payload_bytes - chunk.offset);
    chunk.state = Part::State::kWaiting;
    chunk.in_hand = chunk.written = chunk.again = false;
    chunk.carrier = nullptr;
    encode_frame({.kind = FrameKind::kChunk,
                  .traffic = message.traffic,
                  .number = message.number,
                  .offset = chunk.offset,
                  .length = chunk.length},
                 chunk.frame);
  }
}

void Outbound::skip_carried(Class& its) noexcept {
  while (its.head_due != nullptr && its.head_due->head.state != Part::State::kWaiting) {
    its.head_due = its.begun.after(*its.head_due);
  }
}

Part* Outbound::carry(Carrier& carrier, Part& part) noexcept {
  if (&part != &part.message->head) {
    if (part.state == Part::State::kWaiting) {
      Class& its = of(part.message->traffic);
      part.unlink();
      --its.waiting_chunks;
      its.waiting_bytes -= part.length;
    }
    ++carried_chunks_;
    part.carrier = &carrier;
    part.taken = shared_.loop.now();
    part.position = carrier.pace.took(part.length, part.taken);
  }
  if (part.state == Part::State::kWaiting && is_long(part)) meter_.took(shared_.loop.now());
  part.state = Part::State::kCarried;
  part.in_hand = true;
  ++part.message->in_hand;
  carrier.parts.push_back(part);
  return &part;
}

void Outbound::wrote(Part& part) noexcept {
  Outgoing& message = *part.message;
  ++shared_.parts_sent;
  part.in_hand = false;
  --message.in_hand;
  if (part.state == Part::State::kArrived) part.unlink();
  if (!std::exchange(part.written, true)) --message.unwritten;
  const bool is_kept = message.payload_bytes <= TcpPort::kKeptBytes && message.missing > 0;
  if (is_kept && !message.copied && message.unwritten == 0 && message.completion != nullptr) keep(message);
  SendCompletion* completion = message.copied && message.unwritten == 0 ? message.take_completion() : nullptr;
  if (message.missing == 0 && message.in_hand == 0) {
    Messages finished;
    finish(of(message.traffic), message, finished);
    if (completion != nullptr) completion->sent(nullptr);
    complete(finished);
  } else if (completion != nullptr) {
    completion->sent(nullptr);
  }
}

void Outbound::ended(Carrier& carrier) noexcept {
  std::erase(carriers_, &carrier);
  Messages finished;
  IntrusiveList<Part> again;
  std::array<bool, kClasses> lost_heads{};
  while (Part* part = carrier.parts.pop_front()) {
    Outgoing& message = *part->message;
    if (std::exchange(part->in_hand, false)) --message.in_hand;
    if (part->state == Part::State::kArrived) {
      finish(of(message.traffic), message, finished);
      continue;
    }
    part->state = Part::State::kWaiting;
    if (is_long(*part)) meter_.ended(shared_.loop.now());
    if (part == &message.head) {
      lost_heads[static_cast<std::size_t>(message.traffic)] = true;
      continue;
    }
    part->carrier = nullptr;
    part->again = false;
    --carried_chunks_;
    again.push_back(*part);
  }
  for (Class& its : classes_) {  // older chunks first
    for (IntrusiveList<Part>* list : {&its.shared_chunks, &its.lead_chunks}) {
      while (Part* later = list->pop_front()) again.push_back(*later);
    }
    its.waiting_chunks = its.waiting_bytes = 0;
  }
  while (Part* chunk = again.pop_front()) {
    Class& its = of(chunk->message->traffic);
    const bool known = chunk->message->head.state == Part::State::kArrived;
    (known ? its.shared_chunks : its.lead_chunks).push_back(*chunk);
    ++its.waiting_chunks;
    its.waiting_bytes += chunk->length;
  }
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic) {
    if (next_leads_[traffic] == &carrier) next_leads_[traffic] = nullptr;
    const bool led = leads_[traffic] == &carrier;
    if (led) leads_[traffic] = std::exchange(next_leads_[traffic], nullptr);
    if (!led && !lost_heads[traffic]) continue;
    Class& its = classes_[traffic];
    its.head_due = its.begun.first();
    skip_carried(its);
  }
  may_wait_ = kAllClasses;
  complete(finished);
}

bool Outbound::arrived(TrafficClass traffic, std::uint64_t number, std::uint64_t headers,
                       const Carrier* over) noexcept {
  Class& its = of(traffic);
  if (number > headers || headers > its.last) return false;
  const std::uint64_t last = headers > its.headers_arrived ? headers : number;
  its.headers_arrived = std::max(its.headers_arrived, headers);
  Messages finished;
  for (Outgoing* next = its.begun.first(); next != nullptr && next->number <= last;) {
    Outgoing& message = *next;
    next = its.begun.after(message);
    if (message.number <= number && message.is_short_and_settled() && !is_long(message.head) &&
        its.head_due != &message) {
      message.head.state = Part::State::kArrived;
      message.head.unlink();
      recycle(message);
      continue;
    }
    if (message.number <= number || message.chunk_count > 0) arrive(its, message.head, over);
    for (std::size_t i = 0; i < message.chunk_count && message.number <= number; ++i) {
      arrive(its, message.chunks[i], over);
    }
    finish(its, message, finished);
  }
  skip_carried(its);
  complete(finished);
  return true;
}

bool Outbound::part_arrived(Carrier& carrier, const Frame& part) noexcept {
  Class& its = of(part.traffic);
  if (part.number > its.last) return false;
  Part* found = part_of(its, part);
  if (found == nullptr) return true;  // known from another connection
  Outgoing& message = *found->message;
  if (found->again && found->carrier != &carrier) carrier.pace.given_arrived(found->length, shared_.loop.now());
  arrive(its, *found, &carrier);
  skip_carried(its);
  Messages finished;
  finish(its, message, finished);
  complete(finished);
  return true;
}

// Null if it was never carried, or belongs to a message that has arrived.
Part* Outbound::part_of(Class& its, const Frame& frame) noexcept {
  Outgoing* message = its.begun.find([&frame](const Outgoing& one) { return one.number == frame.number; });
  if (message == nullptr) return nullptr;
  Part* part = &message->head;
  if (message->chunk_count > 0) {
    const std::uint64_t index = frame.offset / message->chunks[0].length;
    if (index >= message->chunk_count) return nullptr;
    part = &message->chunks[index];
  }
  const bool never = part->state == Part::State::kWaiting && !part->again;
  return never || part->offset != frame.offset || part->length != frame.length ? nullptr : part;
}

// What it says about the connection that carries the chunk. If two do, the one over which it is said may have brought it.
void Outbound::count_arrived(const Part& part, const Carrier* over) noexcept {
  if (part.state != Part::State::kCarried) return;
  if (part.again && over != part.carrier) {
    part.carrier->pace.gave(part.length);
  } else {
    part.carrier->pace.arrived(part.position, part.length, part.taken, shared_.loop.now());
  }
}

// What the peer has may still be counted as unwritten here: the system took it, and the writer was not resumed yet.
void Outbound::arrive(Class& its, Part& part, const Carrier* over) noexcept {
  if (part.state == Part::State::kArrived) return;
  Outgoing& message = *part.message;
  const bool is_head = &part == &message.head;
  if (part.state == Part::State::kCarried && is_long(part)) meter_.ended(shared_.loop.now());
  if (!is_head) count_arrived(part, over);
  if (!is_head && part.state == Part::State::kCarried) --carried_chunks_;
  if (!is_head && part.state == Part::State::kWaiting) {
    --its.waiting_chunks;
    its.waiting_bytes -= part.length;
  }
  part.state = Part::State::kArrived;
  if (!part.in_hand) part.unlink();
  --message.missing;
  if (!is_head) return;
  for (std::size_t i = 0; i < message.chunk_count; ++i) {
    Part& chunk = message.chunks[i];
    if (chunk.state != Part::State::kWaiting) continue;
    chunk.unlink();
    its.shared_chunks.push_back(chunk);
  }
}

}  // namespace aiacc::tcp
