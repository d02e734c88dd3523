#include "transports/tcp/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "transports/qos/latency_use.h"

namespace aiacc::tcp {

Connection::Connection(Shared& shared, ConnectionOwner& owner, std::unique_ptr<io::Stream> stream, wire::Bytes preface,
                       Inbound& inbound, Outbound& outbound, Carried& carried)
    : shared_(shared),
      owner_(owner),
      stream_(std::move(stream)),
      sent_again_before_(stream_->flow().sent_again),
      preface_(std::move(preface)),
      inbound_(inbound),
      outbound_(outbound),
      carried_(carried),
      output_(shared.loop),
      room_(shared.loop) {
  carrier_.connection = this;
  carrier_.holder = this;
  place_stop_.emplace(stop_);
  stream_->expect_answers();
}

Connection::~Connection() {
  // No wait of a frame that is destroyed may be left with the stream.
  stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the connection is closed")));
}

void Connection::start() {
  running_ = 2;
  reader_.emplace(shared_.loop, read(), static_cast<Root::Owner&>(*this));
  writer_.emplace(shared_.loop, write(), static_cast<Root::Owner&>(*this));
  writer_->start();
  reader_->start();
}

void Connection::root_ended(Root&, std::exception_ptr error) noexcept {
  if (--running_ > 0) {  // what ended the first half ends the other, whose error says nothing new
    error_ = error;
    stop_.request(error ? error : std::make_exception_ptr(Error(Code::kAborted, "the connection has ended")));
    return;
  }
  owner_.connection_ended(*this, std::exchange(error_, nullptr));
}

// --- reading --------------------------------------------------------------------------------------------------------------

// What is read next goes to where the message is then to go, or to nobody.
void Connection::place_changed(const Incoming& message) noexcept {
  if (current_ != &message) return;
  place_stop_->request(std::make_exception_ptr(Error(Code::kAborted, "the place was taken back")));
}

void Connection::arrived(const Incoming& message) noexcept {
  if (current_ != &message) return;
  place_changed(message);
  current_ = nullptr;
}

Task<void> Connection::read() {
  MessageHeader header;
  for (;;) {
    while (!has_staged(kFrameBytes)) {
      const std::size_t moved = co_await stream_->read_some(space_for_header(), stop_);
      if (!current() || !staged(moved)) co_return;
    }
    frame_ = decode_frame(std::span<const std::byte, kFrameBytes>(staging_.data() + begin_, kFrameBytes));
    begin_ += kFrameBytes;
    if (frame_.kind > FrameKind::kChunk) {
      control(frame_);
      if (!current()) co_return;
      continue;
    }
    if (said_farewell_) {
      throw Error(Code::kProtocol, fmt::format("{} sent a message after its farewell", stream_->describe()));
    }
    bool whole = false;
    if (frame_.kind == FrameKind::kMessage) {
      while (!has_staged(kHeaderBytes)) {
        const std::size_t moved = co_await stream_->read_some(space_for_header(), stop_);
        if (!current() || !staged(moved)) co_return;
      }
      decode_header(std::span<const std::byte, kHeaderBytes>(staging_.data() + begin_, kHeaderBytes), header);
      begin_ += kHeaderBytes;
      while (inbound_.must_wait(frame_)) {
        room_.reset();
        co_await room_.wait(stop_);
      }
      if (take_whole(header)) {
        if (!current()) co_return;
        continue;
      }
      current_ = inbound_.begin(frame_, header);
      whole = frame_.length == header.length;
    } else {
      current_ = inbound_.find(frame_);
    }
    if (!whole && current()) owner_.chunk_came();
    if (!current()) co_return;
    const std::uint64_t done = take_staged(0);
    if (done < frame_.length) {
      const bool came_all = co_await read_payload(done);
      if (!came_all) co_return;
    }
    came(whole);
    if (!current()) co_return;
  }
}

// What is left of the last read goes to the front.
std::span<std::byte> Connection::space_for_header() noexcept {
  if (begin_ > 0) {
    std::memmove(staging_.data(), staging_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return std::span(staging_).subspan(end_);
}

// So many more bytes of a header, or of what follows it. False: nothing will come any more.
bool Connection::staged(std::size_t moved) {
  if (moved == 0 && end_ > 0) {
    throw Error(Code::kPeerFailed, fmt::format("{} closed in the middle of a header", stream_->describe()));
  }
  end_ += moved;
  carried_.received += moved;
  return moved > 0;
}

// Of the frame's bytes; empty if they are for nobody.
std::span<std::byte> Connection::place() const noexcept {
  if (current_ == nullptr || current_->place.empty()) return {};
  return current_->place.subspan(frame_.offset, frame_.length);
}

// Moves what is staged of the frame's bytes, of which `done` came before. How many have come now.
std::uint64_t Connection::take_staged(std::uint64_t done) noexcept {
  const std::size_t part = static_cast<std::size_t>(std::min<std::uint64_t>(end_ - begin_, frame_.length - done));
  const std::span<std::byte> into = place();
  if (!into.empty() && part > 0) std::memcpy(into.data() + done, staging_.data() + begin_, part);
  begin_ += part;
  return done + part;
}

// False: this connection is not to be read any more.
Task<bool> Connection::read_payload(std::uint64_t done) {
  while (done < frame_.length) {
    begin_ = end_ = 0;
    const std::span<std::byte> its = place();
    const bool direct = !its.empty() && frame_.length - done > kDirectBytes;
    const std::span<std::byte> into = direct ? its.subspan(done) : std::span<std::byte>(staging_);
    std::size_t moved = 0;
    bool revoked = false;
    try {
      moved = co_await stream_->read_some(into, *place_stop_);
    } catch (...) {
      if (stop_.requested() || !place_stop_->requested()) throw;
      revoked = true;
    }
    if (!current()) co_return false;
    if (place_stop_->requested()) place_stop_.emplace(stop_);
    if (revoked) continue;
    if (moved == 0)
      throw Error(Code::kPeerFailed, fmt::format("{} closed in the middle of a message", stream_->describe()));
    carried_.received += moved;
    if (direct) {
      done += moved;
    } else {
      end_ = moved;
      done = take_staged(done);
    }
  }
  co_return true;
}

inline void Connection::count_came(bool whole) noexcept {
  ++unsaid_messages_;
  unsaid_bytes_ += frame_.length;
  const bool many = unsaid_messages_ >= kAckMessages || unsaid_bytes_ >= kAckBytes;
  if (whole && frame_.length <= TcpPort::kKeptBytes && !many) return;
  ack_due_ = true;
  output_.set();
}

// The short way of a message that is staged as a whole: it is never begun. False if it takes the other way.
bool Connection::take_whole(const MessageHeader& header) {
  if (!has_staged(frame_.length) || !inbound_.may_place(frame_, header)) return false;
  const MessageReceiver::Placement placement = shared_.receiver->on_header(inbound_.rank(), header);
  if (!current()) return true;
  const bool placed = inbound_.place(frame_, header, placement, staging_.data() + begin_);
  begin_ += frame_.length;
  count_came(true);
  if (placed) shared_.receiver->on_placed(inbound_.rank(), header);
  return true;
}

// All bytes of the frame have come. `whole`: these are all of their message.
void Connection::came(bool whole) noexcept {
  const bool announces = frame_.kind == FrameKind::kMessage && !whole;
  const bool in_turn = whole && frame_.number <= inbound_.whole(static_cast<std::size_t>(frame_.traffic)) + 1;
  if (!announces && !in_turn) {
    came_before_others_.push_back(frame_);
    came_before_others_.back().kind = FrameKind::kChunkArrived;
  }
  if (Incoming* message = std::exchange(current_, nullptr)) inbound_.bytes_came(frame_, *message);
  // Last: what the operation then sends goes with the acknowledgement.
  if (current()) count_came(whole);
}

void Connection::control(const Frame& frame) {
  bool possible = true;
  if (frame.kind == FrameKind::kArrived)
    possible = outbound_.arrived(frame.traffic, frame.number, frame.offset, &carrier_);
  if (frame.kind == FrameKind::kChunkArrived) possible = outbound_.part_arrived(carrier_, frame);
  if (!possible) {
    throw Error(Code::kProtocol,
                fmt::format("{} acknowledges message {} of a traffic class, which cannot be", stream_->describe(),
                            std::max(frame.number, frame.kind == FrameKind::kArrived ? frame.offset : 0)));
  }
  if (!current()) return;                         // in a completion
  if (outbound_.carries_chunks()) output_.set();  // this connection may be needed for them
  if (frame.kind == FrameKind::kAsk) {
    ack_due_ = true;
    output_.set();
  }
  if (frame.kind == FrameKind::kFarewell) said_farewell_ = true;
  owner_.acknowledged();
  if (said_farewell_ && current()) owner_.farewell_came();
}

void Connection::retire() noexcept {
  retired_ = true;
  current_ = nullptr;
  outbound_.ended(carrier_);
}

// --- writing --------------------------------------------------------------------------------------------------------------

void Connection::ask() noexcept {
  ask_due_ = true;
  output_.set();
}

void Connection::farewell() noexcept {
  farewell_due_ = true;
  output_.set();
}

Task<void> Connection::write() {
  co_await io::write_all(*stream_, preface_, stop_);
  while (current()) {
    if (batch_is_written() && !farewell_in_batch_ && !gather()) {
      if (window_) {
        window_->idle();
        room_in_window_ = 0;
      }
      output_.reset();
      writer_waits_ = true;
      co_await output_.wait(stop_);
      writer_waits_ = false;
      continue;
    }
    if (keeps_to_window()) {
      co_await write_within_window();
      if (!current()) co_return;
    }
    while (!batch_is_written()) {
      const std::span<const io::Piece> rest(pieces_.data() + piece_begin_, piece_end_ - piece_begin_);
      const std::size_t moved = co_await stream_->write_gathered(rest, stop_);
      if (!current()) co_return;
      advance(moved);
      if (!current()) co_return;
    }
    if (!farewell_in_batch_) continue;
    stream_->shutdown_write();
    owner_.farewell_written();
    for (;;) {  // until the reader ends and ends this too
      output_.reset();
      co_await output_.wait(stop_);
    }
  }
}

// Whether the batch has to. Without a limit of its own, a connection has a window while latency is in use, which begins with what is under way.
bool Connection::keeps_to_window() noexcept {
  if (!beside_latency_) return window_.has_value();
  if (!waits_its_turn_ || batch_is_written()) return false;
  if (!shared_.latency_in_use()) {
    window_.reset();
    carrier_.window = 0;
  } else if (!window_) {
    room_in_window_ = 0;
    window_.emplace(LatencyUse::kDelay, stream_->flow().held);
  }
  return window_.has_value();
}

// The batch, as its window permits.
Task<void> Connection::write_within_window() {
  while (!batch_is_written()) {
    while (room_in_window_ == 0) {
      room_in_window_ = window_->room(stream_->flow(), shared_.loop.now());
      carrier_.window = window_->bytes();
      if (room_in_window_ > 0) break;
      co_await sleep_for(shared_.loop, window_->pause(), stop_);
      if (!current()) co_return;
    }
    const std::size_t moved = co_await stream_->write_gathered(within(room_in_window_), stop_);
    if (!current()) co_return;
    room_in_window_ -= std::min<std::uint64_t>(moved, room_in_window_);
    advance(moved);
    if (!current()) co_return;
  }
}

// The first pieces of what is left of the batch, together at most so many bytes unless a piece cannot be cut.
std::span<const io::Piece> Connection::within(std::uint64_t bytes) noexcept {
  std::size_t end = piece_begin_;
  for (; end < piece_end_ && pieces_[end].size() <= bytes; ++end) bytes -= pieces_[end].size();
  if (end < piece_end_ && bytes > 0 && (piece_begin_ > 0 || piece_end_ < pieces_.size())) {
    if (piece_begin_ > 0) {
      std::copy(&pieces_[piece_begin_], &pieces_[end] + 1, &pieces_[piece_begin_ - 1]);
      std::copy(&marks_[piece_begin_], &marks_[end] + 1, &marks_[piece_begin_ - 1]);
      --piece_begin_;
    } else {
      std::copy_backward(&pieces_[end], &pieces_[piece_end_], &pieces_[piece_end_] + 1);
      std::copy_backward(&marks_[end], &marks_[piece_end_], &marks_[piece_end_] + 1);
      ++piece_end_;
      ++end;
    }
    // The same piece is now at end - 1 and at end.
    pieces_[end - 1] = pieces_[end - 1].first(bytes);
    marks_[end - 1].last = false;
    pieces_[end] = pieces_[end].subspan(bytes);
  }
  if (end == piece_begin_) ++end;
  return std::span(pieces_).subspan(piece_begin_, end - piece_begin_);
}

// What the system does not take is left to the writer, and so is an error. A writer that is busy, or was woken for a rest, looks
// for more before it waits again.
void Connection::write_now() noexcept {
  if (window_ && !beside_latency_) return wake_writer();
  if (!writer_waits_ || stop_.requested() || !batch_is_written() || farewell_in_batch_) return;
  if (!gather()) return;
  if (keeps_to_window()) return wake_writer();
  try {
    io::IoAwait attempt = stream_->write_gathered(std::span(pieces_).first(piece_end_), stop_);
    if (attempt.await_ready()) advance(attempt.await_resume());
  } catch (...) {
  }
  if (!batch_is_written() || farewell_in_batch_) wake_writer();
}

// The pieces of the next batch; false if there is nothing to say.
bool Connection::gather() {
  piece_begin_ = piece_end_ = 0;
  waits_its_turn_ = false;
  copies_.clear();
  // The peer keeps the copies of what this end has not acknowledged, perhaps for long if no more of it comes.
  const bool along = unsaid_bytes_ > TcpPort::kCopyBytes && outbound_.waiting();
  if (ack_due_ || along) add_acks();
  // No more than may be written soon: what is urgent waits for all that was taken before it.
  const bool narrow = beside_latency_ && window_ && room_in_window_ > 0;
  const std::uint64_t most = narrow ? std::min<std::uint64_t>(kBatchBytes, room_in_window_) : kBatchBytes;
  std::size_t bytes = 0;
  bool nothing_waits = false;
  while (bytes < most && piece_end_ + 2 + 1 + Outgoing::kMaxPieces <= kMaxPieces) {
    Part* part = outbound_.waiting() ? outbound_.next(carrier_) : nullptr;
    nothing_waits = part == nullptr;
    if (nothing_waits) break;
    add_part(*part);
    waits_its_turn_ = waits_its_turn_ || part->message->traffic >= TrafficClass::kBulk;
    bytes += Outgoing::kPrefixBytes + part->length;
  }
  if (nothing_waits && (outbound_.carries_chunks() || outbound_.shares() || outbound_.holds_back()))
    owner_.look_later();
  // What is asked for, and the last word, are about all that was written before them.
  if (nothing_waits && std::exchange(ask_due_, false)) add_frame({.kind = FrameKind::kAsk}, ask_frame_);
  if (nothing_waits && farewell_due_) {
    farewell_in_batch_ = true;
    add_frame({.kind = FrameKind::kFarewell}, farewell_frame_);
  }
  return piece_end_ > 0;
}

void Connection::add_acks() noexcept {
  unsaid_messages_ = unsaid_bytes_ = 0;
  front_bytes_ = 0;
  const auto add = [this](const Frame& frame) {
    encode_frame(frame, std::span(front_).subspan(front_bytes_).first<kFrameBytes>());
    front_bytes_ += kFrameBytes;
  };
  for (std::size_t i = 0; i < kClasses; ++i) {
    const std::pair counts(inbound_.whole(i), inbound_.headers(i));
    if (std::exchange(said_[i], counts) == counts) continue;
    add({.kind = FrameKind::kArrived,
         .traffic = static_cast<TrafficClass>(i),
         .number = counts.first,
         .offset = counts.second});
  }
  auto next = came_before_others_.begin();
  for (; next != came_before_others_.end() && front_bytes_ < front_.size(); ++next) {
    if (next->number > said_[static_cast<std::size_t>(next->traffic)].first) add(*next);
  }
  came_before_others_.erase(came_before_others_.begin(), next);
  ack_due_ = !came_before_others_.empty();
  if (front_bytes_ > 0) add_piece(nullptr, std::span(front_).first(front_bytes_), true);
}

void Connection::add_frame(const Frame& frame, std::span<std::byte, kFrameBytes> into) noexcept {
  encode_frame(frame, into);
  add_piece(nullptr, into, true);
}

void Connection::add_part(Part& part) noexcept {
  const Outgoing& message = *part.message;
  std::span<const std::byte> front = part.frame;
  if (&part == &message.head) {
    front =
        message.chunk_count == 0 ? std::span(message.bytes) : std::span(message.bytes).first<Outgoing::kPrefixBytes>();
  }
  const std::size_t first = piece_end_;
  add_piece(&part, front, false);
  std::uint64_t skipped = part.offset, left = part.length;
  for (std::size_t i = 0; i < message.piece_count && left > 0; ++i) {
    const io::Piece piece = message.pieces[i];
    if (skipped >= piece.size()) {
      skipped -= piece.size();
      continue;
    }
    const io::Piece its = piece.subspan(skipped, std::min<std::uint64_t>(left, piece.size() - skipped));
    skipped = 0;
    left -= its.size();
    add_piece(&part, its, false);
  }
  AIACC_INVARIANT(piece_end_ > first, "a part has a frame");
  marks_[piece_end_ - 1].last = true;
}

void Connection::add_piece(Part* part, io::Piece piece, bool last) noexcept {
  pieces_[piece_end_] = piece;
  marks_[piece_end_] = {part, last};
  ++piece_end_;
}

void Connection::advance(std::size_t bytes) noexcept {
  carried_.sent += bytes;
  while (piece_begin_ < piece_end_ && bytes >= pieces_[piece_begin_].size()) {
    bytes -= pieces_[piece_begin_].size();
    const Mark mark = marks_[piece_begin_];
    ++piece_begin_;
    if (mark.part == nullptr || !mark.last) continue;
    outbound_.wrote(*mark.part);
    if (!current()) return;
  }
  if (bytes > 0) pieces_[piece_begin_] = pieces_[piece_begin_].subspan(bytes);
}

void Connection::let_go(const Part& part) noexcept {
  std::size_t bytes = 0;
  const auto each_piece = [&](auto&& fn) {
    for (std::size_t i = piece_begin_; i < piece_end_; ++i) {
      if (marks_[i].part == &part) fn(i);
    }
  };
  each_piece([&](std::size_t i) { bytes += pieces_[i].size(); });
  std::byte* end = copies_.emplace_back(std::make_unique_for_overwrite<std::byte[]>(bytes)).get();
  each_piece([&](std::size_t i) {
    std::memcpy(end, pieces_[i].data(), pieces_[i].size());
    pieces_[i] = {end, pieces_[i].size()};
    end += pieces_[i].size();
    marks_[i].part = nullptr;
  });
}

// A withdrawn message goes on from its copy. What is written of a piece was cut off its front.
void Connection::moved(const Outgoing& message, std::span<const io::Piece> before) noexcept {
  for (std::size_t i = piece_begin_; i < piece_end_; ++i) {
    if (marks_[i].part == nullptr || marks_[i].part->message != &message) continue;
    const io::Piece now = pieces_[i];
    for (std::size_t piece = 0; piece < before.size(); ++piece) {
      const std::less_equal<const std::byte*> up_to;
      if (!up_to(before[piece].data(), now.data()) ||
          !up_to(now.data() + now.size(), before[piece].data() + before[piece].size()))
        continue;
      pieces_[i] =
          message.pieces[piece].subspan(static_cast<std::size_t>(now.data() - before[piece].data()), now.size());
      break;
    }
  }
}

}  // namespace aiacc::tcp
