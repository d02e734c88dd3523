#include "base/wire/sealed_stream.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace aiacc::wire {
namespace {

constexpr std::size_t kHeaderBytes = crypto_secretstream_xchacha20poly1305_HEADERBYTES;
constexpr std::size_t kSealBytes = crypto_secretstream_xchacha20poly1305_ABYTES;
constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);

unsigned char* raw(std::byte* bytes) noexcept { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) noexcept { return reinterpret_cast<const unsigned char*>(bytes); }

}  // namespace

struct SealedStream::Ciphers {
  ~Ciphers() {
    sodium_memzero(&outgoing, sizeof outgoing);
    sodium_memzero(&incoming, sizeof incoming);
  }
  Secret incoming_key;
  crypto_secretstream_xchacha20poly1305_state outgoing{};
  crypto_secretstream_xchacha20poly1305_state incoming{};
};

SealedStream::SealedStream(Loop& loop, std::unique_ptr<io::Stream> stream, const Secret& outgoing,
                           const Secret& incoming, const Bytes& preface)
    : loop_(loop),
      stream_(std::move(stream)),
      ciphers_(std::make_unique<Ciphers>()),
      to_write_(loop),
      outgoing_(preface.begin(), preface.end()),
      to_read_(loop) {
  ciphers_->incoming_key = incoming;
  std::array<std::byte, kHeaderBytes> header;
  crypto_secretstream_xchacha20poly1305_init_push(&ciphers_->outgoing, raw(header.data()),
                                                  raw(outgoing.bytes().data()));
  outgoing_.insert(outgoing_.end(), header.begin(), header.end());
  writing_.emplace(loop_, write(), static_cast<Root::Owner&>(*this));
  reading_.emplace(loop_, read(), static_cast<Root::Owner&>(*this));
  writing_->start();
  reading_->start();
}

SealedStream::~SealedStream() {
  // No wait of a frame that is destroyed may be left with the stream.
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
        seal({}, true);
        last = true;
      } else {
        to_write_.reset();
        co_await to_write_.wait(stop_);
        continue;
      }
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

void SealedStream::seal_pending() {
  if (writer_->pieces().empty()) {
    sealed_ = std::min(writer_->bytes(), kRecordBytes);
    return seal({writer_->data(), sealed_}, false);
  }
  gathered_.clear();
  for (const io::Piece& piece : writer_->pieces()) {
    const io::Piece part = piece.first(std::min(piece.size(), kRecordBytes - gathered_.size()));
    gathered_.insert(gathered_.end(), part.begin(), part.end());
  }
  sealed_ = gathered_.size();
  seal(gathered_, false);
}

void SealedStream::seal(std::span<const std::byte> plain, bool last) {
  const std::size_t bytes = plain.size() + kSealBytes;
  outgoing_.resize(kLengthBytes + bytes);
  Bytes length;
  Writer(length).put(static_cast<std::uint32_t>(bytes));
  std::copy(length.begin(), length.end(), outgoing_.begin());
  crypto_secretstream_xchacha20poly1305_push(&ciphers_->outgoing, raw(outgoing_.data() + kLengthBytes), nullptr,
                                             raw(plain.data()), plain.size(), nullptr, 0,
                                             last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL : 0);
}

// --- reading --------------------------------------------------------------------------------------------------------------

Task<void> SealedStream::read() {
  std::array<std::byte, kHeaderBytes> header;
  co_await fill(header);
  const bool begun = crypto_secretstream_xchacha20poly1305_init_pull(&ciphers_->incoming, raw(header.data()),
                                                                     raw(ciphers_->incoming_key.bytes().data())) == 0;
  ciphers_->incoming_key = Secret();
  if (!begun) throw Error(Code::kProtocol, fmt::format("{} begins an encrypted stream with nonsense", describe()));
  while (!last_came_) {
    if (reader_ == nullptr || served_ < plain_.size()) {
      to_read_.reset();
      co_await to_read_.wait(stop_);
      continue;
    }
    std::array<std::byte, kLengthBytes> length_bytes;
    co_await fill(length_bytes);
    std::uint32_t length = 0;
    Reader(length_bytes, "a record").get(length);
    if (length < kSealBytes || length > kRecordBytes + kSealBytes) {
      throw Error(Code::kProtocol, fmt::format("{} announces a record of {} bytes; {} to {} are possible", describe(),
                                               length, kSealBytes, kRecordBytes + kSealBytes));
    }
    incoming_.resize(length);
    co_await fill(incoming_);
    open();
    if (reader_ != nullptr && serve(*reader_)) std::exchange(reader_, nullptr)->complete();
  }
}

Task<void> SealedStream::fill(std::span<std::byte> into) {
  while (!into.empty()) {
    const std::size_t moved = co_await stream_->read_some(into, stop_);
    if (moved == 0) throw Error(Code::kPeerFailed, fmt::format("{} closed without a farewell", describe()));
    into = into.subspan(moved);
  }
}

void SealedStream::open() {
  plain_.resize(incoming_.size() - kSealBytes);
  served_ = 0;
  unsigned char tag = 0;
  if (crypto_secretstream_xchacha20poly1305_pull(&ciphers_->incoming, raw(plain_.data()), nullptr, &tag,
                                                 raw(incoming_.data()), incoming_.size(), nullptr, 0) != 0) {
    plain_.clear();
    throw Error(Code::kProtocol,
                fmt::format("what came from {} was not sealed by the other end, or not in this place", describe()));
  }
  last_came_ = tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL;
}

bool SealedStream::serve(io::IoAwait& io) noexcept {
  const std::size_t bytes = std::min(io.bytes(), plain_.size() - served_);
  if (bytes == 0 && !last_came_ && io.bytes() > 0) return false;
  if (bytes > 0) std::memcpy(io.data(), plain_.data() + served_, bytes);
  served_ += bytes;
  io.set_moved(bytes);
  return true;
}

}  // namespace aiacc::wire
