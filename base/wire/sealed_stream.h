// SealedStream: a protected stream over a connection whose two ends have proved themselves (base/wire/handshake.h). The
// reader detects bytes that were changed, repeated, dropped or reordered in between; with encryption nobody in between
// can read them. Each direction is a sequence of records under its own session key (base/wire/record_seal.h).
//
// A write is complete when the stream beneath has taken all its records. A write that is stopped before that ends all
// writing, because sealed bytes cannot be taken back. Bytes that are not encrypted are written in place; bytes that the
// kernel does not take at once are copied, because a writer may take its memory back. A reader gets no byte of a record
// before its proof was verified. An end of stream without the last record is a broken connection; a record that the
// other end did not seal is a kProtocol error.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/io/net.h"
#include "base/task/scope.h"
#include "base/wire/codec.h"
#include "base/wire/record_seal.h"
#include "base/wire/secret.h"

namespace aiacc::wire {

class SealedStream final : public io::Stream, private Root::Owner {
 public:
  // `preface`, the last frame of the handshake, is written first, unprotected.
  SealedStream(Loop& loop, std::unique_ptr<io::Stream> stream, Protection how, const Secret& outgoing,
               const Secret& incoming, const Bytes& preface = {});
  ~SealedStream() override;

  void expect_answers() noexcept override { stream_->expect_answers(); }
  void keep_unsent_below(int bytes) noexcept override { stream_->keep_unsent_below(bytes); }
  io::FlowState flow() const noexcept override { return stream_->flow(); }
  void shutdown_write() noexcept override;
  int descriptor() const noexcept override { return stream_->descriptor(); }
  std::optional<io::PeerIdentity> peer_identity() const noexcept override { return stream_->peer_identity(); }
  std::string describe() const override { return stream_->describe(); }

 private:
  static constexpr std::size_t kBatchBytes = 128 << 10;  // sealed before they are written
  static constexpr std::size_t kMaxRecords = 16;         // in a batch
  static constexpr std::size_t kAlone = 4 << 10;         // a piece of this length or more has records of its own
  static constexpr std::size_t kBufferBytes = 256 << 10;

  Loop& loop() noexcept override { return loop_; }
  bool try_io(io::IoAwait& io) override;
  void begin_io(io::IoAwait& io) noexcept override;
  void cancel_io(io::IoAwait& io) noexcept override;
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  Task<void> write();
  void seal_pending();
  bool add_record(std::span<const std::byte> plain, bool last);
  void write_now();

  Task<void> read();
  Task<void> have(std::size_t bytes);
  Task<void> read_record();
  bool serve(io::IoAwait& io) noexcept;

  Loop& loop_;
  std::unique_ptr<io::Stream> stream_;
  std::unique_ptr<RecordSeal> outgoing_seal_;
  std::unique_ptr<RecordSeal> incoming_seal_;
  Stop stop_;

  Event to_write_;
  io::IoAwait* writer_ = nullptr;
  std::size_t sealed_ = 0;  // how many bytes of writer_ are in the batch
  // The unwritten rest of the batch, in two forms.
  std::vector<io::Piece> pieces_;    // before the first attempt to write it
  std::vector<std::byte> outgoing_;  // a copy, after that attempt
  std::array<std::array<std::byte, RecordSeal::kMaxHeadBytes>, kMaxRecords> heads_;
  std::size_t records_ = 0;
  std::vector<std::byte> gathered_;  // short pieces of the batch; never grows, because pieces_ point into it
  std::vector<std::byte> hidden_;    // the encrypted batch; as long as the longest one
  std::size_t hidden_used_ = 0;
  bool last_due_ = false;
  std::exception_ptr write_error_;

  Event to_read_;
  io::IoAwait* reader_ = nullptr;
  std::vector<std::byte> incoming_;
  std::size_t begin_ = 0;  // received and unopened bytes in incoming_
  std::size_t end_ = 0;
  std::vector<std::byte> opened_;       // space for decrypted records
  std::span<const std::byte> plain_{};  // unread bytes of the last record
  bool last_came_ = false;
  std::exception_ptr read_error_;

  std::optional<Root> writing_;  // declared last: their frames refer to the members above
  std::optional<Root> reading_;
};

}  // namespace aiacc::wire
