#include "transports/tcp/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace aiacc::tcp {

Connection::Connection(Shared& shared, ConnectionOwner& owner, std::unique_ptr<io::Stream> stream, wire::Bytes preface,
                       Inbound& inbound, Outbound& outbound)
    : shared_(shared),
      owner_(owner),
      stream_(std::move(stream)),
      preface_(std::move(preface)),
      inbound_(inbound),
      outbound_(outbound),
      output_(shared.loop),
      room_(shared.loop) {
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

void Connection::place_revoked() noexcept {
  place_stop_->request(std::make_exception_ptr(Error(Code::kAborted, "the place was taken back")));
}

Task<void> Connection::read() {
  MessageHeader header;
  for (;;) {
    while (end_ - begin_ < kHeaderBytes) {
      const std::size_t moved = co_await stream_->read_some(space_for_header(), stop_);
      if (!current() || !staged(moved)) co_return;
    }
    header = decode_header(std::span<const std::byte, kHeaderBytes>(staging_.data() + begin_, kHeaderBytes));
    begin_ += kHeaderBytes;
    if (header.kind == MessageKind::kAck) {
      control(header);
      continue;
    }
    if (said_farewell_) {
      throw Error(Code::kProtocol, fmt::format("{} sent a message after its farewell", stream_->describe()));
    }
    while (inbound_.holds_too_much()) {
      room_.reset();
      co_await room_.wait(stop_);
    }
    inbound_.begin(header);
    if (!current()) co_return;
    const std::uint64_t done = take_staged(0, header.length);
    if (done < header.length) {
      const bool whole = co_await read_payload(done, header.length);
      if (!whole) co_return;
    }
    came(header);
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
  return moved > 0;
}

// Moves what is staged of a payload of which `done` bytes came before. How many have come now.
std::uint64_t Connection::take_staged(std::uint64_t done, std::uint64_t length) noexcept {
  const std::size_t part = static_cast<std::size_t>(std::min<std::uint64_t>(end_ - begin_, length - done));
  const std::span<std::byte> place = inbound_.place();
  if (!place.empty() && part > 0) std::memcpy(place.data() + done, staging_.data() + begin_, part);
  begin_ += part;
  return done + part;
}

// False: this connection is not to be read any more.
Task<bool> Connection::read_payload(std::uint64_t done, std::uint64_t length) {
  while (done < length) {
    begin_ = end_ = 0;
    const bool direct = !inbound_.place().empty() && length - done > kDirectBytes;
    const std::span<std::byte> into = direct ? inbound_.place().subspan(done) : std::span<std::byte>(staging_);
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
    if (direct) {
      done += moved;
    } else {
      end_ = moved;
      done = take_staged(done, length);
    }
  }
  co_return true;
}

void Connection::came(const MessageHeader& header) noexcept {
  ++unsaid_messages_;
  unsaid_bytes_ += header.length;
  if (header.length > TcpPort::kCopyBytes || unsaid_messages_ >= kAckMessages || unsaid_bytes_ >= kAckBytes) {
    ack_due_ = true;
    output_.set();
  }
  inbound_.finish();
}

void Connection::control(const MessageHeader& header) {
  if (!outbound_.acknowledged(header.sequence)) {
    throw Error(Code::kProtocol,
                fmt::format("{} acknowledges {} messages, which cannot be", stream_->describe(), header.sequence));
  }
  if ((header.flags & kAckAsks) != 0) {
    ack_due_ = true;
    output_.set();
  }
  if ((header.flags & kAckLeaves) != 0) said_farewell_ = true;
  owner_.acknowledged();
  if (said_farewell_) owner_.farewell_came();
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
      output_.reset();
      writer_waits_ = true;
      co_await output_.wait(stop_);
      writer_waits_ = false;
      continue;
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

// What the system does not take is left to the writer, and so is an error. A writer that is busy, or was woken for a rest, looks
// for more before it waits again.
void Connection::write_now() noexcept {
  if (!writer_waits_ || stop_.requested() || !batch_is_written() || farewell_in_batch_) return;
  if (!gather()) return;
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
  if (ack_due_) add_ack(front_, 0);
  std::size_t bytes = 0;
  while (bytes < kBatchBytes && piece_end_ + 2 + Outgoing::kMaxPieces <= kMaxPieces) {
    Outgoing* message = outbound_.next();
    if (message == nullptr) break;
    add_piece(message, message->bytes, message->piece_count == 0);
    for (std::size_t i = 0; i < message->piece_count; ++i) {
      add_piece(message, message->pieces[i], i + 1 == message->piece_count);
    }
    bytes += message->bytes.size() + message->payload_bytes;
  }
  // What is asked for, and the last word, are about all that was written before them.
  if ((ask_due_ || farewell_due_) && !outbound_.waiting()) {
    farewell_in_batch_ = farewell_due_;
    add_ack(back_, (ask_due_ ? kAckAsks : 0) | (farewell_due_ ? kAckLeaves : 0));
    ask_due_ = false;
  }
  return piece_end_ > 0;
}

void Connection::add_ack(std::array<std::byte, kHeaderBytes>& into, std::uint32_t flags) noexcept {
  ack_due_ = false;
  unsaid_messages_ = unsaid_bytes_ = 0;
  encode_header(ack_header(inbound_.count(), flags), into);
  add_piece(nullptr, into, true);
}

void Connection::add_piece(Outgoing* message, io::Piece piece, bool last) noexcept {
  pieces_[piece_end_] = piece;
  marks_[piece_end_] = {message, last};
  ++piece_end_;
}

void Connection::advance(std::size_t bytes) noexcept {
  while (piece_begin_ < piece_end_ && bytes >= pieces_[piece_begin_].size()) {
    bytes -= pieces_[piece_begin_].size();
    const Mark mark = marks_[piece_begin_];
    ++piece_begin_;
    if (mark.message == nullptr || !mark.last) continue;
    outbound_.wrote(*mark.message);
    if (!current()) return;
  }
  if (bytes > 0) pieces_[piece_begin_] = pieces_[piece_begin_].subspan(bytes);
}

// A withdrawn message goes on from its copy. What is written of a piece was cut off its front.
void Connection::moved(const Outgoing& message, std::span<const io::Piece> before) noexcept {
  for (std::size_t i = piece_begin_; i < piece_end_; ++i) {
    if (marks_[i].message != &message) continue;
    for (std::size_t piece = 0; piece < before.size(); ++piece) {
      if (pieces_[i].data() + pieces_[i].size() != before[piece].data() + before[piece].size()) continue;
      if (pieces_[i].size() > before[piece].size()) continue;
      pieces_[i] = message.pieces[piece].last(pieces_[i].size());
      break;
    }
  }
}

}  // namespace aiacc::tcp
