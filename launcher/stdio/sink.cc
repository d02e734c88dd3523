#include "launcher/stdio/sink.h"

#include <fmt/format.h>

#include <utility>

namespace aiacc::launcher {

Sink::Sink(Loop& loop, io::Stream& to, bool tagged, Owner& owner)
    : to_(to), tagged_(tagged), owner_(owner), joiner_(tagged), changed_(loop), drained_(loop) {
  drained_.set();
}

void Sink::enqueue(Item item) {
  if (discarding_ && (item.credit > 0 || broken_)) {
    dropped_bytes_ += item.credit;
    if (item.credit > 0) owner_.sink_took(*this, item.rank, item.credit);
    return;
  }
  queue_.push_back(std::move(item));
  drained_.reset();
  changed_.set();
}

void Sink::put(int rank, Piece piece) {
  const std::size_t credit = piece.bytes.size();
  std::string text = joiner_.before(rank, piece, tagged_ ? fmt::format("[{}] ", rank) : std::string());
  joiner_.joined(rank, piece);
  if (text.empty()) {
    text = std::move(piece.bytes);
  } else {
    text += piece.bytes;
  }
  enqueue({std::move(text), credit, rank});
}

void Sink::put_own_line(const std::string& line) { enqueue({joiner_.before_own_line() + line + "\n"}); }

void Sink::forget_queue() {
  for (const Item& item : std::exchange(queue_, {})) {
    dropped_bytes_ += item.credit;
    if (item.credit > 0) owner_.sink_took(*this, item.rank, item.credit);
  }
}

void Sink::discard() {
  if (std::exchange(discarding_, true)) return;
  forget_queue();
  dropped_bytes_ += in_flight_;
  drained_.set();
}

Task<void> Sink::run(Stop& stop) {
  while (!broken_) {
    while (!queue_.empty()) {
      const Item item = std::move(queue_.front());
      queue_.pop_front();
      in_flight_ = item.credit;
      try {
        co_await io::write_all(to_, std::as_bytes(std::span(item.bytes)), stop);
      } catch (const Error& error) {
        if (stop.requested()) throw;
        broken_ = true;
        discard();
        owner_.sink_broke(*this, error);
        co_return;
      }
      in_flight_ = 0;
      if (item.credit > 0) owner_.sink_took(*this, item.rank, item.credit);
    }
    drained_.set();
    changed_.reset();
    co_await changed_.wait(stop);
  }
}

}  // namespace aiacc::launcher
