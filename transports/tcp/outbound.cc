#include "transports/tcp/outbound.h"

#include <algorithm>
#include <cstring>

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
  if (!readable || message.payload_bytes != header.length || header.kind == MessageKind::kAck) {
    const Error error(Code::kInvalidArgument, "a message was posted that no connection can carry");
    tell(message, std::make_exception_ptr(error));
    spare_.splice(spare_.end(), one);
    return;
  }

  const bool copied = message.payload_bytes <= TcpPort::kCopyBytes || pieces.size() > Outgoing::kMaxPieces;
  message.bytes.resize(kHeaderBytes + (copied ? message.payload_bytes : 0));
  encode_header(header, std::span<std::byte, kHeaderBytes>(message.bytes.data(), kHeaderBytes));
  std::byte* end = message.bytes.data() + kHeaderBytes;
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
  Messages& queue = queues_[static_cast<std::size_t>(header.traffic)];
  queue.splice(queue.end(), one);
  message.queue = &queue;
}

Outgoing* Outbound::next() noexcept {
  if (resend_ != unacknowledged_.end()) return &*resend_++;
  for (Messages& queue : queues_) {
    if (queue.empty()) continue;
    unacknowledged_.splice(unacknowledged_.end(), queue, queue.begin());
    unacknowledged_.back().queue = nullptr;
    ++begun_;
    return &unacknowledged_.back();
  }
  return nullptr;
}

void Outbound::wrote(Outgoing& message) noexcept {
  ++written_;
  SendCompletion* completion = message.copied ? message.take_completion() : nullptr;
  settle();
  if (completion != nullptr) completion->sent(nullptr);
}

bool Outbound::acknowledged(std::uint64_t count) noexcept {
  if (count < said_ || count > begun_) return false;
  said_ = count;
  settle();
  return true;
}

bool Outbound::resume(std::uint64_t count) noexcept {
  if (count < said_ || count > begun_) return false;
  said_ = written_ = count;
  resend_ = unacknowledged_.end();
  settle();
  resend_ = unacknowledged_.begin();
  return true;
}

// What the peer has may still be counted as unwritten here: the system took it, and the writer was not resumed yet.
void Outbound::settle() noexcept {
  while (!unacknowledged_.empty() && settled_ < std::min(said_, written_)) {
    ++settled_;
    SendCompletion* completion = unacknowledged_.front().take_completion();
    recycle(unacknowledged_, unacknowledged_.begin());
    if (completion != nullptr) completion->sent(nullptr);
  }
}

void Outbound::withdraw(Outgoing& message, Moved* moved) {
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
    if (moved != nullptr) moved->moved(message, std::span(before).first(message.piece_count));
  }
  tell(message, error);
}

void Outbound::fail(const std::exception_ptr& why) noexcept {
  for (Messages* messages : {&unacknowledged_, &queues_[0], &queues_[1], &queues_[2]}) {
    for (Outgoing& message : *messages) {
      if (message.completion != nullptr) tell(message, why);
    }
  }
  forget();
}

void Outbound::forget() noexcept {
  for (Messages& queue : queues_) queue.clear();
  unacknowledged_.clear();
  spare_.clear();
  resend_ = unacknowledged_.end();
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
