#include "launcher/stdio/output_pump.h"

#include <utility>

#include "base/wire/launch_messages.h"

namespace aiacc::launcher {

OutputPump::OutputPump(Loop& loop, int rank, std::uint8_t stream, std::string tag, std::unique_ptr<io::Stream> from,
                       CreditGate& gate, FrameSender& to, std::uint64_t& dropped)
    : loop_(loop),
      rank_(rank),
      stream_(stream),
      lines_(std::move(tag)),
      from_(std::move(from)),
      gate_(gate),
      to_(to),
      dropped_(dropped),
      buffer_(kSmallRead) {}

void OutputPump::send_ready() {
  if (!lines_.has_piece()) return;
  Piece piece = lines_.take_piece();
  if (gate_.discarding()) {
    dropped_ += piece.bytes.size();
    return;
  }
  gate_.spend(piece.bytes.size());
  wire::Output message;
  message.rank = rank_;
  message.stream = stream_;
  message.continues = piece.continues;
  message.ends_line = piece.ends_line;
  message.bytes = std::move(piece.bytes);
  to_.send(message);
}

void OutputPump::flush_idle() noexcept {
  idle_.CreditGate::Waiter::unlink();
  if (!gate_.open()) {
    gate_.add(idle_);
    return;
  }
  lines_.flush();
  send_ready();
}

Task<void> OutputPump::run(Stop& stop) {
  for (;;) {
    while (!gate_.open()) co_await gate_.wait_open(stop);
    waits_for_data_ = true;
    const std::size_t got = co_await from_->read_some(buffer_, stop);
    waits_for_data_ = false;
    idle_.disarm();
    idle_.CreditGate::Waiter::unlink();
    if (got == 0) break;
    lines_.add(std::string_view(reinterpret_cast<const char*>(buffer_.data()), got));
    if (got == buffer_.size() && got < kLargeRead) buffer_.resize(kLargeRead);
    while (lines_.has_piece() && !gate_.open()) co_await gate_.wait_open(stop);
    send_ready();
    if (lines_.pending() > 0) loop_.arm(idle_, after(loop_.now(), kIdleFlush));
  }
  lines_.flush();
  while (lines_.has_piece() && !gate_.open()) co_await gate_.wait_open(stop);
  send_ready();
  finished_ = true;
}

}  // namespace aiacc::launcher
