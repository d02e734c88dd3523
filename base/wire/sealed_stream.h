// SealedStream: bytes over a connection whose two ends have proved themselves (base/wire/handshake.h), encrypted: nobody
// between them can read, change, repeat, drop or reorder any without its reader hearing of it. Each direction is a stream of
// libsodium's secretstream with its own session key: its header, then records of a 32-bit length and so many bytes, each of
// which holds at most kRecordBytes and 17 that prove it. docs/wire-protocol.md has test vectors.
//
// A write is complete when the stream beneath has taken its whole record. One that is stopped before that ends the writing: what
// was sealed cannot be taken back. An end of stream without the last record is a broken connection.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/io/net.h"
#include "base/task/scope.h"
#include "base/wire/codec.h"
#include "base/wire/secret.h"

namespace aiacc::wire {

class SealedStream final : public io::Stream, private Root::Owner {
 public:
  static constexpr std::size_t kRecordBytes = 16 << 10;

  // `preface` is written first, as it is: the last word of the handshake.
  SealedStream(Loop& loop, std::unique_ptr<io::Stream> stream, const Secret& outgoing, const Secret& incoming,
               const Bytes& preface = {});
  ~SealedStream() override;

  void expect_answers() noexcept override { stream_->expect_answers(); }
  void shutdown_write() noexcept override;
  std::optional<io::PeerIdentity> peer_identity() const noexcept override { return stream_->peer_identity(); }
  std::string describe() const override { return stream_->describe(); }

 private:
  struct Ciphers;

  Loop& loop() noexcept override { return loop_; }
  bool try_io(io::IoAwait& io) override;
  void begin_io(io::IoAwait& io) noexcept override;
  void cancel_io(io::IoAwait& io) noexcept override;
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  Task<void> write();
  void seal(std::span<const std::byte> plain, bool last);
  void seal_pending();

  Task<void> read();
  Task<void> fill(std::span<std::byte> into);
  void open();
  bool serve(io::IoAwait& io) noexcept;

  Loop& loop_;
  std::unique_ptr<io::Stream> stream_;
  std::unique_ptr<Ciphers> ciphers_;
  Stop stop_;

  Event to_write_;
  io::IoAwait* writer_ = nullptr;
  std::size_t sealed_ = 0;  // bytes of writer_ that are in outgoing_
  std::vector<std::byte> outgoing_;
  std::vector<std::byte> gathered_;
  bool last_due_ = false;
  std::exception_ptr write_error_;

  Event to_read_;
  io::IoAwait* reader_ = nullptr;
  std::vector<std::byte> incoming_;  // a record
  std::vector<std::byte> plain_;
  std::size_t served_ = 0;  // of plain_
  bool last_came_ = false;
  std::exception_ptr read_error_;

  std::optional<Root> writing_;  // last: their frames refer to what stands above
  std::optional<Root> reading_;
};

}  // namespace aiacc::wire
