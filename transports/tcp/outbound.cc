#include "transports/tcp/outbound.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace aiacc::tcp {
namespace {

// Messages whose memory is kept for the next ones: so many, and of short ones more than one acknowledgement settles.
constexpr std::size_t kMaxSpare = 16;
constexpr std::size_t kMaxShortSpare = 128;
constexpr std::size_t kShortBytes = 1024;

}  // namespace

void Outbound::add(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion) {
  Messages one;
  if (spare_.empty()) {
    one.emplace_back();
    one.front().self = one.begin();
    one.front().to = rank_;
  } else {
    one.splice(one.end(), spare_, spare_.begin());
  }
  Outgoing& message = one.front();
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
    spare_.splice(spare_.end(), one);
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
  Messages& queue = of(header.traffic).queue;
  queue.splice(queue.end(), one);
  message.queue = &queue;
}

bool Outbound::empty() const noexcept {
  return std::all_of(classes_.begin(), classes_.end(),
                     [](const Class& its) { return its.queue.empty() && its.begun.empty(); });
}

bool Outbound::waiting() const noexcept {
  return std::any_of(classes_.begin(), classes_.end(), [](const Class& its) {
    return !its.queue.empty() || its.waiting_chunks > 0 || its.head_due != its.begun.end();
  });
}

bool Outbound::shares() const noexcept {
  return std::any_of(classes_.begin(), classes_.end(), [](const Class& its) { return !its.shared_chunks.empty(); });
}

Part* Outbound::next(Carrier& carrier) noexcept {
  for (Class& its : classes_) {
    if (its.queue.empty() && its.waiting_chunks == 0 && its.head_due == its.begun.end()) continue;
    if (lead_ == &carrier) {
      if (its.head_due == its.begun.end() && !its.queue.empty() && its.waiting_chunks < 2 * streams_) {
        begin(its);
      }
      if (its.head_due != its.begun.end()) {
        Part& head = its.head_due->head;
        ++its.head_due;
        skip_arrived(its);
        return carry(carrier, head);
      }
    }
    if (Part* chunk = its.shared_chunks.pop_front()) {
      --its.waiting_chunks;
      return carry(carrier, *chunk);
    }
    if (lead_ != &carrier) continue;
    if (Part* chunk = its.lead_chunks.pop_front()) {
      --its.waiting_chunks;
      return carry(carrier, *chunk);
    }
  }
  return nullptr;
}

// The next message of the queue gets its number, and its header is due.
void Outbound::begin(Class& its) noexcept {
  its.begun.splice(its.begun.end(), its.queue, its.queue.begin());
  Outgoing& message = its.begun.back();
  message.queue = nullptr;
  message.number = ++its.last;
  message.head.message = &message;
  message.head.offset = 0;
  message.head.length = message.payload_bytes;
  message.head.state = Part::State::kWaiting;
  message.head.in_hand = message.head.written = false;
  message.chunk_count = message.in_hand = 0;
  if (streams_ > 1 && message.payload_bytes > kWholeBytes) divide(message);
  message.missing = message.unwritten = 1 + message.chunk_count;
  for (std::size_t i = 0; i < message.chunk_count; ++i) its.lead_chunks.push_back(message.chunks[i]);
  its.waiting_chunks += message.chunk_count;
  encode_frame({.kind = FrameKind::kMessage,
                .traffic = message.traffic,
                .number = message.number,
                .offset = 0,
                .length = message.head.length},
               std::span(message.bytes).first<kFrameBytes>());
  its.head_due = std::prev(its.begun.end());
}

// Chunks that are smaller than a connection's share, so that the last ones take equally long.
void Outbound::divide(Outgoing& message) {
  if (message.copied && message.piece_count == 0) {
    message.pieces[message.piece_count++] = std::span(message.bytes).subspan(Outgoing::kPrefixBytes);
  }
  const std::uint64_t share = message.payload_bytes / (2 * streams_);
  const std::uint64_t most = std::clamp<std::uint64_t>(share, kWholeBytes, kMaxChunkBytes);
  message.head.length = 0;
  message.chunk_count = static_cast<std::size_t>((message.payload_bytes + most - 1) / most);
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
    chunk.in_hand = chunk.written = false;
    encode_frame({.kind = FrameKind::kChunk,
                  .traffic = message.traffic,
                  .number = message.number,
                  .offset = chunk.offset,
                  .length = chunk.length},
                 chunk.frame);
  }
}

void Outbound::skip_arrived(Class& its) noexcept {
  while (its.head_due != its.begun.end() && its.head_due->head.state == Part::State::kArrived) ++its.head_due;
}

Part* Outbound::carry(Carrier& carrier, Part& part) noexcept {
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
  Messages finished;
  IntrusiveList<Part> again;
  while (Part* part = carrier.parts.pop_front()) {
    Outgoing& message = *part->message;
    if (std::exchange(part->in_hand, false)) --message.in_hand;
    if (part->state == Part::State::kArrived) {
      finish(of(message.traffic), message, finished);
      continue;
    }
    part->state = Part::State::kWaiting;
    if (part != &message.head) again.push_back(*part);
  }
  for (Class& its : classes_) {  // older chunks first
    for (IntrusiveList<Part>* list : {&its.shared_chunks, &its.lead_chunks}) {
      while (Part* later = list->pop_front()) again.push_back(*later);
    }
    its.waiting_chunks = 0;
  }
  while (Part* chunk = again.pop_front()) {
    Class& its = of(chunk->message->traffic);
    const bool known = chunk->message->head.state == Part::State::kArrived;
    (known ? its.shared_chunks : its.lead_chunks).push_back(*chunk);
    ++its.waiting_chunks;
  }
  if (lead_ == &carrier) {
    lead_ = nullptr;
    for (Class& its : classes_) {
      its.head_due = its.begun.begin();
      skip_arrived(its);
    }
  }
  complete(finished);
}

bool Outbound::arrived(TrafficClass traffic, std::uint64_t number, std::uint64_t headers) noexcept {
  Class& its = of(traffic);
  if (number > headers || headers > its.last) return false;
  const std::uint64_t last = headers > its.headers_arrived ? headers : number;
  its.headers_arrived = std::max(its.headers_arrived, headers);
  Messages finished;
  for (auto next = its.begun.begin(); next != its.begun.end() && next->number <= last;) {
    Outgoing& message = *next++;
    if (message.number <= number || message.chunk_count > 0) arrive(its, message.head);
    for (std::size_t i = 0; i < message.chunk_count && message.number <= number; ++i) arrive(its, message.chunks[i]);
    finish(its, message, finished);
  }
  skip_arrived(its);
  complete(finished);
  return true;
}

bool Outbound::part_arrived(Carrier& carrier, const Frame& part) noexcept {
  Class& its = of(part.traffic);
  if (part.number > its.last) return false;
  Part* found = carrier.parts.find([&part](const Part& one) {
    return one.message->number == part.number && one.message->traffic == part.traffic && one.offset == part.offset &&
           one.length == part.length && one.state == Part::State::kCarried;
  });
  if (found == nullptr) return true;  // known from another connection
  Outgoing& message = *found->message;
  arrive(its, *found);
  skip_arrived(its);
  Messages finished;
  finish(its, message, finished);
  complete(finished);
  return true;
}

// What the peer has may still be counted as unwritten here: the system took it, and the writer was not resumed yet.
void Outbound::arrive(Class& its, Part& part) noexcept {
  if (part.state == Part::State::kArrived) return;
  Outgoing& message = *part.message;
  const bool is_head = &part == &message.head;
  if (!is_head && part.state == Part::State::kWaiting) --its.waiting_chunks;
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

void Outbound::finish(Class& its, Outgoing& message, Messages& finished) noexcept {
  if (message.missing > 0 || message.in_hand > 0) return;
  if (its.head_due == message.self) ++its.head_due;
  finished.splice(finished.end(), its.begun, message.self);
}

void Outbound::complete(Messages& finished) noexcept {
  while (!finished.empty()) {
    SendCompletion* completion = finished.front().take_completion();
    recycle(finished, finished.begin());
    if (completion != nullptr && !shared_.closed) completion->sent(nullptr);
  }
}

void Outbound::withdraw(Outgoing& message, Moved& moved) {
  const auto error = std::make_exception_ptr(Error(Code::kAborted, "the sender withdrew this message"));
  if (message.queue != nullptr) {
    tell(message, error);
    recycle(*message.queue, message.self);
    return;
  }
  if (!message.copied) {
    const std::array<io::Piece, Outgoing::kMaxPieces> before = message.pieces;
    message.copy.resize(message.payload_bytes);
    std::byte* end = message.copy.data();
    for (std::size_t i = 0; i < message.piece_count; ++i) {
      std::memcpy(end, before[i].data(), before[i].size());
      message.pieces[i] = {end, before[i].size()};
      end += before[i].size();
    }
    moved.moved(message, std::span(before).first(message.piece_count));
  }
  tell(message, error);
}

void Outbound::fail(const std::exception_ptr& why) noexcept {
  for (Class& its : classes_) {
    for (Messages* messages : {&its.begun, &its.queue}) {
      for (Outgoing& message : *messages) {
        if (message.completion != nullptr) tell(message, why);
      }
    }
  }
  forget();
}

void Outbound::forget() noexcept {
  for (Class& its : classes_) {
    its.queue.clear();
    its.begun.clear();
    its.head_due = its.begun.end();
    its.waiting_chunks = 0;
  }
  spare_.clear();
}

void Outbound::tell(Outgoing& message, const std::exception_ptr& error) noexcept {
  shared_.notify_later({Notification::What::kSent, rank_, message.take_completion(), error, {}});
}

void Outbound::recycle(Messages& from, Messages::iterator message) noexcept {
  const bool is_short = message->bytes.capacity() <= kShortBytes;
  if (spare_.size() >= (is_short ? kMaxShortSpare : kMaxSpare)) {
    from.erase(message);
    return;
  }
  message->take_completion();
  message->copy = {};
  spare_.splice(spare_.begin(), from, message);
}

}  // namespace aiacc::tcp
