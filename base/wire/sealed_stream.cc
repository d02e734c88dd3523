#include "base/wire/sealed_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace aiacc::wire {

SealedStream::SealedStream(Loop& loop, std::unique_ptr<io::Stream> stream, Protection how, const Secret& outgoing,
                           const Secret& incoming, const Bytes& preface)
    : loop_(loop),
      stream_(std::move(stream)),
      outgoing_seal_(RecordSeal::make(how, outgoing)),
      incoming_seal_(RecordSeal::make(how, incoming)),
      to_write_(loop),
      outgoing_(preface.begin(), preface.end()),
      to_read_(loop) {
  const RecordSeal::Sizes& sizes = outgoing_seal_->sizes();
  outgoing_.resize(preface.size() + sizes.preface);
  outgoing_seal_->begin(std::span(outgoing_).subspan(preface.size()));
  pieces_.reserve(2 * kMaxRecords);
  gathered_.reserve(kBatchBytes);
  hidden_.resize(sizes.around > 0 ? kBatchBytes + kMaxRecords * sizes.around : 0);
  opened_.resize(sizes.around > 0 ? sizes.plain : 0);
  incoming_.resize(kBufferBytes);
  writing_.emplace(loop_, write(), static_cast<Root::Owner&>(*this));
  reading_.emplace(loop_, read(), static_cast<Root::Owner&>(*this));
  writing_->start();
  reading_->start();
}

SealedStream::~SealedStream() {
  // The stream must not keep a wait of a coroutine frame that is about to be destroyed.
  stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the stream is closed")));
}

bool SealedStream::try_io(io::IoAwait& io) {
  if (io.direction() == io::IoAwait::Direction::kRead) {
    if (serve(io)) return true;
    if (read_error_) std::rethrow_exception(read_error_);
    return false;
  }
  if (write_error_) std::rethrow_exception(write_error_);
  io.set_moved(0);
  return io.bytes() == 0;
}

void SealedStream::begin_io(io::IoAwait& io) noexcept {
  if (io.direction() == io::IoAwait::Direction::kRead) {
    reader_ = &io;
    to_read_.set();
  } else {
    writer_ = &io;
    to_write_.set();
  }
}

void SealedStream::cancel_io(io::IoAwait& io) noexcept {
  if (reader_ == &io) reader_ = nullptr;
  if (writer_ != &io) return;
  writer_ = nullptr;
  if (sealed_ == 0) return;
  write_error_ = std::make_exception_ptr(
      Error(Code::kAborted, fmt::format("a write to {} was stopped in the middle of a record", describe())));
}

void SealedStream::shutdown_write() noexcept {
  last_due_ = true;
  to_write_.set();
}

void SealedStream::root_ended(Root& root, std::exception_ptr error) noexcept {
  if (!error) return;
  const bool reads = &root == &*reading_;
  (reads ? read_error_ : write_error_) = error;
  if (io::IoAwait* waiting = std::exchange(reads ? reader_ : writer_, nullptr)) waiting->fail(error);
}

// --- writing --------------------------------------------------------------------------------------------------------------

Task<void> SealedStream::write() {
  bool last = false;
  for (;;) {
    if (outgoing_.empty()) {
      if (writer_ != nullptr && !write_error_) {
        seal_pending();
      } else if (last_due_) {
        add_record({}, true);
        last = true;
      } else {
        to_write_.reset();
        co_await to_write_.wait(stop_);
        continue;
      }
      write_now();
    }
    co_await io::write_all(*stream_, outgoing_, stop_);
    outgoing_.clear();
    if (last) {
      stream_->shutdown_write();
      co_return;
    }
    const std::size_t moved = std::exchange(sealed_, 0);
    if (moved == 0 || writer_ == nullptr) continue;
    writer_->set_moved(moved);
    std::exchange(writer_, nullptr)->complete();
  }
}

// False if the batch has no more room; then nothing was sealed.
bool SealedStream::add_record(std::span<const std::byte> plain, bool last) {
  if (records_ == kMaxRecords) return false;
  const RecordSeal::Sizes& sizes = outgoing_seal_->sizes();
  const std::span<std::byte> head = std::span(heads_[records_++]).first(sizes.head);
  const std::span<const std::byte> body =
      outgoing_seal_->seal(plain, last, head, std::span(hidden_).subspan(hidden_used_));
  if (sizes.around > 0) hidden_used_ += body.size();
  pieces_.emplace_back(head);
  if (!body.empty()) pieces_.push_back(body);
  sealed_ += plain.size();
  return true;
}

// Seals as much of the writer's bytes as fits into a batch, from their beginning.
void SealedStream::seal_pending() {
  const io::Piece whole(writer_->data(), writer_->data() == nullptr ? 0 : writer_->bytes());
  const std::span<const io::Piece> given =
      writer_->pieces().empty() ? std::span<const io::Piece>(&whole, 1) : writer_->pieces();
  const std::size_t most = outgoing_seal_->sizes().plain;
  std::size_t gathered_from = 0;
  const auto seal_gathered = [&] {  // one record of the short pieces since the last record
    const std::span<const std::byte> bytes = std::span(gathered_).subspan(gathered_from);
    gathered_from = gathered_.size();
    return bytes.empty() || add_record(bytes, false);
  };
  std::size_t room = kBatchBytes;
  for (const io::Piece& piece : given) {
    if (room == 0) break;
    io::Piece part = piece.first(std::min(piece.size(), room));
    room -= part.size();
    if (part.size() < kAlone) {
      if (gathered_.size() - gathered_from + part.size() > most && !seal_gathered()) return;
      gathered_.insert(gathered_.end(), part.begin(), part.end());
      continue;
    }
    if (!seal_gathered()) return;
    while (!part.empty()) {
      const io::Piece one = part.first(std::min(part.size(), most));
      if (!add_record(one, false)) return;
      part = part.subspan(one.size());
    }
  }
  seal_gathered();
}

// Writes what the kernel takes at once. The rest of the batch is copied, because a writer that is stopped takes its
// memory back.
void SealedStream::write_now() {
  std::size_t moved = 0;
  io::IoAwait attempt = stream_->write_gathered(pieces_, stop_);
  if (attempt.await_ready()) moved = attempt.await_resume();
  for (const io::Piece& piece : pieces_) {
    const std::size_t gone = std::min(moved, piece.size());
    moved -= gone;
    outgoing_.insert(outgoing_.end(), piece.begin() + static_cast<std::ptrdiff_t>(gone), piece.end());
  }
  pieces_.clear();
  gathered_.clear();
  records_ = hidden_used_ = 0;
}

// --- reading --------------------------------------------------------------------------------------------------------------

Task<void> SealedStream::read() {
  const std::size_t preface = incoming_seal_->sizes().preface;
  if (preface > 0) co_await have(preface);
  const bool begun = incoming_seal_->resume(std::span(incoming_).subspan(begin_, preface));
  begin_ += preface;
  if (!begun) throw Error(Code::kProtocol, fmt::format("{} begins an encrypted stream with nonsense", describe()));
  while (!last_came_) {
    if (reader_ == nullptr || !plain_.empty()) {
      to_read_.reset();
      co_await to_read_.wait(stop_);
      continue;
    }
    co_await read_record();
    if (reader_ != nullptr && serve(*reader_)) std::exchange(reader_, nullptr)->complete();
  }
}

// Returns when `bytes` bytes are at begin_. Requires that all opened bytes have been read.
Task<void> SealedStream::have(std::size_t bytes) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (begin_ + bytes > incoming_.size()) {
    std::memmove(incoming_.data(), incoming_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  while (end_ - begin_ < bytes) {
    const std::size_t moved = co_await stream_->read_some(std::span(incoming_).subspan(end_), stop_);
    if (moved == 0) throw Error(Code::kPeerFailed, fmt::format("{} closed without a farewell", describe()));
    end_ += moved;
  }
}

Task<void> SealedStream::read_record() {
  const std::size_t head = incoming_seal_->sizes().head;
  co_await have(head);
  const std::optional<std::uint32_t> length = incoming_seal_->length(std::span(incoming_).subspan(begin_, head));
  if (!length) {
    throw Error(Code::kProtocol,
                fmt::format("a record header from {} is not authentic: the other end did not send it at this position",
                            describe()));
  }
  co_await have(head + *length);
  const std::span<const std::byte> record = std::span(incoming_).subspan(begin_, head + *length);
  const auto plain = incoming_seal_->open(record.first(head), record.subspan(head), opened_, &last_came_);
  if (!plain) {
    last_came_ = false;
    throw Error(
        Code::kProtocol,
        fmt::format("data from {} is not authentic: the other end did not send it at this position", describe()));
  }
  plain_ = *plain;
  begin_ += record.size();
}

bool SealedStream::serve(io::IoAwait& io) noexcept {
  const std::size_t bytes = std::min(io.bytes(), plain_.size());
  if (bytes == 0 && !last_came_ && io.bytes() > 0) return false;
  if (bytes > 0) std::memcpy(io.data(), plain_.data(), bytes);
  plain_ = plain_.subspan(bytes);
  io.set_moved(bytes);
  return true;
}

}  // namespace aiacc::wire
