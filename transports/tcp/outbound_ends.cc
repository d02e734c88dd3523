// How messages leave Outbound: acknowledged, withdrawn by their sender, or failed with the peer; and what is kept of their memory.
#include <array>
#include <cstring>
#include <utility>

#include "transports/tcp/outbound.h"

namespace aiacc::tcp {
namespace {

// Messages whose memory is kept for the next ones: so many, and of short ones more than one acknowledgement settles.
constexpr std::size_t kMaxSpareOutbound = 16;
constexpr std::size_t kMaxShortSpare = 128;
constexpr std::size_t kShortBytes = 1024;

}  // namespace

void Outbound::finish(Class& its, Outgoing& message, Messages& finished) noexcept {
  if (message.missing > 0) return;
  // A connection that is slow to write its copy of a chunk does not hold the message.
  for (std::size_t i = 0; message.again && message.in_hand > 0 && i < message.chunk_count; ++i) {
    if (!message.chunks[i].in_hand) continue;
    take_out_of_hand(message.chunks[i]);
    message.chunks[i].unlink();
  }
  if (message.in_hand > 0) return;
  if (its.head_due == &message) its.head_due = its.begun.after(message);
  finished.take(message);
}

void Outbound::complete(Messages& finished) noexcept {
  while (!finished.empty()) {
    SendCompletion* completion = finished.front().take_completion();
    recycle(finished.front());
    if (completion != nullptr && !shared_.closed) completion->sent(nullptr);
  }
}

// It may have to be sent again, and its sender waits no longer.
void Outbound::keep(Outgoing& message) noexcept { message.go_on_from(shared_.memory_for_copy(message.payload_bytes)); }

void Outbound::withdraw(Outgoing& message, Moved& moved) {
  const auto error = std::make_exception_ptr(Error(Code::kAborted, "the sender withdrew this message"));
  if (!message.begun) {
    tell(message, error);
    recycle(message);
    return;
  }
  if (!message.copied) {
    const std::array<io::Piece, Outgoing::kMaxPieces> before = message.pieces;
    message.go_on_from({});
    moved.moved(message, std::span(before).first(message.piece_count));
  }
  tell(message, error);
}

void Outbound::fail(const std::exception_ptr& why) noexcept {
  for (Class& its : classes_) {
    for (Messages* messages : {&its.begun, &its.queue}) {
      messages->for_each([&](Outgoing& message) {
        if (message.completion != nullptr) tell(message, why);
      });
    }
  }
  forget();
}

void Outbound::forget() noexcept {
  for (Class& its : classes_) {
    its.queue.clear();
    its.begun.clear();
    its.head_due = nullptr;
    its.waiting_chunks = its.waiting_bytes = 0;
  }
  carried_chunks_ = 0;
  meter_ = {};
  spare_.clear();
  spares_ = 0;
}

void Outbound::tell(Outgoing& message, const std::exception_ptr& error) noexcept {
  shared_.notify_later({Notification::What::kSent, rank_, message.take_completion(), error, {}});
}

void Outbound::recycle(Outgoing& message) noexcept {
  if (message.copy.capacity() > 0) shared_.give_back_copy(std::exchange(message.copy, {}));
  const bool is_short = message.bytes.capacity() <= kShortBytes;
  if (spares_ >= (is_short ? kMaxShortSpare : kMaxSpareOutbound)) {
    delete &message;
    return;
  }
  message.ListNode<Outgoing>::unlink();
  spare_.push_front(message);
  ++spares_;
}

}  // namespace aiacc::tcp
